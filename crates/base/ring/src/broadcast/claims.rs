//! The claims of a queue: which reader has taken which line. All readers write them.
//!
//! A broadcast's lines go to every reader. In a queue each line goes to one. Beside its lines a queue's writer shows a
//! page of claims: for each place of the ring one word, which names the last position that was taken there, and the
//! reader that took it. A line that is published and whose word is older waits. A reader takes it by one
//! compare-and-swap. The writer reads the words a batch at a time, and writes one only after a liar.
//!
//! | word | meaning for position `p` |
//! |---|---|
//! | older than `p` | nobody has taken it |
//! | `p` | taken by the reader of this number |
//! | newer than `p` | the place has gone on to a later position |
//!
//! **Trust.** Every reader can write every word, so a reader that lies can take a line twice, or have one skipped. It
//! cannot read or change anything else: lines are mapped read-only, and the writer frees memory by the desks alone, each
//! of which one reader writes.
//!
//! Two more words are for sleeping. `asleep` says that readers may sleep on `bell`. `room` is a position at whose
//! taking the writer wants to be woken.

use super::words::{SEQUENCES, ahead, name, named, sequence};
use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of a claim's word above the sequence number, which name the reader.
const READER: u32 = 48;

/// The words by which readers and the writer wake each other.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Front {
    readers: Bell,
    writer: Room,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bell {
    /// Not 0: readers may sleep on `bell`.
    asleep: AtomicU32,
    bell: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Room {
    /// Names the position at whose taking the writer is woken; 0: it does not wait.
    at: AtomicU64,
    word: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Front>() == 128);

/// Meaning of a claim's word for a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Nobody has taken it. The word is what [`Claims::take`] replaces.
    Free(u64),
    /// The reader of this number has taken it.
    Taken(u16),
    /// The place has gone on to the later position that is so far ahead.
    Gone(u64),
}

/// Reads a claim's word, as far as it is about a position.
#[inline(always)]
pub fn claim(word: u64, position: u64) -> Claim {
    match ahead(sequence(position), word & SEQUENCES) {
        0 => Claim::Taken(reader(word)),
        more @ 1.. => Claim::Gone(more.unsigned_abs()),
        _ => Claim::Free(word),
    }
}

#[inline(always)]
fn reader(word: u64) -> u16 {
    let [.., low, high] = word.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Returns the word by which a reader takes a position.
#[inline(always)]
pub fn taken(position: u64, reader: u16) -> u64 {
    sequence(position) | u64::from(reader) << READER
}

/// The claims of a queue's lines.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'a> {
    front: &'a Front,
    words: &'a [AtomicU64],
}

