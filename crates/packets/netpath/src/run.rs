//! Event loops: a server or a forwarder runs until it is stopped.

use crate::device::{Frames, MbufDevice};
use crate::forward::{Forwarded, Forwarder};
use crate::link::Link;
use crate::server::Server;
use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Serves a device until `stop`.
///
/// # Errors
/// The device's.
pub fn serve(server: &mut Server, device: &mut MbufDevice, stop: &AtomicBool) -> Result<Frames> {
    // Ordering: relaxed; the flag publishes nothing else.
    while !stop.load(Ordering::Relaxed) {
        let delay = server.turn(device);
        if let Some(error) = device.take_error() {
            return Err(error.into());
        }
        let delay = delay.map_or(LOOK, |delay| {
            LOOK.min(Duration::from_micros(delay.total_micros()))
        });
        if !delay.is_zero() {
            wait(&[device.as_fd()], delay)?;
        }
    }
    Ok(device.frames())
}

/// Forwards until `stop`.
///
/// # Errors
/// A port's.
pub fn forward<L: Link + AsFd>(
    forwarder: &mut Forwarder<L>,
    stop: &AtomicBool,
) -> Result<Forwarded> {
    // Ordering: as above.
    while !stop.load(Ordering::Relaxed) {
        if !forwarder.turn()? {
            let [left, right] = forwarder.ports();
            wait(&[left.as_fd(), right.as_fd()], LOOK)?;
        }
    }
    Ok(forwarder.done())
}

/// Waits until one can be read, or the time is over.
fn wait(fds: &[BorrowedFd<'_>], time: Duration) -> Result<()> {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let time = Timespec::try_from(time)?;
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
