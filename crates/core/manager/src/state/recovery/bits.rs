//! A set of small numbers, as bits.

#[derive(Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Adds all from the first to the last.
    pub fn set(&mut self, (first, last): (u32, u32)) {
        let word = |i: u32| (i / 64) as usize;
        if self.0.len() <= word(last) {
            self.0.resize(word(last) + 1, 0);
        }
        for w in word(first)..=word(last) {
            let from = if w == word(first) { first % 64 } else { 0 };
            let to = if w == word(last) { last % 64 } else { 63 };
            self.0[w] |= (u64::MAX << from) & (u64::MAX >> (63 - to));
        }
    }

    pub fn has(&self, i: u32) -> bool {
        let word = self.0.get((i / 64) as usize);
        word.is_some_and(|w| w >> (i % 64) & 1 == 1)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_begin_and_end_where_they_say() {
        for (first, last) in [(0, 0), (0, 63), (63, 64), (5, 200), (64, 127), (127, 128)] {
            let mut bits = Bits::default();
            assert!(bits.is_empty());
            bits.set((first, last));
            assert!((0..300).all(|i| bits.has(i) == (first..=last).contains(&i)));
        }
    }
}
