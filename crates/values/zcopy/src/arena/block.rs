//! Records of pageblocks. They lie outside the blocks, so that a free touches no page that was sent.

use super::classes::{Class, Cut};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Pageblocks whose locks are made together, when the first of them is needed.
pub(super) const GROUP: u32 = 256;

/// State of a pageblock's mapping in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    /// Being filled, or free: writes reach the file. Sent by copying.
    Shared = 0,
    /// The file's pages no longer change. Sent without copying.
    Frozen = 1,
    /// A fork came while the block was being filled, so its content is this process's own. It is sent by copying.
    Private = 2,
}

/// One [`State`] and [`Kind`] for each pageblock, to be read without a lock, and in a forked child, where locks may be
/// held by threads that are not there.
#[derive(Debug)]
pub(super) struct States(Box<[AtomicU8]>, Box<[AtomicU32]>);

/// Use of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Nothing.
    Free,
    /// The block is cut for the class of this number.
    Cut(usize),
    /// A large value begins here. The number is its pages.
    Large(u32),
}

impl States {
    pub(super) fn new(blocks: u32) -> States {
        // Zeros, which the kernel provides when they are touched.
        let zeros = vec![0u8; blocks as usize].into_boxed_slice();
        let kinds = vec![0u32; blocks as usize].into_boxed_slice();
        // SAFETY: an atomic integer has the layout of a plain one (both are aligned alike), and the boxes are ours.
        unsafe {
            States(
                Box::from_raw(Box::into_raw(zeros) as *mut [AtomicU8]),
                Box::from_raw(Box::into_raw(kinds) as *mut [AtomicU32]),
            )
        }
    }

    pub(super) fn kind(&self, block: u32) -> Kind {
        // Ordering: acquire, partner of the release in `set_kind`.
        match self.1[block as usize].load(Ordering::Acquire) {
            0 => Kind::Free,
            word if word & LARGE != 0 => Kind::Large(word & !LARGE),
            word => Kind::Cut(word as usize - 1),
        }
    }

    pub(super) fn set_kind(&self, block: u32, kind: Kind) {
        let word = match kind {
            Kind::Free => 0,
            Kind::Cut(class) => u32::try_from(class).expect("few") + 1,
            Kind::Large(pages) => pages | LARGE,
        };
        // Ordering: release, see `kind`.
        self.1[block as usize].store(word, Ordering::Release);
    }

    /// Ordering: acquire, partner of the release in [`States::set`]: a thread that sees `Frozen` sees the mapping
    /// exchanged.
    pub(super) fn get(&self, block: u32) -> State {
        match self.0[block as usize].load(Ordering::Acquire) & !(LENT | SENT | WAITS) {
            0 => State::Shared,
            1 => State::Frozen,
            _ => State::Private,
        }
    }

    /// Sets the state. In it, nothing of the block has been sent yet, and its pages were not lent.
    pub(super) fn set(&self, block: u32, state: State) {
        let next = |before: u8| Some(before & WAITS | state as u8);
        // Ordering: release, see `get`. Relaxed: other threads own the bits that are kept.
        let _ = self.0[block as usize].fetch_update(Ordering::Release, Ordering::Relaxed, next);
    }

    /// Notes that, until the next [`States::set`], the kernel or a forked child may refer to its pages.
    pub(super) fn lend(&self, block: u32) {
        self.mark(block, LENT);
    }

    pub(super) fn was_lent(&self, block: u32) -> bool {
        self.is_marked(block, LENT)
    }

    /// Notes that, until the next [`States::set`] or [`States::unused`], something of it was sent, in whatever way.
    pub(super) fn sent(&self, block: u32) {
        self.mark(block, SENT);
    }

    pub(super) fn was_sent(&self, block: u32) -> bool {
        self.is_marked(block, SENT)
    }

    /// Notes that nothing is in it any more.
    pub(super) fn unused(&self, block: u32) {
        if self.is_marked(block, SENT) {
            // Relaxed: see `mark`.
            self.0[block as usize].fetch_and(!SENT, Ordering::Relaxed);
        }
    }

