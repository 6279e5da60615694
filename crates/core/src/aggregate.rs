//! Aggregates: pieces of several buffers, of several pools, as one message.
//!
//! The list of pieces is itself stored in a buffer (CBUFs, 2.2). Prepending and appending copy no bytes.

use crate::cbuf::{Cbuf, Home};
use crate::error::{AllocError, Violation};
use crate::link::Reference;
use crate::options::WhenFull;
use crate::pool::Pool;
use std::collections::VecDeque;
use std::io::IoSlice;
use tranship_proto::CbufId;

/// Most pieces of one aggregate.
pub const MAX_PIECES: usize = 4096;
const HEADER: usize = 8;
const PIECE: usize = 32;

/// A list of buffer parts that is sent, received and read as one.
#[derive(Clone, Debug, Default)]
pub struct Aggregate {
    pieces: VecDeque<Cbuf>,
    list_pool: Option<Pool>,
}

impl Aggregate {
    /// An empty one.
    pub fn new() -> Aggregate {
        Aggregate::default()
    }

    pub(crate) fn from_pieces(pieces: Vec<Cbuf>) -> Aggregate {
        Aggregate {
            pieces: pieces.into(),
            list_pool: None,
        }
    }

    /// Adds a piece at the end, without copying.
    ///
    /// # Panics
    /// With more than [`MAX_PIECES`] pieces.
    pub fn push_back(&mut self, piece: Cbuf) {
        assert!(
            self.pieces.len() < MAX_PIECES,
            "an aggregate has at most {MAX_PIECES} pieces"
        );
        self.pieces.push_back(piece);
    }

    /// Adds a piece in front (a header), without copying.
    ///
    /// # Panics
    /// With more than [`MAX_PIECES`] pieces.
    pub fn push_front(&mut self, piece: Cbuf) {
        assert!(
            self.pieces.len() < MAX_PIECES,
            "an aggregate has at most {MAX_PIECES} pieces"
        );
        self.pieces.push_front(piece);
    }

    /// Adds all pieces of another one at the end: aggregates do not nest.
    pub fn append(&mut self, other: Aggregate) {
        other
            .pieces
            .into_iter()
            .for_each(|piece| self.push_back(piece));
    }

    /// The pool whose memory holds the list while it travels. Default: the pool of the first piece that is
    /// this domain's own.
    pub fn set_list_pool(&mut self, pool: &Pool) {
        self.list_pool = Some(pool.clone());
    }

    /// Total bytes of all pieces.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Cbuf::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &VecDeque<Cbuf> {
        &self.pieces
    }

    /// The pieces as slices for `writev`, if all of them can be read as slices (see [`Cbuf::bytes`]).
    pub fn io_slices(&self) -> Option<Vec<IoSlice<'_>>> {
        self.pieces
            .iter()
            .map(|piece| piece.bytes().map(IoSlice::new))
            .collect()
    }

    /// A [`bytes::Buf`] over all pieces, if all of them can be read as slices.
    pub fn reader(&self) -> Option<AggregateReader<'_>> {
        let slices = self
            .pieces
            .iter()
            .map(Cbuf::bytes)
            .collect::<Option<VecDeque<_>>>()?;
        Some(AggregateReader { slices })
    }

    /// A private copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len()];
        let mut at = 0;
        for piece in &self.pieces {
            let _ = piece
                .view()
                .copy_to_slice(0, &mut all[at..at + piece.len()]); // as long as the view
            at += piece.len();
        }
        all
    }

    /// Stores the list in a buffer, as `docs/format.md` says; waits for memory as the link does for room.
    pub(crate) fn make_list(&self, when_full: WhenFull) -> Result<Cbuf, AllocError> {
        let alloc = |pool: &Pool, bytes| match when_full {
            WhenFull::Block => pool.alloc(bytes),
            WhenFull::BlockFor(time) => pool.alloc_timeout(bytes, time),
            WhenFull::Error | WhenFull::DropNew => pool.try_alloc(bytes),
        };
        let bytes = HEADER + PIECE * self.pieces.len();
        let mut list = match (
            &self.list_pool,
            self.pieces.iter().find_map(|piece| piece.own_pool()),
        ) {
            (Some(pool), _) => alloc(pool, bytes)?,
            (None, Some(pool)) => alloc(&pool, bytes)?,
            (None, None) => {
                return Err(AllocError::OutOfMemory {
                    need_bytes: bytes as u64,
                    live_bytes: 0,
                    quota_bytes: 0,
                    waited_ms: 0,
                });
            }
        };
        let count = u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
        list[..4].copy_from_slice(&count.to_le_bytes());
        list[4..8].fill(0);
        for (entry, piece) in list[HEADER..].chunks_exact_mut(PIECE).zip(&self.pieces) {
            let (offset, serial) = piece.place();
            entry[..8].copy_from_slice(&piece.id().0.to_le_bytes());
            entry[8..16].copy_from_slice(&offset.to_le_bytes());
            entry[16..24].copy_from_slice(&(piece.len() as u64).to_le_bytes());
            entry[24..28].copy_from_slice(&serial.to_le_bytes());
            entry[28..].fill(0);
        }
        Ok(list.freeze())
    }
}

