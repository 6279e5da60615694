//! Values by key: at most so many bytes, of which the longest unused give way.

use crate::wait::Who;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

pub(crate) type Key = Box<[u8]>;

/// How long a parked value waits for its taker after the domain that parked it is gone.
pub(crate) const ORPHANED: Duration = Duration::from_secs(60);

/// How a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Evicted when others need its room.
    Kept,
    Pinned,
    /// Kept for one taker.
    Parked,
    /// A block, as long as a domain has it open.
    Block,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: u64,
    kind: Kind,
    used: u64,
    owner: Who,
    /// Domains that have the block open, and how often each.
    open: HashMap<Who, u32>,
    ends: Option<Instant>,
}

/// Values by key.
#[derive(Debug)]
pub(crate) struct Values<V> {
    all: HashMap<Key, Entry<V>>,
    /// Evictable keys by their last use.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    kept_bytes: u64,
    pinned_bytes: u64,
    quota: u64,
    /// Whether kept values end with the domain that put them.
    end_with_owner: bool,
}

/// The quota that pinned values leave no room in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom(pub u64);

impl<V: Clone> Values<V> {
    pub(crate) fn new(quota: u64, end_with_owner: bool) -> Values<V> {
        Values {
            all: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            kept_bytes: 0,
            pinned_bytes: 0,
            quota,
            end_with_owner,
        }
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.all.contains_key(key)
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Adds a value under a key that has none. Values that were not used for longest give way.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        value: V,
        bytes: u64,
        kind: Kind,
        owner: Who,
    ) -> Result<(), NoRoom> {
        if kind == Kind::Kept {
            self.make_room(bytes)?;
            self.kept_bytes += bytes;
        }
        let entry = Entry {
            value,
            bytes,
            kind,
            used: 0,
            owner,
            open: HashMap::new(),
            ends: None,
        };
        self.all.insert(key.into(), entry);
        self.touch(key);
        Ok(())
    }

    fn make_room(&mut self, bytes: u64) -> Result<(), NoRoom> {
        if self.pinned_bytes.saturating_add(bytes) > self.quota {
            return Err(NoRoom(self.quota));
        }
        while self.kept_bytes + bytes > self.quota {
            let Some((_, key)) = self.by_use.pop_first() else {
                break;
            };
            self.remove(&key);
        }
        Ok(())
    }

    /// Makes a value the last that is evicted.
    fn touch(&mut self, key: &[u8]) {
        let Some((key, entry)) = self.all.get_key_value(key) else {
            return;
        };
        let (key, used, kind) = (key.clone(), entry.used, entry.kind);
        self.by_use.remove(&used);
        if kind == Kind::Kept {
            self.uses += 1;
            let uses = self.uses;
            self.all
                .entry(key.clone())
                .and_modify(|entry| entry.used = uses);
            self.by_use.insert(uses, key);
        }
    }

