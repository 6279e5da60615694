//! Store: keys and metadata in the heap, values in the arena.
//!
//! Keys are spread over shards by a keyed hash, each with a lock of its own. A value is stored without the line end
//! that it has in the protocol, for which one of whole pages would need a page more. It is never changed in place: a
//! new one takes its place.

mod adopt;
mod change;
mod clean;
mod come_down;
mod entry;
mod left;
mod lru;
mod room;
mod shard;

pub use adopt::Adopted;

use entry::Entry;
use left::Left;
use shard::Shard;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tranship_core::Domain;
use tranship_zcopy::{Arena, Value, ValueMut};

/// Rule for a new value when there is an old one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Stores whatever is there.
    Set,
    /// Stores only if nothing is there.
    Add,
    /// Stores only if a value is there.
    Replace,
    /// Behind the stored value, if that has this number; 0 is none.
    Append(Option<u64>),
    /// Before the stored value, if that has this number; 0 is none.
    Prepend(Option<u64>),
    /// Only if the stored value has this number. It is not 0, which is the number of a key without value.
    Cas(u64),
    /// Only if the stored value has this number, or a greater one. With a greater one the new value is marked as stale.
    /// It then keeps the old value's time to live, and its mark whether a client was told to renew it.
    CasOrStale(u64),
}

/// Result of a store operation.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Done.
    Stored {
        /// The new number.
        cas: u64,
        /// Length of the stored value now, bytes.
        len: usize,
    },
    /// The mode's condition does not hold.
    NotStored,
    /// The stored value has another number.
    Exists,
    /// Nothing is there.
    NotFound,
    /// With the stored value it would be longer than a value may be.
    TooLarge,
    /// No memory, even after evicting.
    NoMemory,
}

/// Reason for which a number was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotCounted {
    /// Nothing is there.
    NotFound,
    /// The stored value is not a number.
    NoNumber,
    /// No memory, even after evicting.
    NoMemory,
}

/// Item that is stored under a key.
#[derive(Clone, Debug)]
pub struct Item {
    /// The value.
    pub value: Value,
    /// The client's word.
    pub flags: u32,
    /// Unique number of the value.
    pub cas: u64,
    /// Seconds until it expires; -1: never.
    pub ttl: i64,
    /// Seconds since it was last read.
    pub idle: u64,
    /// The item was read since it was stored.
    pub fetched: bool,
    /// The item was marked as stale.
    pub stale: bool,
    /// A client was told to renew it.
    pub won: bool,
}

/// Options of a [`Store`].
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Domain whose manager admits the memory of values, and may want it back ([`tranship_zcopy::Options::charge_to`]);
    /// none: no manager does.
    pub domain: Option<Domain>,
    /// Most bytes of keys, values and their records.
    pub memory: u64,
    /// Bytes of the longest value that comes of appending.
    pub longest: usize,
    /// Shards; a power of two.
    pub shards: usize,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    arena: Arena,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    memory: u64,
    longest: usize,
    used: AtomicU64,
    numbers: AtomicU64,
    started: Instant,
    /// Bytes of the arena's pageblocks from which on the cleaner works.
    cleaner: AtomicUsize,
    left: Left,
    /// A value that is to be stored lacks memory of values that are stored no more.
    short: AtomicBool,
    pub(crate) counts: Counts,
}

/// Events of the store.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) evictions: AtomicU64,
    pub(crate) expired: AtomicU64,
    /// Expired items that were never read.
    pub(crate) expired_unfetched: AtomicU64,
    /// Items that were evicted and never read.
    pub(crate) evicted_unfetched: AtomicU64,
    /// Items that were asked for, and had expired.
    pub(crate) get_expired: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) items: AtomicU64,
    pub(crate) total_items: AtomicU64,
    pub(crate) no_memory: AtomicU64,
}

/// Limit of relative times to live; above it they are dates (memcached's protocol.txt).
const MONTH: i64 = 60 * 60 * 24 * 30;

