//! The consuming end of a ring: a private cursor over lines that the peer writes.

use crate::line::{Line, Lines, SEQUENCE, sequence};
use tranship_sync::atomic::Ordering;

/// The consumer's private cursor. It borrows nothing, writes nothing shared and needs no locked instruction.
///
/// The caller gives lines back by storing [`Consumer::head`] (release) into its own page. Everything that must be
/// counted for a received line is counted between the pop and that store.
#[derive(Debug, Default)]
pub struct Consumer {
    head: u64,
}

impl Consumer {
    /// Makes a consumer at the start of fresh lines.
    pub const fn new() -> Self {
        Self { head: 0 }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) const fn at(head: u64) -> Self {
        Self { head }
    }

    /// Returns the number of lines taken so far, which the shared `head` is to say.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Says whether a line waits: a sleeper's second look.
    #[inline]
    pub fn ready(&self, lines: Lines<'_>) -> bool {
        lines.has(self.head)
    }

    /// Returns the next line, if one waits, and the line's word 0 without the sequence. The line stays until
    /// [`Consumer::advance`]. This serves fast paths that load only the words they need, each once. A caller that gives
    /// up after a look takes the line by [`Consumer::try_pop`], and believes nothing that it saw before.
    #[inline(always)]
    pub fn peek<'a>(&self, lines: Lines<'a>) -> Option<(u64, &'a Line)> {
        let line = lines.at(self.head);
        // Ordering: acquire; partner: the producer's release store (or SeqCst swap) of word 0.
        let first = line.words[0].load(Ordering::Acquire);
        (first & SEQUENCE == sequence(self.head)).then_some((first & !SEQUENCE, line))
    }

    /// Advances past the line that was peeked at.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    /// Takes the next line. Each word is loaded once; the sequence is masked out of word 0. The words are the
    /// peer's: they may be anything, also torn if the peer breaks the rules.
    #[inline]
    pub fn try_pop(&mut self, lines: Lines<'_>) -> Option<[u64; 8]> {
        let line = lines.at(self.head);
        // Ordering: acquire; partner: the producer's release store (or SeqCst swap) of word 0.
        let first = line.words[0].load(Ordering::Acquire);
        if first & SEQUENCE != sequence(self.head) {
            return None;
        }
        let mut words = [0; 8];
        words[0] = first & !SEQUENCE;
        for (copy, word) in words.iter_mut().zip(&line.words).skip(1) {
            // Ordering: relaxed; ordered after word 0 by its acquire, and before the line's reuse by the
            // caller's release store of head.
            *copy = word.load(Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        Some(words)
    }
}
