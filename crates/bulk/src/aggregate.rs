//! Lists of pieces of buffers: built, cut and joined without copying, sent and received as one.

use crate::buffer::sealed::Sealed;
use crate::channel::{Channel, Event};
use crate::domain::Shared;
use crate::{Buffer, Code, Completion, Meta, ReadBuffer, Readable, Refused};
use std::sync::Arc;
use tranship_region::{Guarded, View};
use tranship_sys::map::Access;

pub use crate::domain::{MAX_PIECES, Piece};

/// Pieces of buffers, in an order of their own. It has the buffers: of those that are owned, or of copies that were received.
///
/// A buffer may be in several pieces. Dropping it lets its buffers go.
#[derive(Debug)]
pub struct Aggregate<B: Readable = Buffer> {
    buffers: Vec<B>,
    pieces: Vec<Piece>,
}

impl<B: Readable> Default for Aggregate<B> {
    fn default() -> Aggregate<B> {
        Aggregate::new()
    }
}

impl<B: Readable> Aggregate<B> {
    /// Of nothing.
    #[must_use]
    pub fn new() -> Aggregate<B> {
        Aggregate {
            buffers: Vec::new(),
            pieces: Vec::new(),
        }
    }

    pub(crate) fn of(buffers: Vec<B>, pieces: Vec<Piece>) -> Aggregate<B> {
        Aggregate { buffers, pieces }
    }

    /// The pieces, in their order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The buffers, as [`Piece::buffer`] counts them.
    #[must_use]
    pub fn buffers(&self) -> &[B] {
        &self.buffers
    }

    /// To be written, where they are owned.
    pub fn buffers_mut(&mut self) -> &mut [B] {
        &mut self.buffers
    }

    /// Length of all pieces together, bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Adds a piece of a further buffer in front of the piece `at`, or at the end; gives the buffer's number.
    /// [`Code::InvalidArgument`] for a piece that is not in the buffer, a place that is not in the list, a buffer of another
    /// domain, and above [`MAX_PIECES`].
    pub fn insert(
        &mut self,
        at: usize,
        buffer: B,
        offset: u64,
        len: u64,
    ) -> Result<u32, Refused<B>> {
        let number = u32::try_from(self.buffers.len()).unwrap_or(u32::MAX);
        let piece = Piece {
            buffer: number,
            offset,
            len,
        };
        let (domain, _) = buffer.place();
        let same = |first: &B| Arc::ptr_eq(first.place().0, domain);
        let fits = at <= self.pieces.len()
            && self.pieces.len() < MAX_PIECES
            && piece.is_inside(bytes_of(&buffer))
            && self.buffers.first().is_none_or(same);
        if !fits {
            let code = Code::InvalidArgument;
            return Err(Refused { code, back: buffer });
        }
        self.buffers.push(buffer);
        self.pieces.insert(at, piece);
        Ok(number)
    }

    /// As [`Aggregate::insert`], of a buffer that is in it already.
    pub fn insert_again(&mut self, at: usize, piece: Piece) -> Result<(), Code> {
        let found = self.buffers.get(piece.buffer as usize);
        let inside = found.is_some_and(|buffer| piece.is_inside(bytes_of(buffer)));
        if !inside || at > self.pieces.len() || self.pieces.len() >= MAX_PIECES {
            return Err(Code::InvalidArgument);
        }
        self.pieces.insert(at, piece);
        Ok(())
    }

    /// A whole buffer at the end.
    pub fn push(&mut self, buffer: B) -> Result<u32, Refused<B>> {
        let len = bytes_of(&buffer) as u64;
        self.insert(self.pieces.len(), buffer, 0, len)
    }

    /// Takes a piece out; with the last piece of a buffer the buffer comes out too, and those after it count one less.
    pub fn remove(&mut self, at: usize) -> Result<Option<B>, Code> {
        if at >= self.pieces.len() {
            return Err(Code::InvalidArgument);
        }
        let gone = self.pieces.remove(at).buffer;
        if self.pieces.iter().any(|piece| piece.buffer == gone) {
            return Ok(None);
        }
        for piece in &mut self.pieces {
            piece.buffer -= u32::from(piece.buffer > gone);
        }
        Ok(Some(self.buffers.remove(gone as usize)))
    }

    /// The buffers again, without the pieces.
    #[must_use]
    pub fn into_buffers(self) -> Vec<B> {
        self.buffers
    }

