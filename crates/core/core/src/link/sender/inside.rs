//! Sending to a receiver in this process: the handle itself goes over.

use super::Sender;
use crate::base::lock;
use crate::buffer::{Buffer, BufferMut, Handle, Home};
use crate::domain::Offer;
use crate::error::{Error, ErrorKind, SendError, TooLarge};
use crate::link::descriptor::{self, Descriptor};
use crate::link::message::{Body, Message};
use crate::link::removal::removed;
use crate::link::shared::{Gone, LinkShared};
use crate::link::sleep::sleep_on;
use crate::link::store::{OP_INSIDE, Store};
use crate::options::{ChannelOptions, Outcome, TOPIC, Wait};
use crate::pool::OwnPool;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_ring::{Ending, Publish, Waker};

impl Sender {
    /// Makes the sending end of [`inside::pair`](crate::link::inside::pair).
    pub(in crate::link) fn inside(
        link: Arc<LinkShared>,
        options: &ChannelOptions,
        store: Arc<Store>,
    ) -> Result<Sender, Error> {
        let mut sender = Sender::new(link, options)?;
        sender.store = Some(store);
        Ok(sender)
    }

    /// Checks that these buffers can be sent, and that there is room for a message.
    pub(super) fn ready_inside(
        &mut self,
        handles: impl Iterator<Item = Handle>,
    ) -> Result<(), Error> {
        self.alive()?;
        let mut need_bytes = 0u64;
        for handle in handles {
            self.may_go(handle)?;
            need_bytes = need_bytes.saturating_add(handle.len as u64);
        }
        if need_bytes > self.most_bytes {
            let max_bytes = self.most_bytes;
            let error = Error::from(TooLarge {
                need_bytes,
                max_bytes,
            });
            return Err(error.context("the receiver has no such memory"));
        }
        self.make_room(1)
    }

    /// Sets the longest message that the receiver takes.
    pub(in crate::link) fn limit(&mut self, bytes: u64) {
        self.most_bytes = bytes;
    }

    /// Makes a drop wait until the carrier's end is gone, too.
    pub(in crate::link) fn linger(&mut self) {
        self.lingers = true;
    }

    /// Waits until the receiver has dropped its end. A carrier does so when the other end has confirmed everything, the
    /// end of the channel included.
    pub(super) fn wait_gone(&self, limit: Duration) {
        let (link, deadline) = (&self.link, Instant::now() + limit);
        while link.gone() == Gone::No && Instant::now() < deadline {
            let gone = || link.gone() != Gone::No;
            match link.driver() {
                Some(driver) => link.drive(driver, Wait::Sleep, Some(deadline), &gone),
                None => sleep_on(link, Waker::Fences, Some(deadline), false, gone),
            }
            link.look_for_death();
        }
    }

    /// Checks that the pool lets its buffers go over this channel.
    pub(super) fn is_not_anothers(&self, pool: &OwnPool) -> Result<(), Error> {
        match pool.only_over() {
            Some(TOPIC) => {
                let text = format!(
                    "pool {} is a topic's own, and its buffers go to that topic's subscribers only: allocate from `create_pool`",
                    pool.id()
                );
                Err(Error::new(ErrorKind::Refused, text))
            }
            Some(channel) if channel != self.link.channel => {
                let text = format!(
                    "pool {} is channel {channel}'s own, and its buffers go over that channel only: allocate from `create_pool`",
                    pool.id()
                );
                Err(Error::new(ErrorKind::Refused, text))
            }
            _ => Ok(()),
        }
    }

    fn may_go(&self, handle: Handle) -> Result<(), Error> {
        match handle.home() {
            Home::Own(pool) => {
                // SAFETY: pools outlive their outstanding slots, and this handle's is one.
                let pool = unsafe { pool.as_ref() };
                self.is_not_anothers(pool)?;
                self.may_go_of(pool.domain().is(&self.link.domain), &pool.offer())
            }
            Home::Foreign(pool) => {
                // SAFETY: as above.
                let pool = unsafe { pool.as_ref() };
                self.may_go_of(pool.domain.is(&self.link.domain), &pool.shape)
            }
        }
    }