impl<'a> Claims<'a> {
    /// Makes the claims of a power of two of lines, one word each.
    pub fn new(front: &'a Front, words: &'a [AtomicU64]) -> Claims<'a> {
        debug_assert!(words.len().is_power_of_two());
        Claims { front, words }
    }

    #[inline(always)]
    fn word(&self, position: u64) -> &'a AtomicU64 {
        #[allow(clippy::cast_possible_truncation, reason = "below the number of lines")]
        let at = (position & (self.words.len() as u64 - 1)) as usize;
        &self.words[at]
    }

    /// Says what has become of a position.
    #[inline(always)]
    pub fn of(&self, position: u64) -> Claim {
        // Ordering: acquire; partner: the release of `take`. What the reader's desk said then is seen.
        claim(self.word(position).load(Ordering::Acquire), position)
    }

    /// Takes a position whose word was `seen`. False: another reader was first.
    ///
    /// It fences fully on x86-64, as each locked instruction does there; elsewhere a fence follows. Of a window that
    /// was shown before it and the line that is read after it, the writer's round sees at least one.
    // Crash: the word names the reader. Its death has the writer give the item to another reader, or report it.
    #[inline(always)]
    pub fn take(&self, position: u64, seen: u64, reader: u16) -> bool {
        let word = self.word(position);
        let mine = taken(position, reader);
        // Ordering: sequential; partner: `of`, and the writer's fence in `Rounds::begin`.
        let done = word.compare_exchange(seen, mine, Ordering::SeqCst, Ordering::Relaxed);
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
        tranship_sync::full_fence();
        done.is_ok()
    }

    /// Makes a place's word say that nobody has taken the items after this position. The writer calls it if the word
    /// names a position that was never published, which only a reader that lies writes.
    pub fn repair(&self, position: u64) {
        // Ordering: release; partner: `of`.
        self.word(position)
            .store(taken(position, 0), Ordering::Release);
    }

    /// Says that a reader is about to sleep, and returns the bell's value to sleep on. The caller fences fully, looks
    /// for lines once more, and sleeps only as long as the bell has this value, for a bounded time.
    // Crash: a reader that dies asleep costs the next caller of `wake_one` one useless system call.
    pub fn arm(&self) -> u32 {
        let Bell { asleep, bell } = &self.front.readers;
        // Ordering: acquire; partner: the release of `wake_one`. The flag is set after the bell was read.
        let seen = bell.load(Ordering::Acquire);
        // Ordering: relaxed; the caller's fence follows.
        asleep.store(1, Ordering::Relaxed);
        seen
    }

    /// Returns the word on which readers sleep.
    pub fn bell(&self) -> &'a AtomicU32 {
        &self.front.readers.bell
    }

    /// Wakes one reader, if any may sleep. `wake` wakes at most one waiter of the word, and says how many it found. The
    /// caller has published, or knows of a line that waits, and has fenced fully.
    ///
    /// The flag goes before the bell is raised. A reader whose flag is lost by that has read the bell before, so it does
    /// not sleep. If a waiter was found, others may sleep, too, and the flag is set again.
    // Crash: a caller that dies after clearing the flag leaves readers asleep for at most the rest of their bounded wait.
    #[inline(always)]
    pub fn wake_one(&self, wake: impl FnOnce(&AtomicU32) -> usize) {
        // Ordering: relaxed; partner: the reader's fence. The caller has fenced.
        if self.front.readers.asleep.load(Ordering::Relaxed) != 0 {
            self.wake(wake);
        }
    }

    #[cold]
    fn wake(&self, wake: impl FnOnce(&AtomicU32) -> usize) {
        let Bell { asleep, bell } = &self.front.readers;
        // Ordering: relaxed; the locked instruction follows.
        asleep.store(0, Ordering::Relaxed);
        // Ordering: sequential; partner: `arm`.
        bell.fetch_add(1, Ordering::SeqCst);
        if wake(bell) > 0 {
            // Ordering: relaxed; a late flag costs a bounded wait.
            asleep.store(1, Ordering::Relaxed);
        }
    }

    /// Says at whose taking the writer wants to be woken, and returns the value to sleep on. The caller fences fully,
    /// looks for room once more, and sleeps for a bounded time.
    pub fn want_room(&self, position: u64) -> u32 {
        let Room { at, word } = &self.front.writer;
        // Ordering: acquire; partner: the release of `took`.
        let seen = word.load(Ordering::Acquire);
        // Ordering: relaxed; the caller's fence follows.
        at.store(name(position), Ordering::Relaxed);
        seen
    }

    /// Returns the word on which the writer sleeps.
    pub fn room(&self) -> &'a AtomicU32 {
        &self.front.writer.word
    }

    /// Says that the writer no longer waits.
    pub fn has_room(&self) {
        // Ordering: relaxed; a late word costs a needless wake-up.
        self.front.writer.at.store(0, Ordering::Relaxed);
    }

    /// Wakes the writer, if it waits for this position or an earlier one.
    #[inline(always)]
    pub fn took(&self, position: u64, wake: impl FnOnce(&AtomicU32)) {
        // Ordering: relaxed; a store of the reader's desk may become visible after this load, so the writer's first wait is short.
        let at = self.front.writer.at.load(Ordering::Relaxed);
        if named(at).is_some_and(|at| ahead(at, sequence(position)) >= 0) {
            self.call_writer(wake);
        }
    }

    #[cold]
    fn call_writer(&self, wake: impl FnOnce(&AtomicU32)) {
        let Room { at, word } = &self.front.writer;
        // Ordering: relaxed; one of several readers wakes.
        if at.swap(0, Ordering::Relaxed) != 0 {
            // Ordering: release; partner: `want_room`.
            word.fetch_add(1, Ordering::Release);
            wake(word);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_has_become_of_a_position() {
        assert_eq!(claim(0, 0), Claim::Free(0));
        let word = taken(5, 700);
        assert_eq!(claim(word, 5), Claim::Taken(700));
        assert_eq!(claim(word, 13), Claim::Free(word), "of the round before");
        assert_eq!(claim(word, 1), Claim::Gone(4), "of the next one");
        let last = SEQUENCES - 1;
        assert_eq!(claim(taken(last, 3), last + 8), Claim::Free(taken(last, 3)));
    }

    #[test]
    fn one_reader_takes_a_line() {
        let (front, words) = (Front::default(), [const { AtomicU64::new(0) }; 4]);
        let claims = Claims::new(&front, &words);
        let Claim::Free(seen) = claims.of(2) else {
            panic!("nobody has taken it");
        };
        assert!(claims.take(2, seen, 1));
        assert!(!claims.take(2, seen, 2));
        assert_eq!(claims.of(2), Claim::Taken(1));
        assert!(matches!(claims.of(6), Claim::Free(_)));
    }

    #[test]
    fn the_flag_stays_as_long_as_readers_sleep() {
        let (front, words) = (Front::default(), [const { AtomicU64::new(0) }; 2]);
        let claims = Claims::new(&front, &words);
        claims.wake_one(|_| panic!("nobody sleeps"));
        let seen = claims.arm();
        let mut sleepers = 2;
        let mut calls = 0;
        for _ in 0..4 {
            claims.wake_one(|_| {
                calls += 1;
                let woken = usize::from(sleepers > 0);
                sleepers -= woken;
                woken
            });
        }
        assert_eq!((sleepers, calls), (0, 3), "one call too many finds nobody");
        assert_ne!(claims.bell().load(Ordering::Relaxed), seen);
    }

    #[test]
    fn the_writer_is_woken_once() {
        let (front, words) = (Front::default(), [const { AtomicU64::new(0) }; 2]);
        let claims = Claims::new(&front, &words);
        claims.took(9, |_| panic!("it does not wait"));
        claims.want_room(4);
        claims.took(3, |_| panic!("not yet"));
        let mut calls = 0;
        claims.took(4, |_| calls += 1);
        claims.took(5, |_| calls += 1);
        assert_eq!(calls, 1);
        // The sequence number of this position is 0.
        let last = SEQUENCES;
        claims.want_room(last);
        claims.took(last - 1, |_| panic!("not yet"));
        claims.took(last + 1, |_| calls += 1);
        assert_eq!(calls, 2);
    }
}