    /// All its bytes, one piece after the other.
    pub fn to_vec(&self) -> Result<Vec<u8>, Code> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            let (domain, at) = self.buffers[piece.buffer as usize].place();
            let (offset, len) = (as_usize(piece.offset)?, as_usize(piece.len)?);
            let begun = out.len();
            out.resize(begun + len, 0);
            domain.read_raw(at, offset, &mut out[begun..])?;
        }
        Ok(out)
    }

    /// Shows its bytes in one contiguous range, for reading. Each piece must be whole pages of its buffer
    /// ([`Code::InvalidArgument`]), and the memory must be the pool's own ([`Code::BufferMap`]: `none` pools whose buffers are
    /// sealed each by itself cannot). As long as it is shown none of the buffers can be sent, copied or given back:
    /// [`Code::BufferState`].
    pub fn map(&self) -> Result<Mapping, Code> {
        let page = tranship_sys::page_size() as u64;
        let whole = |piece: &Piece| {
            piece.offset.is_multiple_of(page) && piece.len.is_multiple_of(page) && piece.len > 0
        };
        let (Some(first), true) = (self.buffers.first(), self.pieces.iter().all(whole)) else {
            return Err(Code::InvalidArgument);
        };
        let len = as_usize(self.len_bytes())?;
        let window = Guarded::reserve(len, as_usize(page)?).map_err(|_| Code::Memory)?;
        let mut at = 0;
        for piece in &self.pieces {
            let (domain, (id, index)) = self.buffers[piece.buffer as usize].place();
            let (fd, begin) = {
                let state = domain.lock();
                let (pool, slot) = state.slot(id, index)?;
                if slot.by_state() == crate::Access::None {
                    return Err(Code::BufferInvalid);
                }
                let fd = pool.whole().ok_or(Code::BufferMap)?;
                (fd, pool.memory.offset(index) as u64 + piece.offset)
            };
            let len = as_usize(piece.len)?;
            let placed = window.place_shared(at, &*fd, Access::Read, len, begin);
            placed.map_err(|_| Code::BufferMap)?;
            at += len;
        }
        let domain = Arc::clone(first.place().0);
        let buffers: Vec<_> = self.buffers.iter().map(|buffer| buffer.place().1).collect();
        domain.mapped(&buffers, true);
        Ok(Mapping {
            domain,
            buffers,
            window,
        })
    }
}

fn bytes_of(buffer: &impl Sealed) -> usize {
    let (domain, (id, index)) = buffer.place();
    let state = domain.lock();
    state
        .slot(id, index)
        .map_or(0, |(pool, _)| pool.memory.buffer_bytes())
}

fn as_usize(n: u64) -> Result<usize, Code> {
    usize::try_from(n).map_err(|_| Code::InvalidArgument)
}

/// An aggregate's bytes in one range.
#[derive(Debug)]
pub struct Mapping {
    domain: Arc<Shared>,
    buffers: Vec<(u64, u32)>,
    window: Guarded,
}

impl Mapping {
    /// The bytes; others may change them where the pool's level lets them.
    pub fn view(&self) -> Result<View<'_>, Code> {
        let all = self.window.view(0, self.window.len());
        all.map_err(|_| Code::BufferInvalid)
    }

    /// Where they begin.
    #[must_use]
    pub fn address(&self) -> usize {
        self.window.base().addr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.domain.mapped(&self.buffers, false);
    }
}

impl Channel {
    /// Gives all buffers of the aggregate to the sink, as one operation: on an error nothing has changed, and it comes back.
    /// [`Code::InvalidArgument`] without a piece.
    pub fn move_aggregate(
        &self,
        mut aggregate: Aggregate,
        meta: &[u8],
    ) -> Result<Completion, Refused<Aggregate>> {
        match self.send_pieces(&aggregate, false, meta) {
            Ok(done) => {
                for buffer in &mut aggregate.buffers {
                    buffer.live = false;
                }
                Ok(done)
            }
            Err(code) => Err(Refused {
                code,
                back: aggregate,
            }),
        }
    }

    /// Lets the sink read all buffers of the aggregate, as one operation: on an error nothing has changed.
    pub fn copy_aggregate<B: Readable>(
        &self,
        aggregate: &Aggregate<B>,
        meta: &[u8],
    ) -> Result<Completion, Code> {
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
    ) -> Result<Completion, Code> {
        if let Some(first) = aggregate.buffers.first() {
            self.same(first.place().0)?;
        }
        let buffers: Vec<_> = aggregate.buffers.iter().map(|b| b.place().1).collect();
        self.domain
            .aggregate_raw(self.id, copies, &buffers, &aggregate.pieces, meta)
    }
}
