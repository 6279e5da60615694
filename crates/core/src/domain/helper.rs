//! The optional helper thread: calls `turn` for programs that never do.

use super::DomainCore;
use crate::error::Error;
use std::io;

pub(super) fn start(domain: DomainCore) -> Result<(), Error> {
    thread("tranship", move || run(&domain)).map_err(Error::system("starting the helper thread"))
}

/// Starts a thread with all signals blocked.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let blocked = tranship_sys::signals::block_all();
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    if let Ok(before) = blocked {
        tranship_sys::signals::restore(&before);
    }
    started.map(drop)
}

fn run(domain: &DomainCore) {
    domain.helped();
    while !domain.is_closed() {
        let seen = domain.wake();
        domain.turn_quietly();
        // Also wakes by itself every round: to give back memory that is idle, and to see a dead manager.
        domain.wait_news(seen, None);
        domain.nudge_links();
    }
}
