//! The operations of this domain on buffers of traced pools, recorded where the manager can read them, and the domains
//! that it allows.
//!
//! Tracing costs nothing measurable while a pool is not traced. The fast paths check its buffers' tags and its own
//! flags anyway, and a bit in them chooses the slow path, which comes here.

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
    /// The lack of memory for it was reported.
    warned: AtomicBool,
}

/// A buffer, and the place of its bytes.
#[derive(Clone, Copy)]
pub struct Subject {
    pub id: BufferId,
    pub offset: u64,
    pub length: u64,
}

impl Ring {
    /// Makes the ring, unless there is no memory for it.
    pub(super) fn made(&self) -> Option<&OwnedFd> {
        if self.made.get().is_none() {
            match TraceRw::create() {
                // If two threads make one, one of them is dropped.
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

    /// Records an operation on a buffer, with the channel and the other domain.
    #[cold]
    pub(super) fn note(
        &self,
        what: What,
        of: Subject,
        (channel, peer): (ChannelId, DomainId),
        (moved, word): (bool, u64),
    ) {
        if let Some((_, ring)) = self.made.get() {
            ring.push(&Traced {
                at_ns: time::monotonic_ns(),
                buffer: of.id.0,
                what,
                moved,
                channel: channel.0,
                peer: peer.0,
                #[allow(clippy::cast_possible_truncation)] // the low half, as the words of lines are cut
                word: word as u32,
                offset: of.offset,
                length: of.length,
            });
        }
    }
}
