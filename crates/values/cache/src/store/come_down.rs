//! Return of memory to the manager: pageblocks that hold few values are emptied, and then those with the values that
//! were asked for longest ago.
//!
//! Memory goes back by the pageblock. Values that are evicted one by one, each out of another, give nothing back for
//! long: so all of a pageblock goes, and of pageblocks no more than are wanted.

use super::shard::Shard;
use super::{Store, lock};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Sparse pageblocks that are emptied in one go.
const BLOCKS: usize = 64;
/// Entries that are checked under a shard's lock in one pass. Another pass follows soon.
const LOOKED_AT: usize = 4096;

impl Store {
    /// Checks a part of the stored items, and removes those that have expired. Makes the arena give memory back, above
    /// all memory that the manager wants. To be called now and then.
    pub fn tidy(&self) {
        let now = self.now();
        for shard in &self.shards {
            let mut shard = lock(shard);
            for index in shard.next_to_look_at(256) {
                if shard.entry(index).is_over(now) {
                    self.expire(&mut shard, index);
                }
            }
        }
        self.clean(16);
        self.come_down();
        if self.arena.excess() > 0 {
            self.lacks();
        }
    }

    /// Gives back the wanted memory, and one pageblock more at most, as far as no reply holds the values. If that is
    /// not all, the next call goes on.
    fn come_down(&self) {
        let wanted = self.arena.excess();
        if wanted == 0 {
            return;
        }
        tracing::info!(bytes = wanted, "the manager wants memory back");
        self.empty_blocks(BLOCKS);
        let mut left = wanted.min(self.arena.excess());
        let mut blocks = BTreeSet::new();
        let shards = self.shards.len() as u64;
        for (shard, rest) in self.shards.iter().zip((1..=shards).rev()) {
            let part = self.oldest_blocks(shard, left.div_ceil(rest), &mut blocks);
            left = left.saturating_sub(part);
        }
        if !blocks.is_empty() {
            for shard in &self.shards {
                // Emptied blocks may be in use again, by a value that was just stored.
                if self.arena.excess() == 0 {
                    break;
                }
                self.evict_from(shard, &blocks);
            }
        }
    }

    /// Adds pageblocks of about `wanted` bytes: those of the values that a shard would evict first. It evicts values
    /// with memory of their own at once. Returns the number of bytes.
    fn oldest_blocks(&self, shard: &Mutex<Shard>, wanted: u64, blocks: &mut BTreeSet<u32>) -> u64 {
        let mut found = 0;
        let mut alone = Vec::new();
        let mut shard = lock(shard);
        for index in shard.in_order().take(LOOKED_AT) {
            if found >= wanted {
                break;
            }
            let value = &shard.entry(index).value;
            if value.is_alone() {
                alone.push(index);
            } else if !blocks.insert(value.block()) {
                continue;
            }
            found += value.memory_bytes();
        }
        for index in alone {
            self.evict(&mut shard, index);
        }
        found
    }

    /// Evicts the values in these pageblocks. A value that was asked for more than once is moved elsewhere, if there is
    /// a free slot for it.
    fn evict_from(&self, shard: &Mutex<Shard>, blocks: &BTreeSet<u32>) {
        let mut from = Some(0);
        while let Some(at) = from {
            let mut shard = lock(shard);
            let (found, next) =
                shard.those_with(at, LOOKED_AT, &|value| blocks.contains(&value.block()));
            for index in found {
                let entry = shard.entry(index);
                let room = entry
                    .links
                    .protected
                    .then(|| self.arena.alloc_admitted(entry.value.len()).ok());
                match room.flatten() {
                    Some(mut new) if !blocks.contains(&new.block()) => {
                        new.copy_from_slice(&entry.value);
                        let old = &mut shard.entry_mut(index).value;
                        self.left.add(std::mem::replace(old, new.freeze()));
                        // Relaxed: a count.
                        self.counts.moved.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => self.evict(&mut shard, index),
                }
            }
            from = next;
        }
    }
}
