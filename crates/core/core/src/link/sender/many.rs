//! Sends of several buffers: a batch of messages, or an aggregate in one message.

use super::Sender;
use super::publish::reached_of_piece;
use crate::aggregate::{Aggregate, make_list};
use crate::buffer::{Buffer, Handle};
use crate::error::{Error, ErrorKind, SendError};
use crate::link::descriptor::Carries;
use crate::link::payload::Payload;
use crate::options::{Outcome, Patience};
use crate::pool::Pool;
use std::time::Duration;
use tranship_ring::Publish;

impl Sender {
    /// Sends several payloads with one fence and at most one wake-up: returns how many were sent. Payloads that are dropped
    /// [are counted](crate::Status::dropped).
    ///
    /// Waits as [`send`](Sender::send) does. The receiver is woken before the sender waits for room. Do not allocate a payload in the iterator out
    /// of memory that an earlier payload of the same call holds: the receiver may not know of that payload yet.
    ///
    /// # Errors
    /// As [`send`](Sender::send). The payloads that were not sent come back, in order. Those before them were sent.
    pub fn send_many<P: Payload>(
        &mut self,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<usize, SendError<Vec<P::Unsent>>> {
        let mut payloads = payloads.into_iter();
        let mut batch = Batch::of(self);
        let mut sent = 0;
        while let Some(payload) = payloads.next() {
            match batch.send(payload) {
                Ok(Outcome::Sent) => sent += 1,
                Ok(Outcome::Dropped) => {}
                Err(failed) => {
                    batch.tell();
                    let rest = |first| std::iter::once(first).chain(payloads).map(P::unsent);
                    return Err(failed.map(|first| rest(first).collect()));
                }
            }
        }
        Ok(sent)
    }

    /// Sends as many payloads as there is room for, as [`send_many`](Sender::send_many) does, without waiting.
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send). The payloads that were not sent come back, in order: with `Full` those for which there was no room.
    pub fn try_send_many<P: Payload>(
        &mut self,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<usize, SendError<Vec<P::Unsent>>> {
        self.within(Duration::ZERO, |sender| sender.send_many(payloads))
    }

    /// Makes the list of an aggregate's pieces. The memory may be with a receiver that was not told of the messages before this one.
    pub(super) fn list_of(
        &self,
        pool: Option<&Pool>,
        pieces: impl Iterator<Item = Handle> + Clone,
        how: Publish,
    ) -> Result<Buffer, Error> {
        if how == Publish::Release {
            match make_list(pool, pieces.clone(), Patience::AtMost(Duration::ZERO)) {
                Err(error) if error == ErrorKind::OutOfMemory => self.fence_and_wake(),
                done => return done.map_err(not_stored),
            }
        }
        make_list(pool, pieces, self.patience).map_err(not_stored)
    }

    /// Makes everything ready for a message of several pieces. The seals are last.
    pub(super) fn ready_for_all(
        &mut self,
        pieces: impl Iterator<Item = Handle> + Clone,
        list: Handle,
    ) -> Result<(), Error> {
        let mut all = pieces.clone().chain([list]);
        all.try_for_each(|piece| self.ready_for(piece))?;
        self.make_room(1)?;
        self.seal_all(pieces)
    }

    /// Shares all pieces of an aggregate as one message.
    pub(in crate::link) fn share_all(
        &mut self,
        aggregate: Aggregate,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, SendError<Aggregate>> {
        if self.store.is_some() {
            let ready = self.ready_inside(aggregate.pieces().iter().map(Buffer::handle));
            return self.put_inside(ready, aggregate, word, how);
        }
        let pieces = aggregate.pieces().iter().map(Buffer::handle);
        let list = match self.list_of(aggregate.list_pool(), pieces.clone(), how) {
            Ok(list) => list,
            Err(error) => return Err(SendError::new(error, aggregate)),
        };
        if let Err(error) = self.ready_for_all(pieces, list.handle()) {
            return self.not_sent(error, aggregate);
        }
        for piece in aggregate.pieces() {
            self.note(piece.handle(), false, word);
        }
        tranship_ledger::send_all(
            self,
            aggregate.pieces().iter().map(Buffer::handle),
            Sender::words_of,
            |sender| sender.publish(list, Carries::Aggregate, word, how),
            |_| {},
            reached_of_piece,
        );
        Ok(Outcome::Sent)
    }
}

fn not_stored(error: Error) -> Error {
    error.context("the list of the aggregate could not be stored")
}

/// Messages of which the receiver is told together, when this is dropped.
struct Batch<'a> {
    sender: &'a mut Sender,
    /// Whether a message was published of which the receiver was not told.
    published: bool,
}

impl Batch<'_> {
    fn of(sender: &mut Sender) -> Batch<'_> {
        Batch {
            sender,
            published: false,
        }
    }

    #[inline(always)]
    fn send<P: Payload>(&mut self, payload: P) -> Result<Outcome, SendError<P>> {
        let sender = &mut *self.sender;
        if self.published && sender.producer.known_room(sender.lines) == 0 {
            self.tell(); // it has to know what there is before it is waited for
        }
        let sent = payload.go(self.sender, 0, Publish::Release)?;
        self.published |= sent == Outcome::Sent;
        Ok(sent)
    }

    fn tell(&mut self) {
        if std::mem::take(&mut self.published) {
            self.sender.fence_and_wake();
        }
    }
}

impl Drop for Batch<'_> {
    // Also where the caller's iterator panics.
    fn drop(&mut self) {
        self.tell();
    }
}
