//! A part of the keys: a table from hashes to entries, and the entries in the order in which they are evicted.

use super::entry::Entry;
use super::lru::Lists;
use hashbrown::HashTable;
use tranship_zcopy::Value;

#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    lists: Lists,
    /// Position where the search for expired items continues.
    looked: usize,
}

impl Shard {
    pub(super) fn entry(&self, index: u32) -> &Entry {
        self.entries[index as usize].as_ref().expect("in use")
    }

    pub(super) fn entry_mut(&mut self, index: u32) -> &mut Entry {
        self.entries[index as usize].as_mut().expect("in use")
    }

    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.table
            .find(hash, |&index| self.entry(index).key[..] == *key)
            .copied()
    }

    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        let (hash, cost) = (entry.hash, entry.cost());
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                index
            }
            None => {
                let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 keys");
                self.entries.push(Some(entry));
                index
            }
        };
        let entries = &self.entries;
        self.table.insert_unique(hash, index, |&index| {
            entries[index as usize].as_ref().expect("in use").hash
        });
        self.lists.add(&mut self.entries, index, cost);
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Entry {
        let hash = self.entry(index).hash;
        if let Ok(found) = self.table.find_entry(hash, |&other| other == index) {
            found.remove();
        }
        let cost = self.entry(index).cost();
        self.lists.take(&mut self.entries, index, cost);
        self.free.push(index);
        self.entries[index as usize].take().expect("in use")
    }

    /// Notes that an item was used: it is evicted later.
    pub(super) fn touch(&mut self, index: u32, now: u32) {
        self.lists.touch(&mut self.entries, index, now);
    }

    /// Notes that the cost of an item changed.
    pub(super) fn recount(&mut self, index: u32, before: u64, after: u64) {
        self.lists.recount(&self.entries, index, before, after);
    }

    /// Returns all items in the order of their eviction.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u32> {
        self.lists.in_order(&self.entries)
    }

    /// Returns the item that is evicted next.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.lists.oldest()
    }

    /// Returns some entries after those of the last time.
    pub(super) fn next_to_look_at(&mut self, count: usize) -> Vec<u32> {
        let from = if self.looked < self.entries.len() {
            self.looked
        } else {
            0
        };
        let to = (from + count).min(self.entries.len());
        self.looked = to;
        (from..to)
            .filter(|&index| self.entries[index].is_some())
            .map(|index| u32::try_from(index).expect("fewer than 2^32 keys"))
            .collect()
    }
}

impl Shard {
    /// Returns entries from a place on, `count` places at most, whose value is wanted; and the place to continue at.
    pub(super) fn those_with(
        &self,
        from: usize,
        count: usize,
        wanted: &impl Fn(&Value) -> bool,
    ) -> (Vec<u32>, Option<usize>) {
        let to = (from + count).min(self.entries.len());
        let found = (from..to)
            .filter(|&index| {
                self.entries[index]
                    .as_ref()
                    .is_some_and(|e| wanted(&e.value))
            })
            .map(|index| u32::try_from(index).expect("fewer than 2^32 keys"))
            .collect();
        (found, (to < self.entries.len()).then_some(to))
    }
}
