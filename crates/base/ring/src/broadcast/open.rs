//! Positions that a queue's reader has taken and not acknowledged: words behind its desk, which it alone writes.
//!
//! A reader enters a position before it takes it, and clears the entry when the item is acknowledged. A position that
//! a claim gives to the reader and that no entry names is therefore done. If the reader dies, its entries say what it
//! had.

use super::words::{name, named, sequence};
use tranship_sync::atomic::{AtomicU64, Ordering};

/// The most items that a reader may have taken and not acknowledged.
pub const OPEN: usize = 64;

/// The bit of an entry whose reader has left before its item was acknowledged. The item is with it as before.
const LEFT: u64 = 1 << 61;
/// The bit of an entry that gives its item back to the queue.
const BACK: u64 = 1 << 62;
/// The bit of an entry that rejects its item.
const REJECTED: u64 = 1 << 63;

/// The entries of one reader.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Opens {
    /// Entries from this number on were never used.
    used: AtomicU64,
    entries: Entries,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Entries([AtomicU64; OPEN]);

impl Default for Entries {
    fn default() -> Entries {
        Entries(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Meaning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Open {
    /// The item is with the reader.
    Held,
    /// The reader gives it back to the queue.
    Back,
    /// The reader wants nobody to have it.
    Rejected,
}

/// Reads an entry: the sequence number of a position, and what is said of it. `None`: the entry is free.
#[inline(always)]
pub fn open(word: u64) -> Option<(u64, Open)> {
    let number = named(word)?;
    let open = match (word & REJECTED != 0, word & BACK != 0) {
        (true, _) => Open::Rejected,
        (_, true) => Open::Back,
        _ => Open::Held,
    };
    Some((number, open))
}

// The writer maps them read-only, where Rust defines relaxed loads only: fences give the order.
impl Opens {
    /// Returns how many entries are to be looked at, at most [`OPEN`].
    #[inline(always)]
    pub fn used(&self) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release of `enter`.
        tranship_sync::atomic::fence(Ordering::Acquire);
        usize::try_from(used).unwrap_or(OPEN).min(OPEN)
    }

    /// Returns an entry's word.
    #[inline(always)]
    pub fn word(&self, entry: usize) -> u64 {
        let word = self.entries.0[entry].load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release stores of entries.
        tranship_sync::atomic::fence(Ordering::Acquire);
        word
    }

    /// Returns what the reader says of a position. `None`: no entry names it.
    #[inline(always)]
    pub fn of(&self, position: u64) -> Option<Open> {
        let number = sequence(position);
        let words = (0..self.used()).map(|entry| self.word(entry));
        let mut named = words.filter_map(open);
        named.find(|open| open.0 == number).map(|open| open.1)
    }

    /// Enters a position into a free entry below `most`, before it is taken. Only the reader's one receiving thread
    /// enters. `None`: all are in use.
    #[inline(always)]
    pub fn enter(&self, position: u64, most: usize) -> Option<usize> {
        let mut entries = self.entries.0.iter().take(most);
        // Ordering: acquire; partner: the thread that cleared it.
        let free = entries.position(|entry| entry.load(Ordering::Acquire) == 0)?;
        if free >= self.used() {
            // Ordering: release; partner: `used`.
            self.used.store(free as u64 + 1, Ordering::Release);
        }
        // Ordering: release; partner: `word`. The claim, which the writer reads first, follows.
        self.entries.0[free].store(name(position), Ordering::Release);
        Some(free)
    }

    /// Clears an entry: the item was acknowledged, or was not taken. Any thread of the reader may do it, once.
    #[inline(always)]
    pub fn clear(&self, entry: usize) {
        // Ordering: release; partner: `word`. All access to the item comes before.
        self.entries.0[entry].store(0, Ordering::Release);
    }

    /// Acknowledges an entry's item, by any thread, and fences fully. False: the reader has left before. A true answer is too
    /// late if the writer has dismissed the reader ([`Dismissed`](super::Dismissed)).
    #[inline(always)]
    pub fn acknowledge(&self, entry: usize, position: u64) -> bool {
        let held = name(position);
        // Ordering: sequential, for the fence; release; partner: `word`. All access to the item comes before.
        let done =
            self.entries.0[entry].compare_exchange(held, 0, Ordering::SeqCst, Ordering::Relaxed);
        // Ordering: partner: the writer's fence after `Dismissed::set`.
        tranship_sync::fence_after_rmw();
        done.is_ok()
    }

    /// Makes it impossible to acknowledge an item any more, before the reader leaves.
    pub fn leave(&self) {
        for entry in &self.entries.0 {
            let word = entry.load(Ordering::Relaxed);
            if matches!(open(word), Some((_, Open::Held))) {
                // Ordering: relaxed; a thread that acknowledges meanwhile wins or loses by this word alone.
                let left = word | LEFT;
                let _ = entry.compare_exchange(word, left, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Gives an entry's item back, or rejects it. The entry is cleared when the writer has heard it.
    pub fn hand_back(&self, entry: usize, position: u64, what: Open) {
        let bit = match what {
            Open::Held => 0,
            Open::Back => BACK,
            Open::Rejected => REJECTED,
        };
        // Ordering: release; partner: `word`.
        self.entries.0[entry].store(name(position) | bit, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_say_what_is_with_the_reader() {
        let opens = Opens::default();
        assert_eq!(opens.of(7), None);
        assert_eq!(opens.enter(7, 2), Some(0));
        assert_eq!(opens.enter(9, 2), Some(1));
        assert_eq!(opens.enter(11, 2), None, "as many as were agreed");
        assert_eq!((opens.of(7), opens.of(8)), (Some(Open::Held), None));
        opens.hand_back(0, 7, Open::Back);
        assert_eq!(opens.of(7), Some(Open::Back));
        opens.hand_back(1, 9, Open::Rejected);
        assert_eq!(opens.of(9), Some(Open::Rejected));
        opens.clear(0);
        assert_eq!((opens.of(7), opens.used()), (None, 2));
        assert_eq!(opens.enter(12, 2), Some(0));
        assert!(opens.acknowledge(0, 12));
        assert_eq!((opens.of(12), opens.enter(13, 2)), (None, Some(0)));
        opens.leave();
        assert!(!opens.acknowledge(0, 13), "too late");
        assert_eq!(
            (opens.of(13), opens.of(9)),
            (Some(Open::Held), Some(Open::Rejected))
        );
    }

    /// The sequence numbers begin again: that of the last position before is 0.
    #[test]
    fn entries_name_positions_around_the_end_of_the_numbers() {
        use super::super::words::SEQUENCES;
        for position in [SEQUENCES - 1, SEQUENCES, SEQUENCES + 1] {
            let opens = Opens::default();
            assert_eq!(opens.enter(position, 2), Some(0));
            assert_eq!(opens.of(position), Some(Open::Held), "{position}");
            assert_eq!(opens.enter(7, 2), Some(1), "{position} has its entry");
            opens.hand_back(0, position, Open::Back);
            assert_eq!(opens.of(position), Some(Open::Back));
            opens.clear(0);
            assert_eq!(opens.enter(position, 2), Some(0));
            assert!(opens.acknowledge(0, position));
            assert_eq!(opens.of(position), None);
        }
    }
}
