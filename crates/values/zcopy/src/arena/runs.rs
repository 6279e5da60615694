//! Taken pageblocks of the arena's window: best fit, neighbours grow together again.

use std::collections::{BTreeMap, BTreeSet};

/// Hands out runs of pageblocks. Not synchronised: its owner locks it.
#[derive(Debug)]
pub(super) struct Runs {
    /// From here to `end` no block was ever taken.
    frontier: u32,
    end: u32,
    by_start: BTreeMap<u32, u32>,
    by_count: BTreeSet<(u32, u32)>,
}

impl Runs {
    pub(super) fn new(blocks: u32) -> Runs {
        Runs {
            frontier: 0,
            end: blocks,
            by_start: BTreeMap::new(),
            by_count: BTreeSet::new(),
        }
    }

    /// Creates places with these runs taken, in ascending order, apart from each other.
    pub(super) fn with_taken(blocks: u32, taken: &[(u32, u32)]) -> Runs {
        let mut runs = Runs::new(blocks);
        for &(start, count) in taken {
            if start > runs.frontier {
                runs.insert(runs.frontier, start - runs.frontier);
            }
            runs.frontier = start + count;
        }
        runs
    }

    /// Returns all free runs.
    pub(super) fn free_runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<_> = self
            .by_start
            .iter()
            .map(|(&at, &count)| (at, count))
            .collect();
        if self.frontier < self.end {
            runs.push((self.frontier, self.end - self.frontier));
        }
        runs
    }

    /// Returns the first of the places behind which all are free or were never taken.
    pub(super) fn frontier(&self) -> u32 {
        self.frontier
    }

    /// Takes a run of `count` pageblocks: returns the first one's number.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let first = match self.by_count.range((count, 0)..).next().copied() {
            Some((has, start)) => {
                self.remove(start, has);
                if has > count {
                    self.insert(start + count, has - count);
                }
                start
            }
            None => {
                let start = self.frontier;
                let end = start.checked_add(count).filter(|end| *end <= self.end)?;
                self.frontier = end;
                start
            }
        };
        Some(first)
    }

    /// Takes a run back.
    pub(super) fn give(&mut self, mut start: u32, mut count: u32) {
        if let Some((&before, &has)) = self.by_start.range(..start).next_back()
            && before + has == start
        {
            self.remove(before, has);
            (start, count) = (before, has + count);
        }
        if let Some(&has) = self.by_start.get(&(start + count)) {
            self.remove(start + count, has);
            count += has;
        }
        if start + count == self.frontier {
            self.frontier = start;
        } else {
            self.insert(start, count);
        }
    }

    fn insert(&mut self, start: u32, count: u32) {
        self.by_start.insert(start, count);
        self.by_count.insert((count, start));
    }

    fn remove(&mut self, start: u32, count: u32) {
        self.by_start.remove(&start);
        self.by_count.remove(&(count, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_never_overlap_and_all_come_together_again(
            steps in proptest::collection::vec((1u32..6, any::<bool>(), any::<prop::sample::Index>()), 1..200)
        ) {
            let mut free = Runs::new(64);
            let mut owner = [None; 64];
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for (count, give, which) in steps {
                if give && !runs.is_empty() {
                    let (start, count) = runs.swap_remove(which.index(runs.len()));
                    free.give(start, count);
                    owner[start as usize..(start + count) as usize].fill(None);
                } else if let Some(start) = free.take(count) {
                    for place in &mut owner[start as usize..(start + count) as usize] {
                        prop_assert!(place.replace(start).is_none());
                    }
                    runs.push((start, count));
                } else {
                    let longest = owner.split(Option::is_some).map(<[_]>::len).max();
                    prop_assert!(longest.unwrap_or(0) < count as usize);
                }
            }
            for (start, count) in runs {
                free.give(start, count);
            }
            prop_assert_eq!(free.take(64), Some(0));
        }
    }
}
