//! Bytes that travel inside a line.

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

impl Inline {
    /// A copy of these; `None`: there are more than [`INLINE_BYTES`].
    pub fn new(bytes: &[u8]) -> Option<Inline> {
        let mut words = [0; WORDS];
        let len = u8::try_from(bytes.len()).ok()?;
        zerocopy::IntoBytes::as_mut_bytes(&mut words)
            .get_mut(..bytes.len())?
            .copy_from_slice(bytes);
        Some(Inline { words, len })
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
