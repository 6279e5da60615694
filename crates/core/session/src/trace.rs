//! What this domain does with buffers of pools that are traced, recorded where the manager, and whoever it lets, can read it.
//!
//! While a pool is not traced this costs nothing that could be measured: its buffers' tags and its own flags, which the fast paths look at anyway, have
//! a bit that sends them the long way. From there they come here.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_proto::{BufferId, ChannelId, DomainId};
use tranship_region::layout::trace::What;
use tranship_region::layout::{TraceRw, Traced};
use tranship_sys::time;

/// The domain's ring, once there is one.
#[derive(Default)]
pub(super) struct Ring {
    made: OnceLock<(OwnedFd, TraceRw)>,
    /// It was said that there is no memory for it.
    warned: AtomicBool,
}

/// A buffer, and where its bytes are.
#[derive(Clone, Copy)]
pub struct Subject {
    pub id: BufferId,
    pub offset: u64,
    pub length: u64,
}

impl Ring {
    /// There is one from here on, unless there is no memory for it.
    pub(super) fn made(&self) -> Option<&OwnedFd> {
        if self.made.get().is_none() {
            match TraceRw::create() {
                // Of two threads one's is dropped.
                Ok(made) => drop(self.made.set(made)),
                // Each pool may be traced again and again.
                Err(error) => {
                    if !self.warned.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "nothing is recorded: no memory for it");
                    }
                }
            }
        }
        self.made.get().map(|(fd, _)| fd)
    }

    /// Records what is done with a buffer now, and over which channel with whom.
    #[cold]
    pub(super) fn note(
        &self,
        what: What,
        of: Subject,
        (channel, peer): (ChannelId, DomainId),
        moved: bool,
    ) {
        if let Some((_, ring)) = self.made.get() {
            ring.push(&Traced {
                at_ns: time::monotonic_ns(),
                buffer: of.id.0,
                what,
                moved,
                channel: channel.0,
                peer: peer.0,
                offset: of.offset,
                length: of.length,
            });
        }
    }
}