    fn mark(&self, block: u32, bit: u8) {
        let state = &self.0[block as usize];
        // Relaxed: the thread that gives the block back has dropped its values after this, or holds the lock that a
        // fork held.
        if state.load(Ordering::Relaxed) & bit == 0 {
            state.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn is_marked(&self, block: u32, bits: u8) -> bool {
        // Relaxed: see `mark`.
        self.0[block as usize].load(Ordering::Relaxed) & bits != 0
    }

    /// Adds the block to those that wait to be frozen; false if it is among them already.
    pub(super) fn wait(&self, block: u32) -> bool {
        // Ordering: release, partner of the acquire in `wait_no_more`: the thread that takes it out of the list then
        // sees that it is full.
        self.0[block as usize].fetch_or(WAITS, Ordering::AcqRel) & WAITS == 0
    }

    pub(super) fn waits(&self, block: u32) -> bool {
        self.is_marked(block, WAITS)
    }

    /// Notes that the block was taken out of the list and is checked now.
    pub(super) fn wait_no_more(&self, block: u32) {
        // Ordering: acquire, see `wait`.
        self.0[block as usize].fetch_and(!WAITS, Ordering::AcqRel);
    }
}

const LARGE: u32 = 1 << 31;
/// Beside a state: its pages were lent, something of it was sent, it waits to be frozen.
const LENT: u8 = 1 << 7;
const SENT: u8 = 1 << 6;
const WAITS: u8 = 1 << 5;

/// Owner of a pageblock.
#[derive(Debug, Default)]
pub(super) enum Block {
    /// No owner.
    #[default]
    Free,
    /// Values of up to [`super::classes::LARGEST`] bytes.
    Cut(Box<Slots>),
    /// The first block of a large value.
    Large(Large),
    /// A further one.
    Tail,
}

/// A large value's run of pageblocks.
#[derive(Debug)]
pub(super) struct Large {
    /// Bytes asked for.
    pub(super) len: usize,
    pub(super) blocks: u32,
    /// Bytes of them that have memory, or may have.
    pub(super) bytes: u64,
    /// Still a `ValueMut`.
    pub(super) filling: bool,
    /// The block is being frozen: the thread that freezes it gives it back, not the thread that frees its last value.
    pub(super) freezing: bool,
    pub(super) freed: bool,
}

/// A pageblock that is cut into slots.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) cut: Cut,
    /// A bit for each slot.
    used: Box<[u64]>,
    pub(super) live: u32,
    main_free: u32,
    side_free: u32,
    /// Slots that a thread still writes.
    pub(super) filling: u32,
    /// See [`Large::freezing`].
    pub(super) freezing: bool,
    /// Number of this use of the place. It tells threads that remember the place without its lock whether it is still
    /// the same use.
    pub(super) born: u64,
    /// The heap that fills it.
    pub(super) heap: usize,
    /// Slots of the side class may still be taken.
    pub(super) side_open: bool,
    /// Position of the block in the heap's lists.
    pub(super) listed: Listed,
}

/// Position of a pageblock from which a heap takes slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Listed {
    /// Listed for its main class.
    pub(super) main: bool,
    /// Listed for its side class.
    pub(super) side: bool,
}

impl Slots {
    pub(super) fn new(cut: Cut, heap: usize, born: u64) -> Slots {
        let count = |slots: usize| u32::try_from(slots).expect("at most 4096 slots");
        Slots {
            used: vec![0; cut.all_slots().div_ceil(64)].into_boxed_slice(),
            live: 0,
            main_free: count(cut.slots),
            side_free: count(cut.all_slots() - cut.slots),
            filling: 0,
            freezing: false,
            born,
            heap,
            side_open: cut.side.is_some(),
            listed: Listed::default(),
            cut,
        }
    }

    /// Returns the free slots of a class.
    pub(super) fn free_of(&self, class: Class) -> u32 {
        match class {
            class if class == self.cut.main => self.main_free,
            class if Some(class) == self.cut.side => self.side_free,
            _ => 0,
        }
    }

    /// Takes a slot of a class.
    pub(super) fn take(&mut self, class: Class) -> Option<usize> {
        let (range, free) = if class == self.cut.main {
            (0..self.cut.slots, &mut self.main_free)
        } else if Some(class) == self.cut.side {
            (self.cut.slots..self.cut.all_slots(), &mut self.side_free)
        } else {
            return None;
        };
        *free = free.checked_sub(1)?;
        let slot = first_clear(&self.used, range).expect("as many clear bits as the count says");
        self.used[slot / 64] |= 1 << (slot % 64);
        self.live += 1;
        Some(slot)
    }

    /// Takes a certain slot; false if it is in use.
    pub(super) fn take_at(&mut self, slot: usize) -> bool {
        let (word, bit) = (&mut self.used[slot / 64], 1 << (slot % 64));
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.live += 1;
        if slot < self.cut.slots {
            self.main_free -= 1;
        } else {
            self.side_free -= 1;
        }
        true
    }

    /// Gives a slot back.
    ///
    /// # Panics
    /// If it is not in use: it was freed twice.
    pub(super) fn give(&mut self, slot: usize) {
        let (word, bit) = (&mut self.used[slot / 64], 1 << (slot % 64));
        assert!(*word & bit != 0, "freed twice: slot {slot}");
        *word &= !bit;
        self.live -= 1;
        if slot < self.cut.slots {
            self.main_free += 1;
        } else {
            self.side_free += 1;
        }
    }

    /// Returns whether the block is worth freezing: every main slot is in use, those of the side class too or given up,
    /// and no thread writes.
    pub(super) fn is_full(&self) -> bool {
        let side_done = !self.side_open || self.side_free == 0;
        self.main_free == 0 && self.filling == 0 && side_done
    }
}

/// Returns the first clear bit of a range.
fn first_clear(words: &[u64], range: std::ops::Range<usize>) -> Option<usize> {
    let mut at = range.start;
    while at < range.end {
        let clear = !words[at / 64] >> (at % 64);
        if clear != 0 {
            let found = at + clear.trailing_zeros() as usize;
            return (found < range.end).then_some(found);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}
