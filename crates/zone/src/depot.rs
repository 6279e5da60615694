//! The depot: what threads exchange buckets with.

use crate::bucket::Bucket;

/// Empty buckets that are kept rather than given to the heap.
const EMPTIES: usize = 8;

/// Buckets with items and without. Its zone locks it.
#[derive(Debug, Default)]
pub(crate) struct Depot {
    full: Vec<Bucket>,
    empty: Vec<Bucket>,
    items: usize,
}

impl Depot {
    /// Items in all buckets.
    pub(crate) fn items(&self) -> usize {
        self.items
    }

    /// Stores a bucket, full, partly full or empty.
    pub(crate) fn put(&mut self, bucket: Bucket) {
        if !bucket.is_empty() {
            self.items += bucket.len();
            self.full.push(bucket);
        } else if self.empty.len() < EMPTIES && bucket.capacity() > 0 {
            self.empty.push(bucket);
        }
    }

    /// The bucket that came last.
    pub(crate) fn take_full(&mut self) -> Option<Bucket> {
        let bucket = self.full.pop()?;
        self.items -= bucket.len();
        Some(bucket)
    }

    /// One item of the bucket that came last.
    pub(crate) fn take_one(&mut self) -> Option<u32> {
        let mut bucket = self.take_full()?;
        let item = bucket.pop();
        self.put(bucket);
        item
    }

    /// An empty bucket of `capacity`; those of other sizes are dropped.
    pub(crate) fn take_empty(&mut self, capacity: usize) -> Bucket {
        while let Some(bucket) = self.empty.pop() {
            if bucket.capacity() == capacity {
                return bucket;
            }
        }
        Bucket::new(capacity)
    }

    /// Appends the items of the buckets that came first to `out`, until at most `keep` items are left.
    pub(crate) fn trim(&mut self, keep: usize, out: &mut Vec<u32>) {
        let mut count = 0;
        while self.items > keep {
            let bucket = &self.full[count];
            self.items -= bucket.len();
            out.extend_from_slice(bucket.items());
            count += 1;
        }
        for mut bucket in self.full.drain(..count) {
            if self.empty.len() < EMPTIES {
                bucket.clear();
                self.empty.push(bucket);
            }
        }
    }
}
