//! Questions to a sender, and changes of its behaviour.

use super::Sender;
use crate::link::descriptor;
use crate::options::{Patience, WhenFull};

impl Sender {
    /// Sets the action of `send` on a full ring from now on.
    pub fn set_when_full(&mut self, when_full: WhenFull) {
        self.patience = Patience::Channel(when_full);
        self.skippable = descriptor::skippable(when_full);
    }

    /// Returns how many messages the receiver has not taken yet. One load, no system call.
    pub fn queued(&self) -> u64 {
        if self.link.domain.fork.is_child() {
            return 0;
        }
        self.producer
            .tail()
            .saturating_sub(self.link.ring.their_head())
    }
}
