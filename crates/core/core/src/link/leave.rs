//! The end of a channel's end: the manager is told, the register forgets it.

use super::shared::LinkShared;

impl LinkShared {
    /// Tells the manager, now or when it is back, that the cursors of this end are gone.
    pub(super) fn leave(&self) {
        let (domain, channel) = (&self.domain, self.channel);
        if LinkShared::of(domain, channel).is_none() {
            return; // it was never used
        }
        self.unpoll();
        if self.inside.is_some() || domain.say_closed(self) {
            domain.register.remove_link(channel);
        }
        self.unregister();
        domain.let_go();
    }
}
