//! A bitmap that finds holes: the arithmetic under runs and slot numbers.

use std::ops::Range;

/// A fixed number of bits; "hole" means a range of clear bits.
#[derive(Debug, Clone)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// Makes `len` clear bits.
    pub(crate) fn clear(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
        }
    }

    /// Makes `len` set bits.
    pub(crate) fn full(len: usize) -> Self {
        let mut bits = Self::clear(len);
        bits.set(0..len);
        bits
    }

    pub(crate) fn get(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    pub(crate) fn set(&mut self, range: Range<usize>) {
        self.each_word(range, |word, mask| *word |= mask);
    }

    pub(crate) fn unset(&mut self, range: Range<usize>) {
        self.each_word(range, |word, mask| *word &= !mask);
    }

    /// Says whether every bit of `range` is set.
    pub(crate) fn all_set(&self, range: Range<usize>) -> bool {
        self.next_clear(range.start)
            .is_none_or(|at| at >= range.end)
    }

    fn each_word(&mut self, range: Range<usize>, mut change: impl FnMut(&mut u64, u64)) {
        assert!(range.end <= self.len, "bits {range:?} of {}", self.len);
        let mut at = range.start;
        while at < range.end {
            let low = at % 64;
            let count = (64 - low).min(range.end - at);
            change(&mut self.words[at / 64], (u64::MAX >> (64 - count)) << low);
            at += count;
        }
    }

    /// Returns the first set bit at or after `from`.
    pub(crate) fn next_set(&self, from: usize) -> Option<usize> {
        self.next(from, 0)
    }

    /// Returns the first clear bit at or after `from`.
    pub(crate) fn next_clear(&self, from: usize) -> Option<usize> {
        self.next(from, u64::MAX)
    }

    fn next(&self, from: usize, flip: u64) -> Option<usize> {
        if from >= self.len {
            return None;
        }
        let mut index = from / 64;
        let mut word = (self.words[index] ^ flip) & (u64::MAX << (from % 64));
        while word == 0 {
            index += 1;
            word = *self.words.get(index)? ^ flip;
        }
        let at = index * 64 + word.trailing_zeros() as usize;
        (at < self.len).then_some(at)
    }

    /// Returns the last set bit before `before`.
    fn previous_set(&self, before: usize) -> Option<usize> {
        if before == 0 {
            return None;
        }
        let mut index = (before - 1) / 64;
        let mut word = self.words[index] & (u64::MAX >> (63 - (before - 1) % 64));
        while word == 0 {
            index = index.checked_sub(1)?;
            word = self.words[index];
        }
        Some(index * 64 + 63 - word.leading_zeros() as usize)
    }

    /// Returns the hole around the clear bit `at`.
    pub(crate) fn hole_around(&self, at: usize) -> Range<usize> {
        debug_assert!(!self.get(at));
        let start = self.previous_set(at).map_or(0, |last| last + 1);
        start..self.next_set(at).unwrap_or(self.len)
    }

    /// Returns all holes, in order, from bit `from` on.
    pub(crate) fn holes(&self, from: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let start = self.next_clear(at)?;
            let end = self.next_set(start).unwrap_or(self.len);
            at = end;
            Some(start..end)
        })
    }

    /// Returns the first hole of at least `count` bits.
    pub(crate) fn find_hole(&self, from: usize, count: usize) -> Option<Range<usize>> {
        self.holes(from).find(|hole| hole.len() >= count)
    }

    pub(crate) fn longest_hole(&self) -> usize {
        self.holes(0).map(|hole| hole.len()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_vector_of_bools(
            len in 1usize..300,
            edits in prop::collection::vec((any::<bool>(), 0usize..300, 0usize..150), 0..30),
            from in 0usize..310,
            count in 1usize..100,
        ) {
            let mut bits = Bits::clear(len);
            let mut model = vec![false; len];
            for (value, start, length) in edits {
                let start = start.min(len);
                let end = (start + length).min(len);
                if value { bits.set(start..end) } else { bits.unset(start..end) }
                model[start..end].fill(value);
            }
            let next = |value| (from..len).find(|&at| model[at] == value);
            prop_assert_eq!(bits.next_set(from), next(true));
            prop_assert_eq!(bits.next_clear(from), next(false));
            let naive = (0..len).find(|&at| (at..at + count).all(|i| i < len && !model[i]));
            prop_assert_eq!(bits.find_hole(0, count).map(|hole| hole.start), naive);
            let longest = model.split(|&set| set).map(<[bool]>::len).max().unwrap_or(0);
            prop_assert_eq!(bits.longest_hole(), longest);
            for at in (0..len).filter(|&at| !model[at]) {
                let hole = bits.hole_around(at);
                prop_assert!(hole.contains(&at) && model[hole.clone()].iter().all(|set| !set));
                prop_assert!(hole.start == 0 || model[hole.start - 1]);
                prop_assert!(hole.end == len || model[hole.end]);
            }
        }
    }
}
