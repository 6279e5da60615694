//! The buffers that a line names: one, or the pieces of an aggregate with their list. Their limits.

use tranship_core::topics::{self, Named};
use tranship_core::{Buffer, Error, ErrorKind, Pool};
use tranship_ring::broadcast::{KEPT, Limits};

/// The most pieces that an aggregate may be allowed. A reader's window covers each of them, and their list.
pub const MOST: u32 = 32;

/// Returns the limits of a reader. It may keep `keep` buffers in addition to those for which its desk has entries, and
/// its messages have at most `pieces` pieces.
pub fn limits(keep: u32, pieces: u32) -> Limits {
    // A domain's table has the holds of all its connections, and also those of the desks' entries.
    Limits {
        pieces: pieces.saturating_add(1),
        ..Limits::new(keep.saturating_add(KEPT.into()))
    }
}

/// Checks the number of pieces that messages may have: a reader must be able to hold them.
///
/// # Errors
/// `BadArgument`.
pub fn check_most(pieces: u32, keep: u32) -> Result<(), Error> {
    let holds = keep.saturating_add(KEPT.into());
    let text = if pieces > MOST {
        format!("messages have at most {MOST} pieces (`pieces` of the options), not {pieces}")
    } else if pieces > holds {
        format!(
            "a message of {pieces} pieces (`pieces` of the options) could not be received: a reader may hold {holds} buffers, {KEPT} and {keep} (`keep`)"
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::BadArgument, text))
}

/// Returns the name of a buffer in a line. `of` names the pool's user, for the error.
///
/// # Errors
/// `BufferInvalid` if the buffer is of another pool.
#[inline]
pub fn named(pool: &Pool, buffer: &Buffer, of: (&str, &str)) -> Result<Named, Error> {
    topics::named(pool, buffer).ok_or_else(|| not_of(of))
}

#[cold]
fn not_of((kind, name): (&str, &str)) -> Error {
    let text = format!(
        "the buffer is not of the own pool of {kind} {name}: allocate it there (`alloc` of the writing end)"
    );
    Error::new(ErrorKind::BufferInvalid, text)
}
