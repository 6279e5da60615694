//! Writes that share a block wait for each other, in the order in which they came.
//!
//! Thus the disk gets whole requests, and a write of a part of a block never takes back its neighbour's. A request that
//! is repeated after its connection broke comes after its first instance.

use std::collections::VecDeque;
use std::ops::Range;

/// Requests that wait, and those that run. `T` is a request to begin.
#[derive(Debug)]
pub(super) struct Overlaps<T> {
    running: Vec<Range<u64>>,
    waiting: VecDeque<(Range<u64>, T)>,
}

impl<T> Default for Overlaps<T> {
    fn default() -> Self {
        Overlaps {
            running: Vec::new(),
            waiting: VecDeque::new(),
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<T> Overlaps<T> {
    /// Begins a request, or keeps it. Returns it if it may begin now.
    pub(super) fn begin(&mut self, range: Range<u64>, what: T) -> Option<T> {
        let waiting = self.waiting.iter().map(|(range, _)| range);
        if self
            .running
            .iter()
            .chain(waiting)
            .any(|r| overlap(r, &range))
        {
            self.waiting.push_back((range, what));
            return None;
        }
        self.running.push(range);
        Some(what)
    }

    /// Removes a request that is over; returns those that begin now.
    pub(super) fn end(&mut self, range: &Range<u64>) -> Vec<T> {
        if let Some(at) = self.running.iter().position(|r| r == range) {
            self.running.swap_remove(at);
        }
        let mut begun = Vec::new();
        let mut still: VecDeque<(Range<u64>, T)> = VecDeque::new();
        for (range, what) in self.waiting.drain(..) {
            let before = still.iter().map(|(range, _)| range);
            if self
                .running
                .iter()
                .chain(before)
                .any(|r| overlap(r, &range))
            {
                still.push_back((range, what));
            } else {
                self.running.push(range);
                begun.push(what);
            }
        }
        self.waiting = still;
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_wait_in_order_and_only_for_those_that_they_meet() {
        let mut writes = Overlaps::default();
        assert_eq!(writes.begin(0..2, 'a'), Some('a'));
        assert_eq!(writes.begin(2..4, 'b'), Some('b'));
        assert_eq!(writes.begin(1..3, 'c'), None);
        // The range is free, but the request would overtake the one that waits.
        assert_eq!(writes.begin(2..3, 'd'), None);
        assert_eq!(writes.begin(9..10, 'e'), Some('e'));
        assert_eq!(writes.end(&(0..2)), []);
        assert_eq!(writes.end(&(2..4)), ['c']);
        assert_eq!(writes.end(&(9..10)), []);
        assert_eq!(writes.end(&(1..3)), ['d']);
        assert_eq!(writes.end(&(2..3)), []);
        assert!(writes.running.is_empty() && writes.waiting.is_empty());
    }
}
