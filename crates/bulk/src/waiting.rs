//! Waiting for several channels at once, and together with other descriptors.
//!
//! A channel's descriptor becomes readable when there is something to take, if that was asked for with [`Channel::arm`]
//! since the channel was last looked at; without it the other end makes no system call. The loop of a program is: take
//! events until there are none, arm, and wait unless arming says that something has come.

use crate::{Channel, Error, Kind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tranship_sys::epoll::wait_any_readable;
use tranship_transport::Wait;

/// How often carriers without a descriptor are looked at.
const LOOK: Duration = Duration::from_millis(1);
/// The longest single wait: then things are looked at again, whatever told nobody.
const ROUND: Duration = Duration::from_millis(100);

impl Channel {
    /// For `poll`, `epoll` and event loops: readable when there may be something to take, once it is armed. Another one
    /// after the channel was bound. It is only to be waited on. [`Kind::System`] if there is none.
    pub fn descriptor(&self) -> Result<OwnedFd, Error> {
        let waiter = self.domain.waiter(self.id).ok_or(Kind::ChannelState)?;
        let fd = waiter.descriptor().ok_or(Kind::System)?;
        fd.try_clone_to_owned().map_err(Error::of(Kind::System))
    }

    /// Has the descriptor told of what comes from now on; false: take events first, something has come already. Taking
    /// events ends it.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.domain
            .waiter(self.id)
            .is_some_and(|waiter| waiter.arm())
    }
}

/// Waits until one of the channels may have something to take, at most `limit`; may come back early, and does at least
/// every 100 ms. False: nothing was told. Blocks.
pub fn wait_any(channels: &[&Channel], limit: Duration) -> bool {
    let waiters = channels.iter().filter_map(|c| c.domain.waiter(c.id));
    let waiters: Vec<Arc<dyn Wait>> = waiters.collect();
    let armed = waiters.iter().take_while(|waiter| waiter.arm()).count();
    let news = armed < waiters.len();
    let told = news || {
        let fds = waiters.iter().filter_map(|waiter| waiter.descriptor());
        let fds: Vec<BorrowedFd<'_>> = fds.collect();
        let round = match fds.len() == waiters.len() {
            true => ROUND,
            false => LOOK,
        };
        // Whatever the kernel says, the caller looks again.
        wait_any_readable(&fds, Some(limit.min(round))).unwrap_or(true)
    };
    waiters.iter().for_each(|waiter| waiter.disarm());
    told
}
