//! The readers of a queue about whose items the writer decides: a bit for each, before the lines.
//!
//! A writer that ends a reader's connection gives the reader's open items to others. An acknowledgement may come at the
//! same moment. The writer sets the reader's bit, fences fully, and then reads the reader's entries. The reader clears an
//! entry, fences fully ([`Opens::acknowledge`](super::Opens::acknowledge)), and then reads its bit. So the writer sees the
//! entry cleared, or the reader sees that it is too late, or both.

use tranship_sync::atomic::{AtomicU64, Ordering};

/// Readers of one writer, at most.
pub const READERS: usize = 1024;

/// The writer's bits. Readers map them read-only.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Dismissed([AtomicU64; READERS / 64]);

impl Default for Dismissed {
    fn default() -> Dismissed {
        Dismissed(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Dismissed {
    #[inline(always)]
    fn of(&self, reader: u16) -> (&AtomicU64, u64) {
        let at = usize::from(reader) % READERS;
        (&self.0[at / 64], 1 << (at % 64))
    }

    /// Says whether the writer decides about a reader's items, and before that, at its joining, that it does not. The caller
    /// fences fully before it reads the reader's entries.
    pub fn set(&self, reader: u16, is_dismissed: bool) {
        let (word, bit) = self.of(reader);
        // Relaxed: the writer alone stores here.
        let now = word.load(Ordering::Relaxed);
        let now = if is_dismissed { now | bit } else { now & !bit };
        // Ordering: relaxed; the caller's fence follows, or the word by which the reader begins.
        word.store(now, Ordering::Relaxed);
    }

    /// Says whether the writer decides about a reader's items. The reader has cleared an entry and fenced.
    #[inline(always)]
    pub fn has(&self, reader: u16) -> bool {
        let (word, bit) = self.of(reader);
        // Ordering: relaxed; partner: the writer's fence after `set`.
        word.load(Ordering::Relaxed) & bit != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_reader_is_dismissed_for_itself() {
        let all = Dismissed::default();
        all.set(1025, true);
        assert!(all.has(1025) && all.has(1));
        assert!(!all.has(0) && !all.has(65));
        all.set(1, false);
        assert!(!all.has(1));
    }
}
