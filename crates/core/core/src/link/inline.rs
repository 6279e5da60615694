//! Bytes that travel inside a line.

use crate::error::{Error, ErrorKind};
use std::ops::Deref;
use tranship_ring::INLINE_BYTES;

const WORDS: usize = INLINE_BYTES / size_of::<u64>();

/// Bytes that came inside the descriptor; they are this process's copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Inline {
    /// Little-endian, as in the line.
    pub(super) words: [u64; WORDS],
    pub(super) len: u8,
}

/// Copies at most [`INLINE_BYTES`] bytes. More are [`TooLarge`](crate::ErrorKind::TooLarge).
impl TryFrom<&[u8]> for Inline {
    type Error = Error;

    fn try_from(bytes: &[u8]) -> Result<Inline, Error> {
        let mut words = [0; WORDS];
        let room = zerocopy::IntoBytes::as_mut_bytes(&mut words).get_mut(..bytes.len());
        let (Some(room), Ok(len)) = (room, u8::try_from(bytes.len())) else {
            return Err(too_long(bytes));
        };
        room.copy_from_slice(bytes);
        Ok(Inline { words, len })
    }
}

impl Deref for Inline {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &zerocopy::IntoBytes::as_bytes(&self.words)[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inline").field(&&**self).finish()
    }
}

/// Too many bytes for a line.
#[cold]
pub(super) fn too_long(bytes: &[u8]) -> Error {
    let text = format!(
        "{} bytes are too many for a line, which holds {INLINE_BYTES}: put them into a buffer (`alloc`, `pool.copy`)",
        bytes.len()
    );
    Error::new(ErrorKind::TooLarge, text)
}
