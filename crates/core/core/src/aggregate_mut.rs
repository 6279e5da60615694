//! Aggregates whose pieces are their holder's alone: they are moved as one message.

use crate::aggregate::{Aggregate, insert};
use crate::buffer::BufferMut;
use crate::error::SendError;
use crate::pool::Pool;
use std::collections::VecDeque;
use std::io;

/// A list of buffers that no other handle has. [`Sender::send`](crate::Sender::send) gives all of them away as one message: all or none. The receiver gets
/// [`Body::AggregateMut`](crate::Body::AggregateMut), in which each piece is as a [`BufferMut`] that was sent by itself.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{AggregateMut, Domain, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// let mut all = AggregateMut::new();
/// all.push_back(pool.copy(b"a header, ")?)?;
/// all.push_back(pool.copy(b"a body")?)?;
/// assert_eq!(all.freeze().to_vec(), b"a header, a body");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct AggregateMut {
    pieces: VecDeque<BufferMut>,
    pub(crate) list_pool: Option<Pool>,
}

impl AggregateMut {
    /// Makes an empty aggregate.
    pub fn new() -> AggregateMut {
        AggregateMut::default()
    }

    pub(crate) fn from_pieces(pieces: Vec<BufferMut>) -> AggregateMut {
        AggregateMut {
            pieces: pieces.into(),
            list_pool: None,
        }
    }

    /// Adds a piece at the end.
    ///
    /// # Errors
    /// `BadArgument` with more than [`MAX_PIECES`](crate::MAX_PIECES) pieces; the piece comes back.
    pub fn push_back(&mut self, piece: BufferMut) -> Result<(), SendError<BufferMut>> {
        let end = self.pieces.len();
        insert(&mut self.pieces, end, piece)
    }

    /// Returns the pieces, in order.
    pub fn pieces(&self) -> &VecDeque<BufferMut> {
        &self.pieces
    }

    /// Returns the pieces in order, for writing.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = &mut BufferMut> {
        self.pieces.iter_mut()
    }

    /// Takes the aggregate apart into its pieces.
    pub fn into_pieces(self) -> VecDeque<BufferMut> {
        self.pieces
    }

    /// Ends writing. The pieces of the frozen aggregate can be shared.
    pub fn freeze(self) -> Aggregate {
        let pieces = self.pieces.into_iter().map(BufferMut::freeze);
        let mut shared = Aggregate::from_pieces(pieces.collect());
        if let Some(pool) = &self.list_pool {
            shared.set_list_pool(pool);
        }
        shared
    }

    /// Sets the pool whose memory holds the list while it travels. Default: the pool of the first piece that is this
    /// domain's own.
    pub fn set_list_pool(&mut self, pool: &Pool) {
        self.list_pool = Some(pool.clone());
    }

    /// Returns the total bytes of all pieces.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(BufferMut::len).sum()
    }

    /// Returns whether the aggregate has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes all bytes; see [`Buffer::write_to`](crate::Buffer::write_to). Takes little memory, whatever the sender says.
    ///
    /// # Errors
    /// An error of `to`. It blocks as long as `to` does.
    pub(crate) fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        self.pieces.iter().try_for_each(|piece| piece.write_to(to))
    }

    /// Returns a private copy of all bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.pieces
            .iter()
            .for_each(|piece| all.extend(piece.to_vec()));
        all
    }
}
