//! Parts of an arena's addresses that can be touched: those in which a pageblock is taken. All else is inaccessible. So
//! a walker of a process's memory (a debugger, a memory test after a crash, mlockall(2)) gives no pages to it.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

/// Bytes of a part, at least: a change of rights is a system call for each mapping.
const PART: usize = 1 << 20;

/// Number of pageblocks of each part that are taken, with those that wait for children or are kept with their pages.
#[derive(Debug)]
pub(super) struct Opened {
    taken: Box<[AtomicU16]>,
    /// Pageblocks of a part, as a power of two.
    shift: u32,
}

// All relaxed: counts change under `Room`'s lock; a fork that misses a change sees a pageblock that is being taken or
// given back.
impl Opened {
    /// Creates a map of `blocks` pageblocks. None of them is taken.
    pub(super) fn new(blocks: u32, block_bytes: usize) -> Opened {
        let shift = (PART / block_bytes).max(1).trailing_zeros();
        let parts = blocks.div_ceil(1 << shift);
        Opened {
            taken: (0..parts).map(|_| AtomicU16::new(0)).collect(),
            shift,
        }
    }

    /// Returns whether the block can be touched.
    pub(super) fn has(&self, block: u32) -> bool {
        self.taken[(block >> self.shift) as usize].load(Ordering::Relaxed) > 0
    }

    /// Counts a run of blocks, taken or given back. Says which blocks can be touched from now on, or no more: they are
    /// in a row, as a part in the middle has nothing but this run.
    pub(super) fn count(&self, first: u32, blocks: u32, taken: bool) -> Range<u32> {
        let end = first + blocks;
        let parts = first >> self.shift..((end - 1) >> self.shift) + 1;
        let mut turned: Option<Range<u32>> = None;
        for part in parts {
            let start = part << self.shift;
            let of_it = end.min(start + (1 << self.shift)) - first.max(start);
            let of_it = u16::try_from(of_it).expect("at most 64");
            let count = &self.taken[part as usize];
            let turns = if taken {
                count.fetch_add(of_it, Ordering::Relaxed) == 0
            } else {
                count.fetch_sub(of_it, Ordering::Relaxed) == of_it
            };
            if turns {
                let first = turned.map_or(start, |before| before.start);
                turned = Some(first..start + (1 << self.shift));
            }
        }
        turned.unwrap_or(first..first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_open_as_long_as_a_block_of_it_is_taken() {
        // Parts of 16 blocks.
        let opened = Opened::new(256, 64 << 10);
        assert_eq!(opened.count(3, 1, true), 0..16);
        assert_eq!(opened.count(4, 2, true), 4..4);
        assert_eq!(opened.count(10, 40, true), 16..64);
        assert!(opened.has(63) && !opened.has(64));
        assert_eq!(opened.count(3, 3, false), 3..3);
        assert_eq!(opened.count(10, 40, false), 0..64);
        assert!(!opened.has(3));
        // A part is at least a block.
        let opened = Opened::new(256, 2 << 20);
        assert_eq!(opened.count(7, 2, true), 7..9);
        assert_eq!(opened.count(8, 1, false), 8..9);
    }
}
