//! The optional helper thread: calls `turn` for programs that never do.

use super::DomainCore;
use crate::error::DomainError;

/// Starts it, with all signals blocked.
pub(super) fn start(domain: &'static DomainCore) -> Result<(), DomainError> {
    let blocked = tranship_sys::signals::block_all();
    let started = std::thread::Builder::new()
        .name("tranship".into())
        .spawn(move || run(domain));
    if let Ok(before) = blocked {
        tranship_sys::signals::restore(&before);
    }
    started
        .map(|_| ())
        .map_err(DomainError::system("starting the helper thread"))
}

fn run(domain: &'static DomainCore) {
    domain.helped();
    while !domain.is_closed() {
        let seen = domain.wake();
        domain.turn_quietly();
        // Also wakes by itself every round: to give back memory that is idle, and to see a dead manager.
        domain.wait_news(seen, None);
        domain.nudge_links();
    }
}
