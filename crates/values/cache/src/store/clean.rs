//! The cleaner. Slots of protected pageblocks are not used again before all of the block is free. Blocks that hold few
//! values are therefore emptied by copying these elsewhere, as a log-structured file system cleans segments.
//!
//! It works only while blocks hold a quarter more than the stored values need, and takes the emptiest first. A block
//! that is a tenth full costs a tenth of a block's copying and gives back nine tenths.

use super::shard::Shard;
use super::{Store, lock};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tranship_zcopy::{Value, ValueMut};

impl Store {
    /// Empties some pageblocks, if it is worth it.
    pub(super) fn clean(&self, blocks: usize) {
        let held = self.arena.stats().used_bytes;
        let (_, used) = self.memory();
        if held >= used + used / 4 + (16 << 20) {
            self.empty_blocks(blocks);
        }
    }

    /// Empties the emptiest pageblocks of which at most half is in use.
    pub(super) fn empty_blocks(&self, blocks: usize) {
        // One thread at a time; others need not wait for it. Ordering: acquire with release below, so that the changes
        // of one round are seen by the next.
        if self.cleaner.swap(1, Ordering::Acquire) == 1 {
            return;
        }
        let sparse = self.arena.sparse(blocks);
        if !sparse.is_empty() {
            let wanted = |value: &Value| sparse.binary_search(&value.block()).is_ok();
            for shard in &self.shards {
                self.move_away(shard, &wanted);
            }
        }
        self.cleaner.store(0, Ordering::Release);
    }

    /// Moves a shard's wanted values elsewhere, as far as there is room.
    pub(super) fn move_away(&self, shard: &Mutex<Shard>, wanted: &impl Fn(&Value) -> bool) {
        let mut reserved = None::<ValueMut>;
        // The whole shard is checked, in parts, so that no thread waits long for its lock.
        let mut from = 0;
        loop {
            let mut shard = lock(shard);
            let (found, next) = shard.those_with(from, 4096, wanted);
            let mut lacks = None::<(u32, usize)>;
            for index in found {
                let old = &mut shard.entry_mut(index).value;
                let Some(mut new) = self.room_for(&mut reserved, old.len()) else {
                    lacks = Some((index, old.len()));
                    break;
                };
                new.copy_from_slice(old);
                self.left.add(std::mem::replace(old, new.freeze()));
                // Relaxed: a count.
                self.counts.moved.fetch_add(1, Ordering::Relaxed);
            }
            drop(shard);
            // Now the manager may be asked.
            let lacks = lacks.and_then(|(index, len)| Some((index, self.arena.alloc(len).ok()?)));
            // Continues with the item that lacked room: the ones before it were moved, perhaps into a block that was
            // wanted.
            (from, reserved) = match (lacks, next) {
                (Some((index, room)), _) => (index as usize, Some(room)),
                (None, Some(next)) => (next, None),
                (None, None) => break,
            };
        }
    }
}