impl Store {
    /// Creates an empty store.
    ///
    /// # Errors
    /// If the kernel has no addresses for the arena, or the manager gives it no heap.
    pub fn new(options: StoreOptions) -> Result<Store, tranship_zcopy::Error> {
        let arena = Arena::with(&arena_options(&options))?;
        Ok(Store::over(&options, arena))
    }

    fn over(options: &StoreOptions, arena: Arena) -> Store {
        let shards = options.shards.max(1).next_power_of_two();
        Store {
            arena,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            memory: options.memory,
            longest: options.longest,
            used: AtomicU64::new(0),
            numbers: AtomicU64::new(1),
            started: Instant::now(),
            cleaner: AtomicUsize::new(0),
            left: Left::default(),
            short: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }

    /// Returns the bytes of values that are stored no more, and that replies still have. The result is exact only if it
    /// is above `enough`; otherwise it is an upper bound.
    pub(crate) fn left_bytes(&self, enough: u64) -> u64 {
        match self.left.bytes() {
            bytes if bytes <= enough => bytes,
            _ => self.left.sweep(),
        }
    }

    /// Notes that memory lacks. If replies have some, their clients are to lose it.
    fn lacks(&self) {
        if self.left.sweep() > 0 {
            // Relaxed: a hint.
            self.short.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether memory lacks that replies have.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Notes that some memory is there again.
    pub(crate) fn relieved(&self) {
        self.short.store(false, Ordering::Relaxed);
    }

    /// Returns the item that is stored under a key; `touch` gives it a new time to live.
    pub fn get(&self, key: &[u8], touch: Option<i64>) -> Option<Item> {
        let now = self.now();
        let (mut shard, hash) = self.shard(key);
        let index = shard.find(hash, key)?;
        if shard.entry(index).is_over(now) {
            self.expire(&mut shard, index);
            // Relaxed: a count.
            self.counts.get_expired.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if let Some(expiry) = touch {
            let expires = self.expires(expiry, now);
            shard.entry_mut(index).expires = expires;
        }
        let item = self.item(&shard, index, now);
        shard.touch(index, now);
        let entry = shard.entry_mut(index);
        entry.fetched = true;
        entry.read = now;
        Some(item)
    }

    /// Returns the stored item without counting as a reader of it.
    pub fn peek(&self, key: &[u8]) -> Option<Item> {
        self.look(key, None)
    }

    /// Returns the item like [`Store::peek`]; `touch` gives it a new time to live.
    pub fn look(&self, key: &[u8], touch: Option<i64>) -> Option<Item> {
        let now = self.now();
        let (mut shard, hash) = self.shard(key);
        let index = self.find_living(&mut shard, hash, key, now)?;
        if let Some(expiry) = touch {
            let expires = self.expires(expiry, now);
            shard.entry_mut(index).expires = expires;
        }
        Some(self.item(&shard, index, now))
    }

    /// Gives a key a new time to live.
    pub fn touch(&self, key: &[u8], expiry: i64) -> bool {
        self.change(key, |entry, expires| entry.expires = expires, expiry)
    }

    /// Marks a stored item as stale, if it has that number. The item gets a new number, this one if there is one, and a
    /// new time to live if there is one.
    pub fn invalidate(
        &self,
        key: &[u8],
        cas: Option<u64>,
        expiry: Option<i64>,
        number: Option<u64>,
    ) -> Outcome {
        let now = self.now();
        let expires = expiry.map(|expiry| self.expires(expiry, now));
        let (mut shard, hash) = self.shard(key);
        let index = match self.find_numbered(&mut shard, hash, key, now, cas) {
            Ok(index) => index,
            Err(why) => return why,
        };
        let number = number.unwrap_or_else(|| self.number());
        let entry = shard.entry_mut(index);
        entry.stale = true;
        entry.won = false;
        entry.cas = number;
        entry.expires = expires.unwrap_or(entry.expires);
        Outcome::Stored {
            cas: number,
            len: entry.value.len(),
        }
    }

    /// Returns whether the caller is the first that asks: that client is told to renew the value.
    pub fn win(&self, key: &[u8]) -> bool {
        let mut first = false;
        let won = |entry: &mut Entry, _| first = !std::mem::replace(&mut entry.won, true);
        self.change(key, won, 0);
        first
    }

    fn change(&self, key: &[u8], change: impl FnOnce(&mut Entry, u32), expiry: i64) -> bool {
        let now = self.now();
        let expires = self.expires(expiry, now);
        let (mut shard, hash) = self.shard(key);
        let found = self.find_living(&mut shard, hash, key, now);
        if let Some(index) = found {
            change(shard.entry_mut(index), expires);
        }
        found.is_some()
    }

    /// Deletes a key, if it has that number.
    pub fn delete(&self, key: &[u8], cas: Option<u64>) -> Outcome {
        let now = self.now();
        let (mut shard, hash) = self.shard(key);
        match self.find_numbered(&mut shard, hash, key, now, cas) {
            Ok(index) => {
                let entry = shard.entry(index);
                let (cas, len) = (entry.cas, entry.value.len());
                self.remove(&mut shard, index);
                Outcome::Stored { cas, len }
            }
            Err(why) => why,
        }
    }

    /// Removes all items.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            while let Some(index) = shard.oldest() {
                self.remove(&mut shard, index);
            }
        }
    }

    /// Removes items that were neither stored nor read since a time of the store's clock.
    pub fn clear_unused_since(&self, at: i64) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let all: Vec<u32> = shard.in_order().collect();
            for index in all {
                if i64::from(shard.entry(index).read) < at {
                    self.remove(&mut shard, index);
                }
            }
        }
    }

    /// Returns the limit, and how much of it is used, in bytes.
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        // Relaxed: a number on which nothing else depends.
        (self.memory, self.used.load(Ordering::Relaxed))
    }

    /// Returns the arena.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    fn item(&self, shard: &Shard, index: u32, now: u32) -> Item {
        let entry = shard.entry(index);
        Item {
            value: entry.value.clone(),
            flags: entry.flags,
            cas: entry.cas,
            ttl: match entry.expires {
                0 => -1,
                at => i64::from(at) - i64::from(now),
            },
            idle: u64::from(now - entry.read.min(now)),
            fetched: entry.fetched,
            stale: entry.stale,
            won: entry.won,
        }
    }

    fn find_living(&self, shard: &mut Shard, hash: u64, key: &[u8], now: u32) -> Option<u32> {
        let index = shard.find(hash, key)?;
        if shard.entry(index).is_over(now) {
            self.expire(shard, index);
            return None;
        }
        Some(index)
    }

    /// Returns a living item that has that number, if a number is asked for.
    fn find_numbered(
        &self,
        shard: &mut Shard,
        hash: u64,
        key: &[u8],
        now: u32,
        cas: Option<u64>,
    ) -> Result<u32, Outcome> {
        let index = self.find_living(shard, hash, key, now);
        let index = index.ok_or(Outcome::NotFound)?;
        match cas {
            Some(wanted) if wanted != shard.entry(index).cas => Err(Outcome::Exists),
            _ => Ok(index),
        }
    }

    /// Gives an item another value, under this number if there is one. Returns its number.
    fn exchange(&self, shard: &mut Shard, index: u32, value: Value, number: Option<u64>) -> u64 {
        let cas = number.unwrap_or_else(|| self.number());
        let entry = shard.entry_mut(index);
        let before = entry.cost();
        let old = std::mem::replace(&mut entry.value, value);
        entry.cas = cas;
        let after = entry.cost();
        self.left.add(old);
        shard.recount(index, before, after);
        // Relaxed: a sum.
        self.used.fetch_add(after, Ordering::Relaxed);
        self.used.fetch_sub(before, Ordering::Relaxed);
        cas
    }

    /// Returns memory for another value of an item whose shard the caller has locked. It is the reserved memory, or
    /// memory that is there without evicting and without asking the manager, because others would wait for the lock
    /// meanwhile. Otherwise the caller releases the lock and reserves memory: an item that is evicted for it may be of
    /// this shard. The item is touched before, so that the item itself is evicted last.
    fn room_for(&self, reserved: &mut Option<ValueMut>, len: usize) -> Option<ValueMut> {
        let fits = reserved.take().filter(|value| value.len() == len);
        fits.or_else(|| self.arena.alloc_admitted(len).ok())
    }

    fn insert(&self, shard: &mut Shard, entry: Entry) -> u32 {
        // Relaxed: sums.
        self.used.fetch_add(entry.cost(), Ordering::Relaxed);
        self.counts.items.fetch_add(1, Ordering::Relaxed);
        self.counts.total_items.fetch_add(1, Ordering::Relaxed);
        shard.insert(entry)
    }

    fn remove(&self, shard: &mut Shard, index: u32) {
        let entry = shard.remove(index);
        // Relaxed: sums.
        self.used.fetch_sub(entry.cost(), Ordering::Relaxed);
        self.counts.items.fetch_sub(1, Ordering::Relaxed);
        self.left.add(entry.value);
    }

    fn expire(&self, shard: &mut Shard, index: u32) {
        // Relaxed: counts.
        let unfetched = u64::from(!shard.entry(index).fetched);
        self.counts
            .expired_unfetched
            .fetch_add(unfetched, Ordering::Relaxed);
        self.counts.expired.fetch_add(1, Ordering::Relaxed);
        self.remove(shard, index);
    }

    fn evict(&self, shard: &mut Shard, index: u32) {
        // Relaxed: counts.
        let unfetched = u64::from(!shard.entry(index).fetched);
        self.counts
            .evicted_unfetched
            .fetch_add(unfetched, Ordering::Relaxed);
        self.remove(shard, index);
        self.counts.evictions.fetch_add(1, Ordering::Relaxed);
    }

    fn shard(&self, key: &[u8]) -> (MutexGuard<'_, Shard>, u64) {
        // Not as a slice is hashed, with its length before it: the key is the only input.
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        let hash = hasher.finish();
        let mask = self.shards.len() as u64 - 1;
        let which = usize::try_from(hash >> 48 & mask).expect("small");
        (lock(&self.shards[which]), hash)
    }

    fn number(&self) -> u64 {
        // Relaxed: only that numbers differ; the shard's lock orders them for each key.
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns seconds since the start, from 2 on: 0 is never, 1 is over.
    pub(crate) fn now(&self) -> u32 {
        u32::try_from(self.started.elapsed().as_secs() + 2).unwrap_or(u32::MAX)
    }

    /// Returns when a time to live ends: relative up to a month, a date above, at once if negative.
    fn expires(&self, expiry: i64, now: u32) -> u32 {
        let left = match expiry {
            0 => return 0,
            ..0 => return 1,
            time => from_now(time),
        };
        match left {
            ..=0 => 1,
            left => u32::try_from(left.saturating_add(now.into())).unwrap_or(u32::MAX),
        }
    }

    /// Returns the time of its clock now, and at `time`: seconds from now up to a month, a date above. A time that is
    /// not after 0 means at once.
    pub(crate) fn moment(&self, time: i64) -> (i64, i64) {
        let now = i64::from(self.now());
        match time {
            ..=0 => (now, now),
            time => (now, now.saturating_add(from_now(time))),
        }
    }
}

/// Returns seconds until a time: relative up to a month, a date above.
fn from_now(time: i64) -> i64 {
    if time <= MONTH {
        return time;
    }
    let today = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    time.saturating_sub(i64::try_from(today).unwrap_or(i64::MAX))
}

fn arena_options(options: &StoreOptions) -> tranship_zcopy::Options {
    let memory = options.memory;
    let arena = tranship_zcopy::Options::new().max(memory + beyond(memory));
    match &options.domain {
        Some(domain) => arena.charge_to(domain),
        None => arena,
    }
}

/// Returns the bytes of the arena beyond the stored items. Pageblocks are never quite full, the cleaner needs room to
/// work, and values that come or go are only in the arena's memory.
pub(crate) fn beyond(memory: u64) -> u64 {
    memory / 4 + (64 << 20)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
