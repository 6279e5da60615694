//! Sends of several buffers: a batch of messages, or an aggregate in one message.

use super::Sender;
use super::publish::reached_of_piece;
use crate::aggregate::{Aggregate, make_list};
use crate::buffer::{Buffer, Handle};
use crate::error::{Error, ErrorKind, SendError};
use crate::link::descriptor::Carries;
use crate::link::message::Body;
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
                done => return done,
            }
        }
        make_list(pool, pieces, self.patience)
    }

    /// Shares all pieces of an aggregate as one message.
    pub(in crate::link) fn share_all(
        &mut self,
        aggregate: Aggregate,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, SendError<Aggregate>> {
        if self.store.is_some() {
            let handles = aggregate.pieces().iter().map(|piece| piece.handle());
            return match self.ready_inside(handles) {
                Ok(()) => {
                    self.put_inside(Body::Aggregate(aggregate), word, how);
                    Ok(Outcome::Sent)
                }
                Err(error) => self.not_sent(error, aggregate),
            };
        }
        let pieces = aggregate.pieces().iter().map(Buffer::handle);
        let list = match self.list_of(aggregate.list_pool(), pieces, how) {
            Ok(list) => list,
            Err(error) => {
                let error = error.context("the list of the aggregate could not be stored");
                return Err(SendError::new(error, aggregate));
            }
        };
        let ready = aggregate
            .pieces()
            .iter()
            .chain([&list])
            .try_for_each(|piece| self.ready_for(piece.handle()))
            .and_then(|()| self.make_room(1))
            .and_then(|()| self.seal_all(aggregate.pieces().iter().map(Buffer::handle)));
        if let Err(error) = ready {
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
