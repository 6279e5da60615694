//! Receiving from a sender in this process: the handle itself comes over.

use super::Receiver;
use super::ahead::Ahead;
use crate::buffer::BufferMut;
use crate::error::{Error, ErrorKind, SendError};
use crate::link::descriptor::{self, Descriptor};
use crate::link::message::{Body, Message};
use crate::link::shared::LinkShared;
use crate::link::store::{OP_INSIDE, Store};
use crate::options::ChannelOptions;
use std::sync::Arc;
use tranship_ring::Publish;

impl Receiver {
    /// An end of [`inside::pair`](crate::link::inside::pair).
    pub(in crate::link) fn inside(
        link: Arc<LinkShared>,
        options: &ChannelOptions,
        store: Arc<Store>,
    ) -> Receiver {
        // Nothing is copied on the way: it is another handle of what was sent, or is there already.
        let mut receiver = Receiver::with(link, options, None);
        receiver.store = Some(store);
        receiver
    }

    /// What a line names that only says that something is there.
    pub(super) fn take_inside(&mut self, words: [u64; 8]) -> Option<Message> {
        let store = self.store.as_ref().filter(|_| words[0] == OP_INSIDE)?;
        let body = store.take()?;
        let word = words[1];
        Some(Message { word, body })
    }

    /// From here on lines are the sender's again only when [`give_back_to`](Receiver::give_back_to) says so.
    pub(in crate::link) fn hold_lines(&mut self) {
        self.ahead = Ahead::Held;
    }

    /// The next message, whose line is kept.
    pub(super) fn take_held(&mut self) -> Result<Option<Message>, Error> {
        let words = match self.consumer.try_pop(self.lines) {
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
        let mut words = words;
        descriptor::take_skippable(&mut words);
        if words[0] != OP_INSIDE {
            let word = words[1];
            return match descriptor::parse(&words) {
                Ok(Descriptor::Inline(inline)) => Ok(Some(Message {
                    word,
                    body: Body::Inline(inline),
                })),
                _ => Ok(None),
            };
        }
        Ok(self.take_inside(words))
    }

    /// So many lines, from the first on, are the sender's again.
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

    /// Passes a buffer back to a sender of this process.
    pub(super) fn pass_inside(
        &mut self,
        buf: BufferMut,
        word: u64,
    ) -> Result<(), SendError<BufferMut>> {
        let store = match &self.store {
            Some(store) if !store.carried => Arc::clone(store),
            _ => {
                let text = "the bytes of this buffer were carried here, and are in a pool of this domain: drop it, there is nothing to give back";
                return Err(SendError::new(
                    Error::new(ErrorKind::BufferNotOwned, text),
                    buf,
                ));
            }
        };
        if let Err(error) = self.sender_is_there().and_then(|()| self.control_room()) {
            return Err(SendError::new(error, buf));
        }
        store.put_back(buf);
        let line = [OP_INSIDE, word, 0, 0, 0, 0, 0, 0];
        let _ = self.control.push(self.control_lines, Publish::SeqCst, line);
        self.link.notify();
        Ok(())
    }

    /// Where the sender is, if that is another machine: as `HOST:PORT`, or in words.
    pub(in crate::link) fn place(&self) -> Option<&str> {
        self.store.as_ref()?.place.as_deref()
    }
}
