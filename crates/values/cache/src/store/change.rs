//! New values, some of them made of stored ones. Memory may have to be found for them first.

use super::entry::Entry;
use super::{Mode, NotCounted, Outcome, Store};
use tranship_zcopy::{Value, ValueMut};

impl Store {
    /// Stores a value.
    pub fn put(&self, key: &[u8], value: Value, flags: u32, expiry: i64, mode: Mode) -> Outcome {
        self.put_as(key, value, flags, expiry, mode, None)
    }

    /// Stores a value under this number, if there is one.
    pub fn put_as(
        &self,
        key: &[u8],
        value: Value,
        flags: u32,
        expiry: i64,
        mode: Mode,
        number: Option<u64>,
    ) -> Outcome {
        if let Mode::Append(cas) | Mode::Prepend(cas) = mode {
            let is_front = matches!(mode, Mode::Prepend(_));
            return self.join(key, &value, is_front, cas, number);
        }
        let now = self.now();
        let expires = self.expires(expiry, now);
        let (mut shard, hash) = self.shard(key);
        let there = self.find_living(&mut shard, hash, key, now);
        let mut stale = None;
        match (mode, there) {
            (Mode::Add, Some(index)) => {
                shard.touch(index, now);
                return Outcome::NotStored;
            }
            (Mode::Replace, None) => return Outcome::NotStored,
            (Mode::Cas(_) | Mode::CasOrStale(_), None) => return Outcome::NotFound,
            (Mode::Cas(wanted), Some(index)) if wanted == 0 || shard.entry(index).cas != wanted => {
                return Outcome::Exists;
            }
            (Mode::CasOrStale(wanted), Some(index)) => {
                let entry = shard.entry(index);
                if wanted == 0 || entry.cas < wanted {
                    return Outcome::Exists;
                }
                stale = (entry.cas > wanted).then_some((entry.expires, entry.won));
            }
            _ => {}
        }
        if let Some(index) = there {
            self.remove(&mut shard, index);
        }
        let cas = number.unwrap_or_else(|| self.number());
        let len = value.len();
        let mut entry = Entry::new(key, hash, value, flags, expires, cas, now);
        if let Some((expires, won)) = stale {
            entry.stale = true;
            (entry.expires, entry.won) = (expires, won);
        }
        self.insert(&mut shard, entry);
        Outcome::Stored { cas, len }
    }

    /// Empties the value of a key that has that number, and leaves the key. The empty value has these flags and this
    /// time to live. If `stale`, it is marked as stale and gets a new number; otherwise it has its number or this one.
    pub fn empty(
        &self,
        key: &[u8],
        cas: Option<u64>,
        flags: u32,
        expiry: i64,
        number: Option<u64>,
        stale: bool,
    ) -> Outcome {
        let Some(nothing) = self.reserve(0) else {
            return Outcome::NoMemory;
        };
        let now = self.now();
        let expires = self.expires(expiry, now);
        let (mut shard, hash) = self.shard(key);
        let index = match self.find_numbered(&mut shard, hash, key, now, cas) {
            Ok(index) => index,
            Err(why) => return why,
        };
        let cas = number.unwrap_or_else(|| match stale {
            true => self.number(),
            false => shard.entry(index).cas,
        });
        self.remove(&mut shard, index);
        let mut entry = Entry::new(key, hash, nothing.freeze(), flags, expires, cas, now);
        entry.stale = stale;
        self.insert(&mut shard, entry);
        Outcome::Stored { cas, len: 0 }
    }

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
    fn join(
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
}
