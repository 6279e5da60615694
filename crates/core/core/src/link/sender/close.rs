//! The end of a sender.

use super::Sender;
use crate::domain::PATIENCE;
use crate::link::shared::Gone;
use tranship_ring::Ending;
use tranship_sys::crash;

impl Sender {
    /// Ends the channel although the data is incomplete. The receiver gets the sent messages, and then
    /// [`ErrorKind::PeerDied`](crate::ErrorKind::PeerDied) instead of an end in order. A sender that a panic drops does
    /// the same.
    pub fn abandon(self) {
        if !self.link.domain.fork.is_child() {
            self.link.ring.end(Ending::Abandoned);
        }
    }
}

impl Drop for Sender {
    /// Closes in order, unless the thread panics: sent messages can still be received. If no manager has their memory,
    /// waits for one, or for the receiver, at most 5 s.
    fn drop(&mut self) {
        if self.link.domain.fork.is_child() {
            return;
        }
        // Crash: after `closed` and before the request the manager learns of it by our death or the sink's report.
        let closed = if std::thread::panicking() {
            Ending::Abandoned
        } else {
            Ending::Closed
        };
        self.link.ring.end(closed);
        crash::point("close.after_flag");
        self.fence_and_wake();
        self.link.tell_other();
        self.end_replies();
        if self.store.is_some() {
            if self.lingers && !std::thread::panicking() {
                // The process may be about to end, and the carrier with it.
                self.wait_gone(PATIENCE);
            }
            self.drop_passed();
            return self.link.leave();
        }
        for (_, asked) in self.unanswered.drain(..) {
            self.link.domain.forget(asked);
        }
        if !std::thread::panicking() {
            let (link, sent) = (&self.link, self.producer.tail());
            link.domain.entrust(Some(link.channel), || {
                link.ring.their_head() == sent || link.gone() != Gone::No
            });
        }
        self.link.leave();
    }
}
