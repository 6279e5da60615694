//! The depot: threads exchange buckets with it.

use crate::bucket::Bucket;
use crate::wss::WorkingSet;
use std::collections::VecDeque;

/// Empty buckets that are kept rather than given to the heap.
const EMPTIES: usize = 8;

/// Buckets with items and without. The zone locks it.
#[derive(Debug, Default)]
pub(crate) struct Depot {
    /// Full buckets, the latest at the back.
    full: VecDeque<Bucket>,
    empty: Vec<Bucket>,
    items: usize,
    needed: WorkingSet,
}

impl Depot {
    /// Returns the number of items in all buckets.
    pub(crate) fn items(&self) -> usize {
        self.items
    }

    /// Stores a bucket, full, partly full or empty.
    pub(crate) fn put(&mut self, bucket: Bucket) {
        if !bucket.is_empty() {
            self.items += bucket.len();
            self.full.push_back(bucket);
            self.needed.rose(self.items);
        } else if self.empty.len() < EMPTIES && bucket.capacity() > 0 {
            self.empty.push(bucket);
        }
    }

    /// Takes the latest bucket.
    pub(crate) fn take_full(&mut self) -> Option<Bucket> {
        let bucket = self.full.pop_back()?;
        self.items -= bucket.len();
        self.needed.fell(self.items);
        Some(bucket)
    }

    /// Takes one item of the latest bucket.
    pub(crate) fn take_one(&mut self) -> Option<u32> {
        let mut bucket = self.take_full()?;
        let item = bucket.pop();
        self.put(bucket);
        item
    }

    /// Takes an empty bucket of `capacity`; buckets of other sizes are dropped.
    pub(crate) fn take_empty(&mut self, capacity: usize) -> Bucket {
        while let Some(bucket) = self.empty.pop() {
            if bucket.capacity() == capacity {
                return bucket;
            }
        }
        Bucket::new(capacity)
    }

    /// Takes the oldest bucket, if there are more than `keep` items, to be given back.
    pub(crate) fn take_surplus(&mut self, keep: usize) -> Option<Bucket> {
        if self.items <= keep {
            return None;
        }
        let bucket = self.full.pop_front()?;
        self.items -= bucket.len();
        self.needed.trimmed(bucket.len(), self.items);
        // A table that grew in a peak of use is shrunk too.
        if self.full.len() < self.full.capacity() / 4 {
            self.full.shrink_to(self.full.len() * 2);
        }
        Some(bucket)
    }

    /// Ends a period; returns how many items should stay.
    pub(crate) fn period(&mut self) -> usize {
        self.needed.period(self.items)
    }

    /// Returns the number of items worth keeping, as far as known.
    pub(crate) fn working_set(&self) -> usize {
        self.needed.estimate()
    }
}
