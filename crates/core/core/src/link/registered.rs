//! Channels that no manager has brought about, within the process or carried to elsewhere: the domain shows them to its
//! manager, for `tranship stat`. If no manager takes the registration now, the next one is shown the channel, or none:
//! nothing depends on it.

use super::shared::{LinkShared, Registered};
use std::os::fd::{AsFd, BorrowedFd};
use tranship_proto::{LocalChannel, Request, Role};

impl LinkShared {
    /// Registers the channel: the program has got this end. `place`: the place of the other end, if it is not in this
    /// process.
    pub(super) fn register(&self, place: Option<&str>) {
        let Some(inside) = self.inside.as_ref().filter(|_| !self.is_topic()) else {
            return; // a topic's publisher says who reads it
        };
        // If the program has both ends, the sender's domain registers the channel.
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

    /// Takes the registration back: the program has dropped this end.
    pub(super) fn unregister(&self) {
        if self
            .inside
            .as_ref()
            .is_some_and(|i| i.registered.get().is_some())
        {
            let channel = self.channel;
            // A manager that does not get this has lost the connection, and with it the channel.
            let _ = self
                .domain
                .tell(&Request::UnregisterChannel { channel }, &[]);
        }
    }
}