    /// Returns a value, which counts as a use.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<V> {
        self.touch(key);
        self.all.get(key).map(|entry| entry.value.clone())
    }

    /// Forgets a value, and returns it.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let entry = self.all.remove(key)?;
        self.by_use.remove(&entry.used);
        if matches!(entry.kind, Kind::Kept | Kind::Pinned) {
            self.kept_bytes -= entry.bytes;
        }
        if entry.kind == Kind::Pinned {
            self.pinned_bytes -= entry.bytes;
        }
        Some(entry.value)
    }

    /// Puts an equal value in the place of another.
    pub(crate) fn replace(&mut self, key: &[u8], value: V) {
        if let Some(entry) = self.all.get_mut(key) {
            entry.value = value;
        }
    }

    /// Pins a kept value, or ends that. `false`: there is none.
    pub(crate) fn pin(&mut self, key: &[u8], pinned: bool) -> bool {
        let Some(entry) = self.all.get_mut(key) else {
            return false;
        };
        match (entry.kind, pinned) {
            (Kind::Kept, true) => {
                entry.kind = Kind::Pinned;
                self.pinned_bytes += entry.bytes;
            }
            (Kind::Pinned, false) => {
                entry.kind = Kind::Kept;
                self.pinned_bytes -= entry.bytes;
            }
            _ => {}
        }
        self.touch(key);
        true
    }

    /// Opens a block for a domain.
    pub(crate) fn attach(&mut self, key: &[u8], who: Who) -> Option<V> {
        let entry = self
            .all
            .get_mut(key)
            .filter(|entry| entry.kind == Kind::Block)?;
        *entry.open.entry(who).or_default() += 1;
        Some(entry.value.clone())
    }

    /// Closes it. The last domain that closes it frees it.
    pub(crate) fn detach(&mut self, key: &[u8], who: Who) -> bool {
        let Some(entry) = self
            .all
            .get_mut(key)
            .filter(|entry| entry.kind == Kind::Block)
        else {
            return false;
        };
        if let Some(times) = entry.open.get_mut(&who) {
            *times -= 1;
            if *times == 0 {
                entry.open.remove(&who);
            }
        }
        if entry.open.is_empty() {
            self.remove(key);
        }
        true
    }

    /// Lets go of what a domain had. Parked values wait [`ORPHANED`] longer.
    pub(crate) fn gone(&mut self, who: Who, now: Instant) {
        let ends = now + ORPHANED;
        let end_kept = self.end_with_owner;
        let mut over = Vec::new();
        for (key, entry) in &mut self.all {
            let was_open = entry.open.remove(&who).is_some();
            let owned = entry.owner == who;
            match entry.kind {
                Kind::Block if was_open && entry.open.is_empty() => over.push(key.clone()),
                Kind::Kept | Kind::Pinned if owned && end_kept => over.push(key.clone()),
                Kind::Parked if owned => entry.ends = Some(ends),
                _ => {}
            }
        }
        for key in over {
            self.remove(&key);
        }
    }

    /// Forgets parked values whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.all
            .retain(|_, entry| entry.ends.is_none_or(|ends| ends > now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Who = 1;

    fn values(quota: u64) -> Values<&'static str> {
        Values::new(quota, false)
    }

    #[test]
    fn the_longest_unused_gives_way() {
        let mut values = values(30);
        for key in ["a", "b", "c"] {
            values
                .add(key.as_bytes(), key, 10, Kind::Kept, ME)
                .expect("room");
        }
        assert_eq!(values.get(b"a"), Some("a"));
        values.add(b"d", "d", 10, Kind::Kept, ME).expect("room");
        assert!(values.has(b"a") && !values.has(b"b") && values.has(b"c"));
        assert_eq!(values.kept_bytes(), 30);
    }

    #[test]
    fn pinned_and_parked_values_stay() {
        let mut values = values(20);
        values
            .add(b"parked", "p", 1000, Kind::Parked, ME)
            .expect("no quota");
        values.add(b"a", "a", 15, Kind::Kept, ME).expect("room");
        assert!(values.pin(b"a", true));
        let refused = values.add(b"b", "b", 10, Kind::Kept, ME);
        assert_eq!(refused, Err(NoRoom(20)));
        assert!(values.pin(b"a", false));
        values.add(b"b", "b", 10, Kind::Kept, ME).expect("room");
        assert!(!values.has(b"a") && values.has(b"parked"));
        assert_eq!(values.kept_bytes(), 10);
    }

    #[test]
    fn the_last_closer_frees_a_block() {
        let mut values = values(0);
        values
            .add(b"block", "block", 10, Kind::Block, ME)
            .expect("no quota");
        assert!(values.attach(b"block", 1).is_some() && values.attach(b"block", 2).is_some());
        assert!(values.attach(b"block", 2).is_some());
        assert!(values.detach(b"block", 1));
        assert!(values.detach(b"block", 2) && values.has(b"block"));
        values.gone(2, Instant::now());
        assert!(!values.has(b"block"));
    }

    #[test]
    fn a_parked_value_outlives_its_owner_for_a_while() {
        let (mut values, now) = (values(0), Instant::now());
        values
            .add(b"parked", "p", 10, Kind::Parked, ME)
            .expect("no quota");
        values.expire(now + 10 * ORPHANED);
        values.gone(ME, now);
        values.expire(now + ORPHANED / 2);
        assert!(values.has(b"parked"));
        values.expire(now + ORPHANED);
        assert!(!values.has(b"parked"));
    }

    #[test]
    fn kept_values_end_with_their_owner_if_the_store_says_so() {
        for ends in [false, true] {
            let mut values = Values::new(100, ends);
            values.add(b"a", "a", 10, Kind::Kept, ME).expect("room");
            values.gone(ME, Instant::now());
            assert_eq!(values.has(b"a"), !ends);
            assert_eq!(values.kept_bytes(), if ends { 0 } else { 10 });
        }
    }
}
