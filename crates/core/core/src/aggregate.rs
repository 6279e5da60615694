//! Aggregates: pieces of several buffers, of several pools, as one message.
//!
//! The list of pieces is itself stored in a buffer (CBUFs, 2.2). Prepending and appending copy no bytes.

use crate::buffer::{Buffer, BufferMut, Handle, Home, Reference};
use crate::error::{Error, ErrorKind, Limit, SendError, Shortage, Violation};
use crate::options::{Patience, WhenFull};
use crate::pool::Pool;
use std::collections::VecDeque;
use std::io;
use tranship_proto::BufferId;
use tranship_region::View;
use tranship_region::layout::aggregate as layout;

pub use layout::MAX_PIECES;

/// A list of buffer parts that is sent, received and read as one.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Aggregate, Domain, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// let mut all = Aggregate::new();
/// all.push_back(pool.copy(b"a body")?.freeze())?;
/// all.insert(0, pool.copy(b"a header, ")?.freeze())?;
/// assert_eq!((all.len(), all.to_vec()), (16, b"a header, a body".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Aggregate {
    pieces: VecDeque<Buffer>,
    list_pool: Option<Pool>,
}

impl Aggregate {
    /// Makes an empty aggregate.
    pub fn new() -> Aggregate {
        Aggregate::default()
    }

    pub(crate) fn from_pieces(pieces: Vec<Buffer>) -> Aggregate {
        Aggregate {
            pieces: pieces.into(),
            list_pool: None,
        }
    }

    /// Adds a piece at the end, without copying.
    ///
    /// # Errors
    /// `BadArgument` with more than [`MAX_PIECES`] pieces; the piece comes back.
    pub fn push_back(&mut self, piece: Buffer) -> Result<(), SendError<Buffer>> {
        self.insert(self.pieces.len(), piece)
    }

    /// Adds a piece before the one at `at`, without copying; at the number of pieces: at the end.
    ///
    /// # Errors
    /// As [`push_back`](Aggregate::push_back), and where there is no such place.
    pub fn insert(&mut self, at: usize, piece: Buffer) -> Result<(), SendError<Buffer>> {
        insert(&mut self.pieces, at, piece)
    }

    /// Takes a piece out. `None`: no piece is at this place.
    pub fn remove(&mut self, at: usize) -> Option<Buffer> {
        self.pieces.remove(at)
    }

    /// Sets the pool whose memory holds the list while it travels. Default: the pool of the first piece that is this
    /// domain's own.
    pub fn set_list_pool(&mut self, pool: &Pool) {
        self.list_pool = Some(pool.clone());
    }

    /// Returns the total bytes of all pieces.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Buffer::len).sum()
    }

    /// Returns whether the aggregate has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the pieces, in order.
    pub fn pieces(&self) -> &VecDeque<Buffer> {
        &self.pieces
    }

    /// Writes all bytes; see [`Buffer::write_to`]. Takes little memory, whatever length the sender names.
    ///
    /// # Errors
    /// An error of `to`. It blocks as long as `to` does.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        self.pieces.iter().try_for_each(|piece| piece.write_to(to))
    }

    /// Returns a private copy of all bytes. A hostile sender can name one large buffer [`MAX_PIECES`] times: check
    /// [`len`](Aggregate::len) first, or use [`write_to`](Aggregate::write_to).
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

    pub(crate) fn list_pool(&self) -> Option<&Pool> {
        self.list_pool.as_ref()
    }
}

/// Puts a piece at its place, if there is one.
pub(crate) fn insert<P>(pieces: &mut VecDeque<P>, at: usize, piece: P) -> Result<(), SendError<P>> {
    let len = pieces.len();
    let wrong = if at > len {
        format!("no place {at} in an aggregate of {len} pieces, at most {len}")
    } else if len == MAX_PIECES {
        format!(
            "an aggregate of {len} pieces cannot take 1 more: it has at most {MAX_PIECES}; send it and begin another"
        )
    } else {
        pieces.insert(at, piece);
        return Ok(());
    };
    Err(SendError::new(
        Error::new(ErrorKind::BadArgument, wrong),
        piece,
    ))
}

/// Stores the list of these pieces in a buffer, as `docs/format.md` says; waits for memory as the link does for room.
/// `pool`: the pool of the list, if it is not that of the first piece of the domain's own.
pub(crate) fn make_list(
    pool: Option<&Pool>,
    pieces: impl Iterator<Item = Handle> + Clone,
    patience: Patience,
) -> Result<Buffer, Error> {
    let alloc = |pool: &Pool, bytes| match patience {
        Patience::Channel(WhenFull::Wait) => pool.alloc(bytes),
        Patience::AtMost(time) if !time.is_zero() => pool.alloc_timeout(bytes, time),
        Patience::AtMost(_) | Patience::Channel(_) => pool.try_alloc(bytes),
    };
    let bytes = layout::len(pieces.clone().count());
    let mut list = match (pool, pieces.clone().find_map(own_pool)) {
        (Some(pool), _) => alloc(pool, bytes)?,
        (None, Some(pool)) => alloc(&pool, bytes)?,
        (None, None) => {
            return Err(Shortage {
                need_bytes: bytes as u64,
                limit: Limit::NoPool,
                live_bytes: 0,
                quota_bytes: 0,
                holder: None,
                waited_ms: 0,
            }
            .into());
        }
    };
    write_list(pieces.map(Handle::reference), &mut list);
    Ok(list.freeze())
}

/// Writes the list of these pieces into a buffer of exactly its length.
pub(crate) fn write_list(pieces: impl Iterator<Item = Reference>, list: &mut BufferMut) {
    let entry =
        |piece: Reference| layout::Piece::new(piece.id.0, piece.offset, piece.length, piece.serial);
    let pieces: Vec<_> = pieces.map(entry).collect();
    // Both bounds hold: at most MAX_PIECES were let in, and the buffer was made for them.
    match list.bytes_mut() {
        Some(bytes) => _ = layout::encode(&pieces, bytes),
        None => {
            let mut bytes = vec![0; list.len()];
            let _ = layout::encode(&pieces, &mut bytes);
            list.fill_from(View::from(&bytes[..]));
        }
    }
}

fn own_pool(piece: Handle) -> Option<Pool> {
    match piece.home() {
        // SAFETY: pools outlive their outstanding slots.
        Home::Own(pool) => unsafe { pool.as_ref() }.arc().map(Pool::from_arc),
        Home::Foreign(_) => None,
    }
}

/// Takes a received list apart. It is copied once; its length bounds the number of pieces.
pub(crate) fn parse_list(list: &Buffer) -> Result<Vec<Reference>, Violation> {
    let bad = |pieces: usize| Violation::Aggregate {
        pieces: u32::try_from(pieces).unwrap_or(u32::MAX),
        list_bytes: list.len() as u64,
    };
    let pieces = layout::decode(list.view())?;
    if list.len() != layout::len(pieces.len()) {
        return Err(bad(pieces.len()));
    }
    let reference = |piece: layout::Piece| Reference {
        id: BufferId(piece.id),
        offset: piece.offset,
        length: piece.length,
        serial: piece.serial,
    };
    Ok(pieces.into_iter().map(reference).collect())
}
