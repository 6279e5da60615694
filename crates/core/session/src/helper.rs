//! The optional helper thread: calls `turn` for programs that never do.

use super::state::DomainCore;
use crate::base::thread;
use crate::error::{self, Error};

pub(super) fn start(domain: DomainCore) -> Result<(), Error> {
    thread("tranship", move || run(&domain)).map_err(error::system("starting the helper thread"))
}

fn run(domain: &DomainCore) {
    domain.helped();
    while !domain.is_closed() {
        let seen = domain.wake();
        domain.turn_quietly();
        // The thread also wakes by itself every round: to give back idle memory, and to notice a dead manager.
        domain.wait_news(seen, None);
        domain.nudge_links();
    }
}
