//! The lines of one ring that have ended and whose buffers are not free yet.

use std::collections::VecDeque;

/// A buffer that an ended line named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) position: u64,
    pub(super) slot: u32,
    /// Whether a window covers the line, as seen in this round.
    pub(super) covered: bool,
}

/// Entries of one ring, each list in the order of positions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ended {
    /// Found held by earlier rounds: all of it is in the batch.
    held: Vec<Entry>,
    /// Found held by this round.
    next: Vec<Entry>,
    /// Ended since the last round began. The first `batch` entries are in the batch.
    retired: VecDeque<Entry>,
    batch: usize,
}

impl Ended {
    pub(super) fn retire(&mut self, position: u64, slot: u32) {
        self.retired.push_back(Entry {
            position,
            slot,
            covered: false,
        });
    }

    /// Puts everything into the batch.
    pub(super) fn fix(&mut self) {
        self.batch = self.retired.len();
    }

    /// Returns the number of entries of the batch.
    pub(super) fn batch(&self) -> usize {
        self.held.len() + self.batch
    }

    /// Returns an entry of the batch.
    pub(super) fn get(&self, at: usize) -> Option<Entry> {
        match at.checked_sub(self.held.len()) {
            None => self.held.get(at).copied(),
            Some(at) if at < self.batch => self.retired.get(at).copied(),
            Some(_) => None,
        }
    }

    /// Marks the entries that a window covers. `hint` is the index at which the last search ended; it is updated.
    pub(super) fn cover(&mut self, low: u64, len: u64, hint: &mut usize) {
        let Some(last) = self.batch().checked_sub(1).and_then(|last| self.get(last)) else {
            return;
        };
        // The window's first position near to the batch, which may be anything.
        let low = tranship_ring::broadcast::at(last.position, low);
        if low > last.position {
            return;
        }
        let covers = |entry: &Entry| entry.position.wrapping_sub(low) < len;
        if self.held.last().is_some_and(|last| last.position >= low) {
            let begins = |at: usize| at == 0 || self.held[at - 1].position < low;
            if !(self
                .held
                .get(*hint)
                .is_some_and(|entry| entry.position >= low)
                && begins(*hint))
            {
                *hint = self.held.partition_point(|entry| entry.position < low);
            }
            for entry in self.held[*hint..]
                .iter_mut()
                .take_while(|entry| covers(entry))
            {
                entry.covered = true;
            }
        }
        let in_retired = self.batch > 0
            && self
                .retired
                .front()
                .is_some_and(|first| first.position < low.saturating_add(len));
        if in_retired {
            let first = self.retired.partition_point(|entry| entry.position < low);
            let end = self.batch.max(first);
            for entry in self.retired.range_mut(first..end) {
                if !covers(entry) {
                    break;
                }
                entry.covered = true;
            }
        }
    }

    /// Takes an entry of the batch out of it, in their order; `at` counts them. None: that were all.
    #[inline(always)]
    pub(super) fn take(&mut self, at: usize) -> Option<Entry> {
        if let Some(entry) = self.held.get(at) {
            return Some(*entry);
        }
        self.batch = self.batch.checked_sub(1)?;
        self.retired.pop_front()
    }

    /// Puts an entry into the next batch.
    pub(super) fn keep(&mut self, entry: Entry) {
        self.next.push(Entry {
            covered: false,
            ..entry
        });
    }

    /// Ends the round, after all entries were taken.
    pub(super) fn turn(&mut self) {
        std::mem::swap(&mut self.held, &mut self.next);
        self.next.clear();
    }
}