    /// Checks that the receiver takes a pool of this domain's.
    pub(super) fn agree_inside(&self, pool: &OwnPool) -> Result<(), Error> {
        self.may_go_of(true, &pool.offer())
    }

    fn may_go_of(&self, ours: bool, offer: &Offer) -> Result<(), Error> {
        if !ours {
            return Err(super::others_buffer());
        }
        let Some(store) = &self.store else {
            return Ok(());
        };
        if let Some(by) = store.is_removed(offer.pool) {
            return Err(removed(offer.pool, by));
        }
        if !store.levels.has(offer.trust) {
            let text = format!(
                "the receiver does not take buffers of a pool of level `{}` (ChannelOptions::accept_trust, and snapshots for `none`)",
                offer.trust.name()
            );
            return Err(Error::new(ErrorKind::ChannelTrust, text));
        }
        match store.agrees(offer) {
            true => Ok(()),
            false => {
                let text = format!(
                    "the receiver does not take pool {} (ChannelOptions::accept_pools)",
                    offer.pool
                );
                Err(Error::new(ErrorKind::Refused, text))
            }
        }
    }

    /// Leaves buffers to a receiver of this process, which go with it.
    pub(crate) fn leave_inside(&self, buffers: impl IntoIterator<Item = Buffer>) {
        if let Some(store) = &self.store {
            let bodies = buffers.into_iter().map(Body::Buffer);
            bodies.for_each(|body| store.put(body));
        }
    }

    /// Sends a body if everything is `ready` for it.
    pub(super) fn put_inside<T: Into<Body>>(
        &mut self,
        ready: Result<(), Error>,
        body: T,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, SendError<T>> {
        if let Err(error) = ready {
            return self.not_sent(error, body);
        }
        if let Some(store) = &self.store {
            store.put(body.into());
        }
        let line = [OP_INSIDE | self.skippable, word, 0, 0, 0, 0, 0, 0];
        let _ = self.producer.push(self.lines, how, line);
        if how == Publish::SeqCst {
            self.wake();
        }
        Ok(Outcome::Sent)
    }

    /// Takes the receiver's next answer, from the ring or, after all of these, a late one.
    pub(super) fn take_reply_inside(&mut self) -> Result<Option<Message>, Error> {
        // The store is asked before the ring is looked at: late answers come after all answers of the ring.
        let late = self.store.as_ref().filter(|store| store.has_late());
        let mut replies = lock(&self.link.replies);
        let Some(words) = replies.consumer.try_pop(self.link.their_lines()) else {
            return Ok(late.and_then(|store| store.take_late()));
        };
        self.link.ring.give_back(replies.consumer.head());
        drop(replies);
        let back = || self.store.as_ref().and_then(|store| store.take_back());
        let body = match words[0] {
            OP_INSIDE => back().map(Body::BufferMut),
            _ => match descriptor::parse(&words)? {
                Descriptor::Inline(inline) => Some(Body::Inline(inline)),
                Descriptor::Released(id) => Some(Body::Released(id)),
                Descriptor::Reference(..) | Descriptor::Removed(_) => None,
            },
        };
        let word = words[1];
        Ok(body.map(|body| Message { word, body }))
    }

    /// Drops the buffers that were passed back: no caller asks for them any more.
    pub(super) fn drop_passed(&self) {
        let next = || self.store.as_ref().and_then(|store| store.take_back());
        while let Some(BufferMut { .. }) = next() {}
    }

    /// Gives up, and tells a receiver of this process why.
    pub(in crate::link) fn end_because(self, why: Error) {
        self.link.say_why(why);
        self.link.ring.end(Ending::Abandoned);
    }

    /// Returns how many messages the receiver has taken.
    pub(in crate::link) fn taken(&mut self) -> u64 {
        // An end of this process never lies.
        let _ = self.producer.look(self.link.ring.their_head());
        self.producer.known_head()
    }

    /// Returns the receiver's place on another machine: as `HOST:PORT`, or in words.
    pub(in crate::link) fn place(&self) -> Option<&str> {
        self.store.as_ref()?.place.as_deref()
    }
}
