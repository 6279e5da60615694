//! Pieces of buffers in an order of their own: put in and taken out anywhere. What aggregates of handles and those of
//! numbers have in common.

use crate::{Error, Kind};
use serde::{Deserialize, Serialize};

/// The most pieces of an aggregate.
pub const MAX_PIECES: usize = 64;

/// A piece of an aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Which of the aggregate's buffers.
    pub buffer: u32,
    /// Where in it the piece begins, bytes.
    pub offset: u64,
    /// Its length, bytes; may be 0.
    pub len: u64,
}

impl Piece {
    pub(crate) fn is_inside(&self, bytes: usize) -> bool {
        let end = self.offset.checked_add(self.len);
        end.is_some_and(|end| end <= bytes as u64)
    }
}

/// Buffers, and pieces of them by their numbers. Each buffer is in some piece.
#[derive(Clone, Debug)]
pub(crate) struct List<B> {
    pub buffers: Vec<B>,
    pub pieces: Vec<Piece>,
}

impl<B> Default for List<B> {
    fn default() -> List<B> {
        List {
            buffers: Vec::new(),
            pieces: Vec::new(),
        }
    }
}

impl<B> List<B> {
    /// Is there a place `at`, and room for one more?
    pub(crate) fn has_place(&self, at: usize) -> bool {
        at <= self.pieces.len() && self.pieces.len() < MAX_PIECES
    }

    /// A piece of a further buffer, which has this many bytes, in front of the piece `at`; gives its number.
    pub(crate) fn insert(
        &mut self,
        at: usize,
        buffer: B,
        (offset, len): (u64, u64),
        bytes: usize,
    ) -> Result<u32, B> {
        let number = u32::try_from(self.buffers.len()).unwrap_or(u32::MAX);
        let piece = Piece {
            buffer: number,
            offset,
            len,
        };
        if !self.has_place(at) || !piece.is_inside(bytes) {
            return Err(buffer);
        }
        self.buffers.push(buffer);
        self.pieces.insert(at, piece);
        Ok(number)
    }

    /// As `insert`, of a buffer that is in it already, and has this many bytes.
    pub(crate) fn insert_again(
        &mut self,
        at: usize,
        piece: Piece,
        bytes: usize,
    ) -> Result<(), Error> {
        let known = (piece.buffer as usize) < self.buffers.len();
        if !known || !self.has_place(at) || !piece.is_inside(bytes) {
            return Err(Kind::BadArgument.into());
        }
        self.pieces.insert(at, piece);
        Ok(())
    }

    /// Takes a piece out; with the last piece of a buffer the buffer comes out too, and those after it count one less.
    pub(crate) fn remove(&mut self, at: usize) -> Result<Option<B>, Error> {
        if at >= self.pieces.len() {
            return Err(Kind::BadArgument.into());
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

    /// Length of all pieces together, bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        let lengths = self.pieces.iter().map(|piece| piece.len);
        lengths.fold(0, u64::saturating_add)
    }
}
