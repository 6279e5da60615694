//! The optional helper thread: calls `turn` for programs that never do.

use super::state::DomainCore;
use crate::base::thread;
use crate::error::{self, Error};
use std::time::{Duration, Instant};

/// Time between two rounds while something that is tended has more to do.
const SOON: Duration = Duration::from_millis(1);

impl DomainCore {
    /// Starts the helper thread, if there is none.
    pub fn start_helper(&self) -> Result<(), Error> {
        if self.helped() {
            return Ok(());
        }
        let domain = self.clone();
        let started = thread("tranship", move || run(&domain));
        started.map_err(|error| {
            self.not_helped();
            error::system("starting the helper thread")(error)
        })
    }
}

fn run(domain: &DomainCore) {
    while !domain.is_closed() {
        let seen = domain.wake();
        domain.turn_quietly();
        let soon = domain.register.tend().then(|| Instant::now() + SOON);
        // The thread also wakes by itself every round: to give back idle memory, and to notice a dead manager.
        domain.wait_news(seen, soon);
        domain.nudge_links();
    }
}
