//! Receiving from a sender in this process: the handle itself comes over.

use super::Receiver;
use super::ahead::Ahead;
use crate::error::Error;
use crate::link::descriptor::{self, Descriptor};
use crate::link::message::{Body, Message};
use crate::link::shared::LinkShared;
use crate::link::store::{OP_INSIDE, Store};
use crate::options::ChannelOptions;
use std::sync::Arc;

impl Receiver {
    /// Makes the receiving end of [`inside::pair`](crate::link::inside::pair).
    pub(in crate::link) fn inside(
        link: Arc<LinkShared>,
        options: &ChannelOptions,
        store: Arc<Store>,
    ) -> Receiver {
        // Nothing is copied on the way: another handle of the sent buffer comes, or the bytes are here already.
        let mut receiver = Receiver::with(link, options, None);
        receiver.store = Some(store);
        receiver
    }

    /// Takes the handle that a line of this process announces.
    pub(super) fn take_inside(&mut self, words: &[u64; 8]) -> Option<Body> {
        let store = self.store.as_ref().filter(|_| words[0] == OP_INSIDE)?;
        store.take()
    }

    /// Keeps lines from here on: only [`give_back_to`](Receiver::give_back_to) gives them back to the sender.
    pub(in crate::link) fn hold_lines(&mut self) {
        self.ahead = Ahead::Held;
    }

    /// Takes the next message, and keeps its line.
    pub(super) fn take_held(&mut self) -> Result<Option<Message>, Error> {
        let mut words = match self.consumer.try_pop(self.lines) {
            Some(words) => words,
            None => {
                self.link.domain.catch_up();
                if !self.link.their_closed() {
                    return Ok(None);
                }
                match self.consumer.try_pop(self.lines) {
                    Some(words) => words,
                    None => return Err(self.all_taken()),
                }
            }
        };
        // A carrier brings everything.
        descriptor::take_skippable(&mut words);
        let body = match words[0] {
            OP_INSIDE => self.take_inside(&words),
            _ => match descriptor::parse(&words) {
                Ok(Descriptor::Inline(inline)) => Some(Body::Inline(inline)),
                _ => None,
            },
        };
        let word = words[1];
        Ok(body.map(|body| Message { word, body }))
    }

    /// Gives so many lines, from the first on, back to the sender.
    pub(in crate::link) fn give_back_to(&mut self, lines: u64) {
        self.link.ring.give_back(lines.min(self.consumer.head()));
        self.link.fence_then_notify();
    }

    /// Takes nothing any more, and tells a sender of this process why.
    pub(in crate::link) fn end_because(self, why: Error) {
        self.link.say_why(why);
    }

    pub(in crate::link) fn store(&self) -> Option<&Store> {
        self.store.as_deref()
    }

    /// Returns the sender's place on another machine: as `HOST:PORT`, or in words.
    pub(in crate::link) fn place(&self) -> Option<&str> {
        self.store.as_ref()?.place.as_deref()
    }
}
