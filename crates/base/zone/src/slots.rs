//! Slot numbers: the names of items.
//!
//! An item is named by a `u32`. When a keg cuts a slab it asks for as many numbers as there are items, consecutive ones
//! when possible, and gives them back with the slab. An implementation of [`SlabHooks`](crate::SlabHooks) gives a
//! number its meaning (an entry of a shared slot table, counters).

use crate::bits::Bits;

/// The slot numbers of one slab, in the order of its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotSet {
    /// `count` numbers from `first` on.
    Range {
        /// The first item's number.
        first: u32,
        /// How many.
        count: u32,
    },
    /// One number for each item, when no range was free.
    List(Box<[u32]>),
    /// `count` numbers from `first` on, each `step` above the one before.
    Stride {
        /// The first item's number.
        first: u32,
        /// The distance of two numbers.
        step: u32,
        /// How many.
        count: u16,
    },
}

impl SlotSet {
    /// Returns the number of slot numbers.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Range { count, .. } => *count as usize,
            Self::List(list) => list.len(),
            Self::Stride { count, .. } => usize::from(*count),
        }
    }

    /// Says whether there are no numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of item `index`.
    #[must_use]
    pub fn get(&self, index: u16) -> Option<u32> {
        match self {
            Self::Range { first, count } => {
                (u32::from(index) < *count).then(|| first + u32::from(index))
            }
            Self::List(list) => list.get(usize::from(index)).copied(),
            Self::Stride { first, step, count } => {
                (index < *count).then(|| first + u32::from(index) * step)
            }
        }
    }

    /// Returns all numbers, in the order of the items.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..=u16::MAX).map_while(|index| self.get(index))
    }
}

/// The free numbers among `0 .. count`. Not synchronised.
#[derive(Debug)]
pub struct SlotNumbers {
    used: Bits,
    free: u32,
    /// No free number is below it.
    lowest: usize,
}

impl SlotNumbers {
    /// Makes `0 .. count`, all free.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            used: Bits::clear(count as usize),
            free: count,
            lowest: 0,
        }
    }

    /// Returns how many numbers are free.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Takes `count` numbers, consecutive ones if possible; `None` if fewer are free.
    pub fn take(&mut self, count: u32) -> Option<SlotSet> {
        if count == 0 || count > self.free {
            return None;
        }
        let hole = self.used.find_hole(self.lowest, count as usize);
        let set = if let Some(first) = hole.and_then(|hole| u32::try_from(hole.start).ok()) {
            self.used.set(first as usize..(first + count) as usize);
            SlotSet::Range { first, count }
        } else {
            let clear = self.used.holes(self.lowest).flatten();
            let list: Box<[u32]> = clear
                .take(count as usize)
                .filter_map(|at| u32::try_from(at).ok())
                .collect();
            for &slot in &list {
                self.used.set(slot as usize..slot as usize + 1);
            }
            SlotSet::List(list)
        };
        self.free -= count;
        self.lowest = self.used.next_clear(self.lowest).unwrap_or(usize::MAX);
        Some(set)
    }

    /// Gives numbers back.
    ///
    /// # Panics
    /// If one of the numbers is free already.
    pub fn give(&mut self, set: &SlotSet) {
        for slot in set.iter() {
            let at = slot as usize;
            assert!(self.used.get(at), "slot {slot} was free already");
            self.used.unset(at..at + 1);
            self.lowest = self.lowest.min(at);
            self.free += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_first_lists_when_scattered_and_nothing_when_short() {
        let mut numbers = SlotNumbers::new(10);
        let sets: Vec<_> = (0..5)
            .map(|_| numbers.take(2).expect("ten are free"))
            .collect();
        assert_eq!(sets[3], SlotSet::Range { first: 6, count: 2 });
        assert_eq!(numbers.take(1), None);
        numbers.give(&sets[1]);
        numbers.give(&sets[3]);
        assert_eq!(numbers.take(5), None);
        assert_eq!(numbers.take(3), Some(SlotSet::List([2, 3, 6].into())));
        assert_eq!(numbers.take(1), Some(SlotSet::Range { first: 7, count: 1 }));
        assert_eq!(numbers.free(), 0);
    }
}
