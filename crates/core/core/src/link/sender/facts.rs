//! What a sender is asked, and how it is to behave from now on.

use super::Sender;
use crate::link::descriptor;
use crate::link::shared::Gone;
use crate::options::{Patience, WhenFull};
use tranship_proto::{ChannelId, DomainId};

impl Sender {
    /// The receiver's domain.
    pub fn peer(&self) -> DomainId {
        self.link.peer
    }
    /// The receiver's process and user, as the kernel told the manager.
    pub fn peer_pid_uid(&self) -> (u32, u32) {
        (self.link.peer_pid, self.link.peer_uid)
    }
    /// The channel's id.
    pub fn channel(&self) -> ChannelId {
        self.link.channel
    }
    /// Messages that [`WhenFull::DropNew`] or [`WhenFull::DropOldest`] have dropped here.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
    /// How `send` deals with a full ring from now on.
    pub fn set_when_full(&mut self, when_full: WhenFull) {
        self.patience = Patience::Channel(when_full);
        self.skippable = descriptor::skippable(when_full);
    }
    /// Messages that the receiver has not taken yet.
    pub fn queued(&self) -> u64 {
        if self.link.domain.fork.is_child() {
            return 0;
        }
        self.producer
            .tail()
            .saturating_sub(self.link.ring.their_head())
    }
    /// Whether the receiver is gone.
    pub fn is_peer_gone(&mut self) -> bool {
        if self.link.domain.fork.is_child() {
            return true;
        }
        self.link.domain.catch_up();
        self.link.look_for_death();
        self.link.gone() != Gone::No
    }
}
