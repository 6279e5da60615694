//! The list that an aggregate consists of, stored in a buffer.

use crate::{OutOfBounds, View};
use zerocopy::IntoBytes;

/// Most pieces of one aggregate.
pub const MAX_PIECES: usize = 4096;
const FRONT: usize = 8;

/// A range of one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// The buffer's id.
    pub id: u64,
    /// The offset in the window, bytes.
    pub offset: u64,
    /// The length, bytes.
    pub length: u64,
    /// The serial of its chunk; for several chunks the sum.
    pub serial: u32,
}

/// A piece's words in the list: identity, offset, length, and the serial followed by a zero.
type Words = [u64; 4];

impl Piece {
    pub fn new(id: u64, offset: u64, length: u64, serial: u32) -> Piece {
        Piece {
            id,
            offset,
            length,
            serial,
        }
    }

    fn words(self) -> Words {
        [self.id, self.offset, self.length, self.serial.into()]
    }
}

/// Errors of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AggregateError {
    /// The list has more pieces than the format allows.
    #[error("{pieces} pieces, at most 4096 are allowed")]
    TooMany { pieces: usize },
    /// The buffer is not as long as its list.
    #[error("a list of {need_bytes} bytes in {have_bytes} bytes")]
    Short {
        need_bytes: usize,
        have_bytes: usize,
    },
    /// A field that must be zero is not.
    #[error("the zero field of piece {piece} is {found:#x}")]
    NotZero { piece: usize, found: u32 },
    /// The zero field of the list's header is not 0.
    #[error("the list's zero field is {found:#x}")]
    ListNotZero { found: u32 },
}

/// Returns the length of a list, bytes.
pub fn len(pieces: usize) -> usize {
    FRONT + pieces * size_of::<Words>()
}

/// Writes a list; returns the number of bytes written.
pub fn encode(pieces: &[Piece], to: &mut [u8]) -> Result<usize, AggregateError> {
    if pieces.len() > MAX_PIECES {
        return Err(AggregateError::TooMany {
            pieces: pieces.len(),
        });
    }
    let need_bytes = len(pieces.len());
    let have_bytes = to.len();
    let (front, rest) = to
        .get_mut(..need_bytes)
        .ok_or(AggregateError::Short {
            need_bytes,
            have_bytes,
        })?
        .split_at_mut(FRONT);
    front.copy_from_slice(&(pieces.len() as u64).to_le_bytes());
    for (to, piece) in rest.chunks_exact_mut(size_of::<Words>()).zip(pieces) {
        to.copy_from_slice(piece.words().as_bytes());
    }
    Ok(need_bytes)
}

/// Copies a list out once, so that the result no longer changes. The pieces themselves are not checked.
pub fn decode(list: View<'_>) -> Result<Vec<Piece>, AggregateError> {
    let short = |need_bytes| AggregateError::Short {
        need_bytes,
        have_bytes: list.len(),
    };
    let [count, zero] = list
        .read::<[u32; 2]>(0)
        .map_err(|_: OutOfBounds| short(FRONT))?;
    let count = count as usize;
    if count > MAX_PIECES {
        return Err(AggregateError::TooMany { pieces: count });
    }
    if zero != 0 {
        return Err(AggregateError::ListNotZero { found: zero });
    }
    let mut all = vec![Words::default(); count];
    list.copy_to_slice(FRONT, all.as_mut_bytes())
        .map_err(|_: OutOfBounds| short(len(count)))?;
    let piece = |(piece, [id, offset, length, last]): (usize, Words)| {
        let [serial, found] = [last & u64::from(u32::MAX), last >> 32].map(narrow);
        match found {
            0 => Ok(Piece::new(id, offset, length, serial)),
            _ => Err(AggregateError::NotZero { piece, found }),
        }
    };
    all.into_iter().enumerate().map(piece).collect()
}

/// Returns the half of a word.
#[allow(clippy::cast_possible_truncation)] // no more than 32 bits
fn narrow(half: u64) -> u32 {
    half as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back() {
        for n in [0, 1, 7, MAX_PIECES] {
            let pieces: Vec<Piece> = (0..n as u64)
                .map(|i| Piece::new(i, i * 2, i * 3, 4))
                .collect();
            let mut bytes = vec![0xff; len(n) + 5];
            assert_eq!(encode(&pieces, &mut bytes), Ok(len(n)));
            assert_eq!(decode(View::from(&bytes[..])), Ok(pieces));
        }
    }

    #[test]
    fn lists_that_are_none_are_errors() {
        let many = vec![Piece::default(); MAX_PIECES + 1];
        let too_many = Err(AggregateError::TooMany { pieces: 4097 });
        assert_eq!(encode(&many, &mut vec![0; len(4097)]), too_many);
        let short = Err(AggregateError::Short {
            need_bytes: 40,
            have_bytes: 39,
        });
        assert_eq!(encode(&many[..1], &mut [0; 39]), short);

        let decode = |bytes: &[u8]| decode(View::from(bytes)).expect_err("bad");
        let mut bytes = vec![0; 72];
        bytes[0] = 3;
        assert!(matches!(
            decode(&bytes),
            AggregateError::Short {
                need_bytes: 104,
                ..
            }
        ));
        assert!(matches!(
            decode(&bytes[..7]),
            AggregateError::Short { need_bytes: 8, .. }
        ));
        bytes[1] = 0x10;
        assert_eq!(decode(&bytes), AggregateError::TooMany { pieces: 4099 });
        bytes[..2].copy_from_slice(&[2, 0]);
        bytes[7] = 1;
        assert!(matches!(decode(&bytes), AggregateError::ListNotZero { .. }));
        bytes[7] = 0;
        bytes[71] = 1;
        assert!(matches!(
            decode(&bytes),
            AggregateError::NotZero { piece: 1, .. }
        ));
    }
}