/// Takes a received list apart. It is copied once; its length bounds the number of pieces.
pub(crate) fn parse_list(list: &Cbuf) -> Result<Vec<Reference>, Violation> {
    let bad = |pieces| Violation::Aggregate {
        pieces,
        list_bytes: list.len() as u64,
    };
    if list.len() < HEADER || list.len() > HEADER + PIECE * MAX_PIECES {
        return Err(bad(0));
    }
    let copy = list.to_vec();
    let word = |at: usize| u32::from_le_bytes([copy[at], copy[at + 1], copy[at + 2], copy[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | (u64::from(word(at + 4)) << 32);
    let count = word(0);
    if copy.len() != HEADER + PIECE * count as usize {
        return Err(bad(count));
    }
    Ok((0..count as usize)
        .map(|i| HEADER + PIECE * i)
        .map(|at| Reference {
            id: CbufId(long(at)),
            offset: long(at + 8),
            length: long(at + 16),
            serial: word(at + 24),
        })
        .collect())
}

/// Reads an aggregate front to back.
#[derive(Debug)]
pub struct AggregateReader<'a> {
    slices: VecDeque<&'a [u8]>,
}

impl bytes::Buf for AggregateReader<'_> {
    fn remaining(&self) -> usize {
        self.slices.iter().map(|s| s.len()).sum()
    }
    fn chunk(&self) -> &[u8] {
        self.slices
            .iter()
            .find(|s| !s.is_empty())
            .copied()
            .unwrap_or_default()
    }
    fn advance(&mut self, mut n: usize) {
        assert!(
            n <= self.remaining(),
            "advance by {n} of {} bytes",
            self.remaining()
        );
        while let Some(first) = self.slices.front_mut() {
            if n < first.len() {
                *first = &first[n..];
                return;
            }
            n -= first.len();
            self.slices.pop_front();
        }
    }
    fn chunks_vectored<'b>(&'b self, dst: &mut [IoSlice<'b>]) -> usize {
        let mut n = 0;
        for (to, from) in dst
            .iter_mut()
            .zip(self.slices.iter().filter(|s| !s.is_empty()))
        {
            *to = IoSlice::new(from);
            n += 1;
        }
        n
    }
}

impl Cbuf {
    /// Window offset of the first byte, and the serial of the chunk there.
    pub(crate) fn place(&self) -> (u64, u32) {
        match self.home() {
            Home::Own(pool) => {
                // SAFETY: pools outlive their outstanding slots.
                let pool = unsafe { pool.as_ref() };
                let offset = pool.offset_of(self.ptr());
                (offset, pool.serial_at(offset))
            }
            Home::Foreign(pool) => {
                // SAFETY: as above.
                let pool = unsafe { pool.as_ref() };
                let offset = pool.offset_of(self.ptr());
                (offset, pool.serial_at(offset))
            }
        }
    }

    fn own_pool(&self) -> Option<Pool> {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.arc().map(Pool::from_arc),
            Home::Foreign(_) => None,
        }
    }
}
