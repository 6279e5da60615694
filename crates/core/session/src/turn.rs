//! A turn: the work of this domain, and a look at domains that are about to leave.

use super::state::DomainCore;
use crate::error::Error;

impl DomainCore {
    /// Takes the manager's messages, if there are any. Errors wait for the next call that needs the manager.
    #[inline]
    pub fn catch_up(&self) {
        if self.has_news() {
            self.turn_quietly();
        }
    }

    #[cold]
    pub fn turn_quietly(&self) {
        if let Err(error) = self.turn() {
            tracing::debug!(domain = %self.id(), %error, "turn");
        }
    }

    /// Takes all of the manager's messages, then does the work that they ask for. Rejoins a manager that came back.
    pub fn turn(&self) -> Result<(), Error> {
        self.check_fork()?;
        let outcome = self.work();
        if !self.is_closed() {
            self.look_at_left();
        }
        outcome
    }
}
