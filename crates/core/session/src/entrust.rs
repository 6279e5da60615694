//! Data that a domain hands to a manager before an object of the domain goes: others have still to receive it.
//!
//! A living manager has all chunks before any buffer in them is sent. A killed manager takes with it the chunks that
//! their readers were not told of. Until the next manager is shown them, only this domain has them.

use super::conn::{Claim, Conn};
use super::state::{DomainCore, PATIENCE, POLL_INTERVAL};
use crate::base::lock;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tranship_proto::ChannelId;
use tranship_sys::futex;

impl DomainCore {
    /// Leaves when the last public handle is gone.
    pub fn leave(&self) {
        // Before the first look: a thread that drops an object after that look checks for itself, because both take the
        // registers' locks.
        self.life.left.store(true, Ordering::Relaxed);
        if self.is_idle() {
            return self.say_goodbye();
        }
        // The process may be about to end.
        self.entrust(None, || self.register.has_no_own());
        if self.leaves_later() {
            self.let_go();
        }
    }

    /// Waits until a manager has everything that this domain has shown, and the other end of that channel is back with
    /// it too; or until that is no longer needed. Gives up after [`PATIENCE`], or at once if another thread has just
    /// waited that long for a manager.
    pub fn entrust(&self, channel: Option<ChannelId>, needless: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if needless() || self.is_closed() {
                return;
            }
            self.turn_quietly();
            let mut conn = lock(&self.conn);
            let away = !conn.hears();
            if conn.has_all_of(channel) || (away && conn.is_stalled()) {
                return;
            }
            if Instant::now() >= deadline || (away && conn.attempts.cut_off().is_some()) {
                if away {
                    conn.set_stalled();
                }
                drop(conn);
                tracing::warn!(
                    ?channel,
                    "what was sent may be lost: no manager has it, and its reader has not taken it"
                );
                return;
            }
            drop(conn);
            let _ = futex::wait(self.wake_word(), self.wake(), Some(POLL_INTERVAL));
        }
    }
}

impl Conn {
    /// Says whether the manager knows all chunks, and both ends of that channel.
    fn has_all_of(&self, channel: Option<ChannelId>) -> bool {
        let missing = |claim: &Claim| match claim {
            Claim::Pool(_) | Claim::Chunk(..) | Claim::ReaderSet(_) | Claim::Done => true,
            Claim::Channel(of) | Claim::Assign(of, _) => Some(*of) == channel,
            Claim::Heap(_) | Claim::Reader(_) | Claim::Right(..) | Claim::Export(_) => false,
        };
        self.hears() && !self.disowned && !self.unanswered_claims().any(missing)
    }
}
