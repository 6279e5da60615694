//! Channels that no manager has brought about, within the process or carried to elsewhere: the domain shows its manager that there is one, for `tranship stat`.
//! Where there is no manager, or it takes nothing at the moment, it is shown to the next one, or not at all: nothing depends on it.

use super::shared::{LinkShared, Registered};
use std::os::fd::{AsFd, BorrowedFd};
use tranship_proto::{LocalChannel, Request, Role};

impl LinkShared {
    /// The program has got this end. `place` is where the other one is, if not in this process.
    pub(super) fn register(&self, place: Option<&str>) {
        let Some(inside) = self.inside.as_ref().filter(|_| !self.is_topic()) else {
            return; // a topic's publisher says who reads it
        };
        // Of two ends of the program's the sender's domain speaks.
        if place.is_none() && self.role == Role::Sink {
            return;
        }
        let place = place.map(str::to_owned);
        let _ = inside.registered.set(Registered { place }); // once
        self.domain.show_channel(self);
    }

    /// Calls `say` with the channel's registration and both halves.
    pub(crate) fn with_registration(&self, say: impl FnOnce(&Request, &[BorrowedFd<'_>])) {
        let Some(inside) = &self.inside else { return };
        let (Some(registered), Some(other)) = (inside.registered.get(), self.other()) else {
            return;
        };
        let (source, sink) = match self.role {
            Role::Source => (self, &*other),
            Role::Sink => (&*other, self),
        };
        let address = match registered.place {
            Some(_) => self.name.clone(),
            None => format!("local:{}", self.name),
        };
        let channel = LocalChannel {
            channel: self.channel,
            address,
            role: self.role,
            peer: registered.place.is_none().then_some(self.peer),
            place: registered.place.clone(),
            pool: inside.pool,
            lines: [source.ring.own().count(), sink.ring.own().count()],
        };
        let halves = [source.own_fd.as_fd(), sink.own_fd.as_fd()];
        say(&Request::RegisterChannel { channel }, &halves);
    }

    /// The program has let go of this end, which is on no register of the domain any more.
    pub(super) fn unregister(&self) {
        if self
            .inside
            .as_ref()
            .is_some_and(|i| i.registered.get().is_some())
        {
            let channel = self.channel;
            // A manager that does not hear it has lost the connection, and with it the channel.
            let _ = self
                .domain
                .tell(&Request::UnregisterChannel { channel }, &[]);
        }
    }
}
