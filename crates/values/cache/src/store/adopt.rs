//! Handover of the store from one process to another: the arena's file stays, and the records of the keys are written
//! down and read.

use super::entry::Entry;
use super::{Store, StoreOptions, arena_options, lock};
use crate::image::Kept;
use crate::parse::KEY;
use std::os::fd::{BorrowedFd, OwnedFd};
use tranship_zcopy::{Arena, Error, ValuePlace};

/// Result of a [`Store::adopt`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adopted {
    /// Values that are there.
    pub values: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Items that were refused because their record cannot be true.
    pub refused: u64,
}

impl Store {
    /// Returns the records of all keys, and how many of them cannot be handed over. Nobody uses the store meanwhile.
    pub(crate) fn write_down(&self) -> (Vec<Kept>, u64) {
        let now = self.now();
        let (mut kept, mut lost) = (Vec::new(), 0);
        for shard in &self.shards {
            let shard = lock(shard);
            for index in shard.in_order() {
                let entry = shard.entry(index);
                if entry.is_over(now) {
                    continue;
                }
                let Some(place) = entry.value.place() else {
                    lost += 1;
                    continue;
                };
                kept.push(Kept {
                    key: entry.key.to_vec().into(),
                    flags: entry.flags,
                    cas: entry.cas,
                    expires_in: entry.expires.saturating_sub(now),
                    idle: now.saturating_sub(entry.read),
                    fetched: entry.fetched,
                    stale: entry.stale,
                    won: entry.won,
                    protected: entry.links.protected,
                    place,
                });
            }
        }
        (kept, lost)
    }

    /// Returns the arena's file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.arena.descriptor()
    }

    /// Returns the next unique number.
    pub(crate) fn next_number(&self) -> u64 {
        // Relaxed: nobody uses the store meanwhile.
        self.numbers.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Creates a store over another process's arena. No record is believed: a key that is none, and a value that cannot
    /// be at its place, is left out. [`Arena::begin`] has to come before the first use.
    ///
    /// # Errors
    /// If the file is no arena's, or the kernel refuses addresses.
    pub(crate) fn adopt(
        options: StoreOptions,
        file: OwnedFd,
        kept: &[Kept],
        numbers: u64,
    ) -> Result<(Store, Adopted), Error> {
        let places: Vec<ValuePlace> = kept.iter().map(|kept| kept.place).collect();
        let (arena, values) = Arena::adopt(file, &arena_options(&options), &places)?;
        let store = Store::over(&options, arena);
        let now = store.now();
        let mut adopted = Adopted::default();
        let mut next = numbers.max(1);
        for (kept, value) in kept.iter().zip(values) {
            let is_key = (1..=KEY).contains(&kept.key.len());
            let value = value.filter(|_| is_key);
            let (mut shard, hash) = store.shard(&kept.key);
            let Some(value) = value.filter(|_| shard.find(hash, &kept.key).is_none()) else {
                adopted.refused += 1;
                continue;
            };
            adopted.values += 1;
            adopted.bytes += value.len() as u64;
            next = next.max(kept.cas.saturating_add(1));
            let expires = match kept.expires_in {
                0 => 0,
                left => left.saturating_add(now),
            };
            let mut entry = Entry::new(&kept.key, hash, value, kept.flags, expires, kept.cas, now);
            entry.fetched = kept.fetched;
            entry.stale = kept.stale;
            entry.won = kept.won;
            // The clock is as old as this process, so a longer idle time cannot be expressed.
            entry.read = now.saturating_sub(kept.idle);
            let index = store.insert(&mut shard, entry);
            if kept.protected {
                shard.touch(index, now);
            }
        }
        // Relaxed: nobody else has the store.
        store
            .numbers
            .store(next, std::sync::atomic::Ordering::Relaxed);
        Ok((store, adopted))
    }

    /// Begins the use after [`Store::adopt`], when the former process writes no more.
    ///
    /// # Errors
    /// If the kernel refuses; then the store must not be used.
    pub(crate) fn begin(&self) -> std::io::Result<()> {
        self.arena.begin()?;
        // This process may have a smaller limit than the former one.
        self.make_room(0);
        Ok(())
    }
}
