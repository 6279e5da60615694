//! Room for a value: reserved, cleaned, or made by eviction.

use super::entry::OVERHEAD;
use super::{Store, lock};
use std::sync::atomic::Ordering;
use tranship_zcopy::{Error, ValueMut};

/// Bytes beyond a value's that are evicted for it where the manager admits nothing: as much as one pageblock of other
/// values may have to go.
const REFUSED_SLACK: u64 = 64 << 10;

impl Store {
    /// Reserves memory for a value of `len` bytes; evicts until there is room.
    #[must_use]
    pub fn reserve(&self, len: usize) -> Option<ValueMut> {
        self.make_room(len as u64 + OVERHEAD);
        for attempt in 0..64u64 {
            let lack = match self.arena.alloc(len) {
                Ok(value) => return Some(value),
                Err(lack) => lack,
            };
            // If the manager admits nothing, the cleaner has no room to work either: one attempt is enough.
            let refused = matches!(lack, Error::NotAdmitted { .. });
            if attempt == 0 || !refused {
                self.clean(4);
            }
            // Nor does it help to evict many times the needed memory: one client must not clear others' values.
            if refused && attempt * len as u64 >= 2 * (len as u64 + REFUSED_SLACK) {
                break;
            }
            if !self.evict_some(len as u64) {
                break;
            }
        }
        self.lacks();
        // Relaxed: a count.
        self.counts.no_memory.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Evicts values until `bytes` bytes fit.
    pub(super) fn make_room(&self, bytes: u64) {
        loop {
            let (memory, used) = self.memory();
            if used + bytes <= memory || !self.evict_some(used + bytes - memory) {
                return;
            }
        }
    }

    /// Evicts about `bytes` bytes, from all shards in turn. Returns false if nothing is left.
    fn evict_some(&self, bytes: u64) -> bool {
        let mut gone = 0;
        let mut any = false;
        // Relaxed: which one is first does not matter.
        let first = self.numbers.load(Ordering::Relaxed);
        for number in 0..self.shards.len() as u64 {
            let which = (first + number) % self.shards.len() as u64;
            let mut shard = lock(&self.shards[usize::try_from(which).expect("small")]);
            if let Some(index) = shard.oldest() {
                gone += shard.entry(index).cost();
                any = true;
                self.evict(&mut shard, index);
            }
            if gone >= bytes {
                break;
            }
        }
        any
    }
}
