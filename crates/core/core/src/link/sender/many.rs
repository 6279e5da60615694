//! Several buffers in one go: a batch, or an aggregate in one message.

use super::Sender;
use crate::aggregate::{self, Aggregate};
use crate::buffer::Buffer;
use crate::error::SendError;
use crate::link::descriptor::Carries;
use crate::link::message::Body;
use crate::options::Outcome;
use tranship_ring::Publish;

impl Sender {
    /// Sends several buffers with one wake-up. Those that could not be sent come back, in order; what is dropped [is counted](crate::Status::dropped).
    ///
    /// # Errors
    /// As [`send`](Sender::send), which also says how it blocks. What is before those that come back was sent.
    pub fn send_many(
        &mut self,
        bufs: impl IntoIterator<Item = Buffer>,
    ) -> Result<(), SendError<Vec<Buffer>>> {
        let mut bufs = bufs.into_iter();
        let mut published = false;
        while let Some(buf) = bufs.next() {
            if self.store.is_some() {
                match self.send_any(buf, 0) {
                    Ok(_) => continue,
                    Err(failed) => {
                        let rest = |buf| std::iter::once(buf).chain(bufs).collect();
                        return Err(failed.map(rest));
                    }
                }
            }
            let room = self.ready_for(buf.handle()).and_then(|()| {
                if published && self.producer.known_room(self.lines) == 0 {
                    self.fence_and_wake(); // before waiting, the receiver must know what there is
                }
                self.make_room(1)?;
                self.seal(buf.handle())
            });
            if let Err(error) = room {
                if published {
                    self.fence_and_wake();
                }
                return match self.not_sent(error, buf) {
                    Ok(_) => continue,
                    Err(failed) => {
                        Err(failed.map(|buf| std::iter::once(buf).chain(bufs).collect()))
                    }
                };
            }
            self.publish(buf, Carries::Buffer, 0, Publish::Release);
            published = true;
        }
        if published {
            self.fence_and_wake();
        }
        Ok(())
    }

    /// Shares all pieces of an aggregate as one message.
    pub(in crate::link) fn share_all(
        &mut self,
        aggregate: Aggregate,
        word: u64,
    ) -> Result<Outcome, SendError<Aggregate>> {
        if self.store.is_some() {
            let handles = aggregate.pieces().iter().map(|piece| piece.handle());
            return match self.ready_inside(handles) {
                Ok(()) => {
                    self.put_inside(Body::Aggregate(aggregate), word);
                    Ok(Outcome::Sent)
                }
                Err(error) => self.not_sent(error, aggregate),
            };
        }
        let pieces = aggregate.pieces().iter().map(Buffer::handle);
        let list = match aggregate::make_list(aggregate.list_pool(), pieces, self.patience) {
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
            self.note(piece.handle(), false);
        }
        tranship_ledger::send_all(
            self,
            aggregate.pieces().iter().map(Buffer::handle),
            Sender::words_of,
            |sender| sender.publish(list, Carries::Aggregate, word, Publish::SeqCst),
            |_| {},
            super::reached_of_piece,
        );
        Ok(Outcome::Sent)
    }
}
