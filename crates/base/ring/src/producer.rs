//! The producing end of a ring: a private cursor over lines that this domain writes.

use crate::line::{Lines, SEQUENCE, WORDS, sequence};
use tranship_sync::atomic::Ordering;

/// The distance of the prefetched line from the next one.
const AHEAD: u64 = 2;

/// The way in which the last store of a line is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// A plain release store. A caller that then wants to read the peer's `asleep` must fence. This suits all but the
    /// last line of a batch, and peers that never sleep.
    Release,
    /// A publish and a full fence in one locked instruction; [`notify`](crate::Ring::notify) may follow at once.
    SeqCst,
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Push {
    /// The line is the peer's.
    Done,
    /// Nothing was changed: every line of the ring is still unconsumed.
    Full,
}

/// An impossible `head` of the consumer: it went backwards, or past the last produced line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer's head says {head} lines taken, but it said {before} before, and {tail} were sent"
)]
pub struct RingViolation {
    /// The value that the peer's word has now.
    pub head: u64,
    /// The greatest believed head so far.
    pub before: u64,
    /// Lines produced.
    pub tail: u64,
}

/// The producer's private cursor. It borrows nothing: lines and the peer's head are passed to each call, so
/// that both may live in mappings.
#[derive(Debug, Default)]
pub struct Producer {
    tail: u64,
    head: u64,
}

impl Producer {
    /// Makes a producer at the start of fresh (zeroed) lines.
    pub const fn new() -> Self {
        Self { tail: 0, head: 0 }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) const fn at(tail: u64) -> Self {
        Self { tail, head: tail }
    }

    /// Returns the number of lines produced so far.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the number of lines believed consumed, as of the last look at the peer's head.
    #[inline]
    pub fn known_head(&self) -> u64 {
        self.head
    }

    /// Returns how many lines can be pushed, without reading the peer's head.
    #[inline]
    pub fn known_room(&self, lines: Lines<'_>) -> u32 {
        let used = self.tail.wrapping_sub(self.head);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "used never exceeds the count, a u32"
        )]
        let used = used as u32;
        lines.count().saturating_sub(used)
    }

    /// Returns how many lines can be pushed. It reads the peer's head only if fewer than `want` lines are known to be
    /// free.
    ///
    /// `peer_head` is an acquire load of the peer's word. A sender calls this first, then counts `sent`, then pushes: a
    /// count cannot be undone.
    #[inline]
    pub fn room(
        &mut self,
        lines: Lines<'_>,
        want: u32,
        peer_head: impl FnOnce() -> u64,
    ) -> Result<u32, RingViolation> {
        let known = self.known_room(lines);
        if known >= want {
            return Ok(known);
        }
        self.look(peer_head())?;
        Ok(self.known_room(lines))
    }

    /// Takes over a head that was loaded (acquire) from the peer's word, if it is possible.
    #[inline]
    pub fn look(&mut self, head: u64) -> Result<(), RingViolation> {
        if head < self.head || head > self.tail {
            return Err(RingViolation {
                head,
                before: self.head,
                tail: self.tail,
            });
        }
        self.head = head;
        Ok(())
    }

    /// Pushes a line if the ring has room, looking at the peer's head if needed.
    #[inline]
    pub fn try_push(
        &mut self,
        lines: Lines<'_>,
        publish: Publish,
        words: [u64; 8],
        peer_head: impl FnOnce() -> u64,
    ) -> Result<Push, RingViolation> {
        if self.tail.wrapping_sub(self.head) >= u64::from(lines.count()) {
            self.look(peer_head())?;
        }
        Ok(self.push(lines, publish, words))
    }

    /// Pushes a line into room that is known (see [`Producer::room`]). The low half of `words[0]` is ignored:
    /// the ring's sequence number takes its place.
    #[inline]
    pub fn push(&mut self, lines: Lines<'_>, publish: Publish, words: [u64; 8]) -> Push {
        if self.tail.wrapping_sub(self.head) >= u64::from(lines.count()) {
            return Push::Full;
        }
        self.put(lines, publish, words);
        Push::Done
    }

    /// Publishes a line into room that was just found. Without room, it overwrites a line that the consumer has not
    /// taken yet.
    #[inline(always)]
    pub fn push_known(&mut self, lines: Lines<'_>, publish: Publish, words: [u64; 8]) {
        debug_assert!(self.known_room(lines) > 0);
        self.put(lines, publish, words);
    }

    /// Prefetches a line that is written soon, so that the store need not wait for the copy in the consumer's cache.
    /// The next line is left out, because a waiting consumer reads it again and again.
    #[inline(always)]
    pub fn prefetch_ahead(&self, lines: Lines<'_>) {
        let line = lines.at(self.tail.wrapping_add(AHEAD));
        tranship_sync::prefetch_write(std::ptr::from_ref(line).cast());
    }

    /// Writes the line at the tail, which is known to be free.
    #[inline(always)]
    fn put(&mut self, lines: Lines<'_>, publish: Publish, words: [u64; 8]) {
        // Loaded once: the compiler assumes that the stores below may change it.
        let tail = self.tail;
        let line = lines.at(tail);
        // Crash: a producer that dies before the store of word 0 leaves a line that the consumer never takes. The
        // manager learns of the death by pidfd, and the incomplete line is never read.
        #[allow(
            clippy::needless_range_loop,
            reason = "this becomes seven plain stores, iterators did not"
        )]
        for i in 1..WORDS {
            // Ordering: relaxed; published by word 0. They come after the consumer's loads of the line's last
            // use because `head` was loaded with acquire (partner: the consumer's release store of head).
            line.words[i].store(words[i], Ordering::Relaxed);
        }
        let word = (words[0] & !SEQUENCE) | sequence(tail);
        match publish {
            // Ordering: release; partner: Consumer::try_pop's acquire load of word 0.
            Publish::Release => line.words[0].store(word, Ordering::Release),
            // Ordering: as above, and SeqCst: in the single total order it comes before notify's SeqCst load of
            // `asleep`, so that at least one side sees the other (partner: the fence in arm).
            Publish::SeqCst => {
                line.words[0].swap(word, Ordering::SeqCst);
                #[cfg(loom)]
                tranship_sync::atomic::fence(Ordering::SeqCst);
            }
        }
        self.tail = tail.wrapping_add(1);
    }
}
