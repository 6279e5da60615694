//! Alarm that wakes the timer thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use tranship_sys::eventfd;

static DOORBELL: OnceLock<OwnedFd> = OnceLock::new();

/// Returns the doorbell of this process, for the thread that sleeps on it.
pub(super) fn make() -> io::Result<&'static OwnedFd> {
    if let Some(doorbell) = DOORBELL.get() {
        return Ok(doorbell);
    }
    let made = eventfd::create()?;
    Ok(DOORBELL.get_or_init(|| made))
}

/// Wakes the timer thread to check its sessions now.
pub(super) fn wake() {
    if let Some(doorbell) = DOORBELL.get() {
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(doorbell);
    }
}
