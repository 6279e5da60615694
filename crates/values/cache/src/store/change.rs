//! Values that are made of stored ones: a new value takes the old one's place, for which memory may have to be found
//! first.

use super::{NotCounted, Outcome, Store};
use tranship_zcopy::{Value, ValueMut};

impl Store {
    /// Adds to or takes from a decimal number, if its item has the number `cas`, which becomes `number`.
    ///
    /// # Errors
    /// [`NotCounted`]; a number that is not the wanted one is no error.
    pub fn arithmetic(
        &self,
        key: &[u8],
        delta: u64,
        down: bool,
        cas: Option<u64>,
        number: Option<u64>,
    ) -> Result<(u64, Outcome), NotCounted> {
        // 0 is the number of a key without value.
        let cas = cas.filter(|wanted| *wanted != 0);
        let mut reserved = None::<ValueMut>;
        loop {
            let now = self.now();
            let (mut shard, hash) = self.shard(key);
            let found = self.find_living(&mut shard, hash, key, now);
            // The old value was evicted to make room.
            let Some(index) = found else {
                return Err(match reserved {
                    Some(_) => NotCounted::NoMemory,
                    None => NotCounted::NotFound,
                });
            };
            let entry = shard.entry(index);
            if cas.is_some_and(|wanted| wanted != entry.cas) {
                return Ok((0, Outcome::Exists));
            }
            let text = &entry.value;
            let old: u64 = std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.trim_end_matches(' ').parse().ok())
                .ok_or(NotCounted::NoNumber)?;
            let new = if down {
                old.saturating_sub(delta)
            } else {
                old.wrapping_add(delta)
            };
            let digits = new.to_string();
            // A shorter number keeps the length, as in memcached. Not by `format!`, which panics where it is to fill up
            // more than 65,535 characters.
            let least = if down { text.len() } else { 0 };
            let len = least.max(digits.len());
            let Some(mut value) = self.room_for(&mut reserved, len) else {
                shard.touch(index, now);
                drop(shard);
                let value = self.reserve(len);
                reserved = Some(value.ok_or(NotCounted::NoMemory)?);
                continue;
            };
            let (start, rest) = value.split_at_mut(digits.len());
            start.copy_from_slice(digits.as_bytes());
            rest.fill(b' ');
            let cas = self.exchange(&mut shard, index, value.freeze(), number);
            return Ok((new, Outcome::Stored { cas, len }));
        }
    }

    /// Puts more behind a value that has that number, or before it.
    pub(super) fn join(
        &self,
        key: &[u8],
        more: &Value,
        is_front: bool,
        cas: Option<u64>,
        number: Option<u64>,
    ) -> Outcome {
        // 0 is the number of a key without value.
        let cas = cas.filter(|wanted| *wanted != 0);
        let mut reserved = None::<ValueMut>;
        loop {
            let now = self.now();
            let (mut shard, hash) = self.shard(key);
            // The old value was evicted to make room.
            let Some(index) = self.find_living(&mut shard, hash, key, now) else {
                return match reserved {
                    Some(_) => Outcome::NoMemory,
                    None => Outcome::NotStored,
                };
            };
            if cas.is_some_and(|wanted| wanted != shard.entry(index).cas) {
                return Outcome::Exists;
            }
            let old = &shard.entry(index).value;
            let len = old.len() + more.len();
            if len > self.longest {
                return Outcome::TooLarge;
            }
            match self.room_for(&mut reserved, len) {
                Some(mut joined) => {
                    let (first, second) = match is_front {
                        true => (more, old),
                        false => (old, more),
                    };
                    joined[..first.len()].copy_from_slice(first);
                    joined[first.len()..].copy_from_slice(second);
                    let joined = joined.freeze();
                    let cas = self.exchange(&mut shard, index, joined, number);
                    return Outcome::Stored { cas, len };
                }
                None => {
                    shard.touch(index, now);
                    drop(shard);
                    reserved = self.reserve(len);
                    if reserved.is_none() {
                        return Outcome::NoMemory;
                    }
                }
            }
        }
    }

    /// Returns memory for another value of an item whose shard the caller has locked. It is the reserved memory, or
    /// memory that is there without evicting and without asking the manager, because others would wait for the lock
    /// meanwhile. Otherwise the caller releases the lock and reserves memory: an item that is evicted for it may be of
    /// this shard. The item is touched before, so that the item itself is evicted last.
    pub(super) fn room_for(&self, reserved: &mut Option<ValueMut>, len: usize) -> Option<ValueMut> {
        let fits = reserved.take().filter(|value| value.len() == len);
        fits.or_else(|| self.arena.alloc_admitted(len).ok())
    }
}
