//! Lists of pieces of buffers: built, cut and joined without copying, sent and received as one.

use crate::buffer::sealed::Sealed;
use crate::channel::{Channel, Event};
use crate::list::List;
use crate::{
    Buffer, Completion, Error, Kind, Mapping, Meta, Piece, ReadBuffer, Readable, SendError,
};
use std::sync::Arc;

/// Pieces of buffers, in an order of their own. It has the buffers: of those that are owned, or of copies that were received.
///
/// A buffer may be in several pieces. Dropping it lets its buffers go.
#[derive(Debug)]
pub struct Aggregate<B: Readable = Buffer>(List<B>);

impl<B: Readable> Default for Aggregate<B> {
    fn default() -> Aggregate<B> {
        Aggregate::new()
    }
}

impl<B: Readable> Aggregate<B> {
    /// Of nothing.
    #[must_use]
    pub fn new() -> Aggregate<B> {
        Aggregate(List::default())
    }

    pub(crate) fn of(buffers: Vec<B>, pieces: Vec<Piece>) -> Aggregate<B> {
        Aggregate(List { buffers, pieces })
    }

    /// The pieces, in their order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.0.pieces
    }

    /// The buffers, as [`Piece::buffer`] counts them.
    #[must_use]
    pub fn buffers(&self) -> &[B] {
        &self.0.buffers
    }

    /// To be written, where they are owned.
    pub fn buffers_mut(&mut self) -> &mut [B] {
        &mut self.0.buffers
    }

    /// Length of all pieces together, bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    /// Adds a piece of a further buffer in front of the piece `at`, or at the end; gives the buffer's number.
    /// [`Kind::BadArgument`] for a piece that is not in the buffer, a place that is not in the list, a buffer of another
    /// domain, and above [`MAX_PIECES`](crate::MAX_PIECES).
    pub fn insert(
        &mut self,
        at: usize,
        buffer: B,
        offset: u64,
        len: u64,
    ) -> Result<u32, SendError<B>> {
        let (domain, _) = buffer.place();
        let same = |first: &B| Arc::ptr_eq(first.place().0, domain);
        let inserted = match self.0.buffers.first().is_none_or(same) {
            true => {
                let bytes = bytes_of(&buffer);
                self.0.insert(at, buffer, (offset, len), bytes)
            }
            false => Err(buffer),
        };
        inserted.map_err(|buffer| SendError::new(Kind::BadArgument, buffer))
    }

    /// As [`Aggregate::insert`], of a buffer that is in it already.
    pub fn insert_again(&mut self, at: usize, piece: Piece) -> Result<(), Error> {
        let found = self.0.buffers.get(piece.buffer as usize);
        let bytes = found.map_or(0, bytes_of);
        self.0.insert_again(at, piece, bytes)
    }

    /// A whole buffer at the end.
    pub fn push(&mut self, buffer: B) -> Result<u32, SendError<B>> {
        let len = bytes_of(&buffer) as u64;
        self.insert(self.pieces().len(), buffer, 0, len)
    }

    /// Takes a piece out; with the last piece of a buffer the buffer comes out too, and those after it count one less.
    pub fn remove(&mut self, at: usize) -> Result<Option<B>, Error> {
        self.0.remove(at)
    }

    /// The buffers again, without the pieces.
    #[must_use]
    pub fn into_buffers(self) -> Vec<B> {
        self.0.buffers
    }

    /// All its bytes, one piece after the other.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        match self.0.buffers.first() {
            Some(first) => first.place().0.read_pieces(&self.places(), self.pieces()),
            None => Ok(Vec::new()),
        }
    }

    /// Shows its bytes in one contiguous range, for reading. Each piece must be whole pages of its buffer
    /// ([`Kind::BadArgument`]). As long as it is shown none of the buffers can be sent, copied or given back
    /// ([`Kind::BufferState`]); one that is let go is so when the mapping is. A pool that was never assigned has no level yet,
    /// and may get other memory with it: [`Kind::PoolNotAssigned`].
    ///
    /// In a `none` pool whose buffers are sealed each by itself, what came from elsewhere and is owned is copied first.
    pub fn map(&self) -> Result<Mapping, Error> {
        let first = self.0.buffers.first().ok_or(Kind::BadArgument)?;
        Mapping::new(first.place().0, &self.places(), self.pieces())
    }

    fn places(&self) -> Vec<(u64, u32)> {
        self.0.buffers.iter().map(|b| b.place().1).collect()
    }
}

fn bytes_of(buffer: &impl Sealed) -> usize {
    let (domain, at) = buffer.place();
    domain.lock().bytes_of(at)
}

impl Channel {
    /// Gives all buffers of the aggregate to the sink, as one operation: on an error nothing has changed, and it comes back.
    /// [`Kind::BadArgument`] without a piece.
    pub fn move_aggregate(
        &self,
        mut aggregate: Aggregate,
        meta: &[u8],
    ) -> Result<Completion, SendError<Aggregate>> {
        match self.send_pieces(&aggregate, false, meta) {
            Ok(done) => {
                for buffer in aggregate.buffers_mut() {
                    buffer.live = false;
                }
                Ok(done)
            }
            Err(error) => Err(SendError::new(error, aggregate)),
        }
    }

    /// Lets the sink read all buffers of the aggregate, as one operation: on an error nothing has changed.
    pub fn copy_aggregate<B: Readable>(
        &self,
        aggregate: &Aggregate<B>,
        meta: &[u8],
    ) -> Result<Completion, Error> {
        self.send_pieces(aggregate, true, meta)
    }

    /// The event of one that has arrived.
    pub(crate) fn aggregate(
        &self,
        copies: bool,
        buffers: Vec<(u64, u32)>,
        pieces: Vec<Piece>,
        meta: Meta,
    ) -> Event {
        let memory = |id| {
            let state = self.domain.lock();
            let pool = state.pools.get(&id)?;
            Some(Arc::clone(&pool.memory))
        };
        let domain = &self.domain;
        let all = buffers.into_iter().map(|at| (at, memory(at.0)));
        match copies {
            true => {
                let copy = |(at, memory)| ReadBuffer::new(domain, at, self.id, memory);
                Event::CopiedAll(Aggregate::of(all.map(copy).collect(), pieces), meta)
            }
            false => {
                let buffer = |(at, memory)| Buffer::new(domain, at, memory);
                Event::MovedAll(Aggregate::of(all.map(buffer).collect(), pieces), meta)
            }
        }
    }

    fn send_pieces<B: Readable>(
        &self,
        aggregate: &Aggregate<B>,
        copies: bool,
        meta: &[u8],
    ) -> Result<Completion, Error> {
        if let Some(first) = aggregate.buffers().first() {
            self.same(first.place().0)?;
        }
        let (buffers, pieces) = (aggregate.places(), aggregate.pieces());
        self.domain
            .aggregate_raw(self.id, copies, &buffers, pieces, meta)
    }
}
