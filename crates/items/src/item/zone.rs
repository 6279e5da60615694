//! A zone of items in memory: allocate, free, by pointer.

use super::alarm::{Alarm, Notifier};
use super::debug::{Debug, DebugOptions};
use super::keg::ItemKeg;
use super::limit::{Limit, Outcome};
use super::object::{Bytes, Object};
use super::request::{AllocError, Request};
use super::stats::ItemStats;
use super::supply::Supply;
use crate::arena::UNIT;
use std::ptr::NonNull;
use std::sync::Arc;
use tranship_sys::membarrier;
use tranship_zone::Zone;
use tranship_zone::lock::Lock;
use tranship_zone::reaper;
use tranship_zone::{Level, ZoneConfig};

const UNIT_LEN: usize = 1 << UNIT.trailing_zeros();

/// A zone's parameters.
#[derive(Debug, Clone)]
pub struct ItemOptions {
    /// The zone's name in statistics and messages.
    pub name: String,
    /// The most items, cached ones included.
    pub max: u64,
    /// How the zone caches; `None`: by the size of the items.
    pub cache: Option<ZoneConfig>,
    /// The reaction when an allocation meets the limit.
    pub alarm: Alarm,
    /// Whether wrong use is searched for. Without it there is no cost: a debugged zone has no caches, so the caches do
    /// not know of it.
    pub debug: Option<DebugOptions>,
}

impl ItemOptions {
    /// Makes a zone without a limit.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            max: u64::MAX,
            cache: None,
            alarm: Alarm::default(),
            debug: None,
        }
    }

    /// Sets the alarm at the limit.
    #[must_use]
    pub fn alarm(self, alarm: Alarm) -> Self {
        Self { alarm, ..self }
    }

    /// Looks for wrong use. Give the keg some slack, so that overruns are seen ([`ItemKeg::with_slack`]).
    #[must_use]
    pub fn debug(self, debug: DebugOptions) -> Self {
        Self {
            debug: Some(debug),
            ..self
        }
    }

    /// Sets the most items, cached ones included.
    #[must_use]
    pub fn max(self, max: u64) -> Self {
        Self { max, ..self }
    }
}

/// Items of one keg, cached per thread, with constructor and destructor. Share it with an `Arc` or a `static`.
///
/// `alloc` and `free` normally touch only the calling thread's cache: no lock, no atomic read-modify-write, no metadata
/// in the items. Items may be freed on any thread. A thread's cache is given back when the thread ends.
///
/// Several zones may share a keg (UMA's secondary zones): each has its own caches, object and limit, and an item
/// belongs to the one that it was allocated from until it is freed there.
///
/// Dropping a zone gives its caches to the keg. Items still in use are then lost: they stay in the keg, which keeps its
/// memory, and are reported ([`destroy`](Self::destroy)).
///
/// ```
/// # mod tranship { pub use tranship_items as zone; }
/// use std::sync::Arc;
/// use tranship::zone::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};
///
/// let arena = Arc::new(Arena::private(1 << 30).unwrap()); // addresses, no memory yet
/// let keg = ItemKeg::new(&arena, 64, 8).unwrap();
/// let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("requests").max(1000));
/// let item = zone.alloc(()).unwrap();
/// // SAFETY: of this zone, freed once, and not used after.
/// unsafe { zone.free(item) };
/// assert_eq!(zone.stats().max, 1000);
/// ```
pub struct ItemZone<O: Object> {
    zone: Zone<Supply<O>>,
    base: NonNull<u8>,
    /// Whether the destroyer was told which items were in use.
    pub(super) told: bool,
}

// SAFETY: `base` is only an address; the object is Send and Sync.
unsafe impl<O: Object> Send for ItemZone<O> {}
// SAFETY: as above.
unsafe impl<O: Object> Sync for ItemZone<O> {}

impl<O: Object> ItemZone<O> {
    /// Makes a zone over `keg`.
    #[must_use]
    pub fn new(keg: &Arc<ItemKeg>, object: O, options: ItemOptions) -> Self {
        let config = options
            .cache
            .unwrap_or_else(|| ZoneConfig::for_item(keg.item_bytes()))
            .capped(options.max)
            .with_barrier(membarrier::private_expedited);
        // The reaper trims depots, unless no thread keeps time.
        let config = if config.allocator {
            config
        } else {
            config.with_depot(u32::MAX)
        };
        let config = if options.debug.is_some() {
            ZoneConfig {
                initial: 0,
                max: 0,
                depot_items: 0,
                ..config
            }
        } else {
            config
        };
        let supply = Supply {
            name: options.name.into(),
            keg: keg.clone(),
            object,
            limit: Limit::new(options.max),
            pressed: Lock::new(false),
            notifier: Notifier::new(options.alarm),
            debug: options
                .debug
                .map(|options| Debug::new(options, O::INITIALIZED)),
        };
        Self {
            zone: Zone::managed(config, supply),
            base: keg.arena().base(),
            told: false,
        }
    }

    /// Allocates an item, or returns `None` if there is none at the moment. It never waits for other threads to free,
    /// but it may wait for a lock.
    ///
    /// The item's bytes are undefined except for those that the object's `init` and `ctor` wrote.
    #[inline]
    #[must_use]
    pub fn alloc(&self, arg: O::Arg<'_>) -> Option<NonNull<u8>> {
        match self.zone.alloc_cached() {
            Some(item) => self.construct(item, arg).ok(),
            None => self.alloc_slow(arg, Request::default()).ok(),
        }
    }

    /// Allocates an item. `request` says whether it waits at the limit, and uses the keg's reserve.
    ///
    /// # Errors
    /// The reason why there is none.
    #[inline]
    pub fn request(&self, arg: O::Arg<'_>, request: Request) -> Result<NonNull<u8>, AllocError> {
        match self.zone.alloc_cached() {
            Some(item) => self.construct(item, arg),
            None => self.alloc_slow(arg, request),
        }
    }

    /// Takes an item back, on any thread.
    ///
    /// # Safety
    /// `item` was allocated from this zone and not freed since, and nothing uses it any more.
    #[inline]
    pub unsafe fn free(&self, item: NonNull<u8>) {
        if self.supply().debug.is_some() {
            self.free_debugged(item);
            return;
        }
        self.object().dtor(item);
        self.zone.free(self.number(item));
    }

    /// Allocates an item out of the calling thread's cache or not at all, without the constructor; and the item's
    /// number.
    #[inline(always)]
    #[must_use]
    pub fn alloc_cached_numbered(&self) -> Option<(NonNull<u8>, u32)> {
        let item = self.zone.alloc_cached()?;
        Some((self.address(item), item))
    }

    /// Frees an item into the calling thread's cache, without the destructor. Returns `false`, and changes nothing, if
    /// the cache has no room. A caller that keeps the number in the item saves two dependent loads.
    ///
    /// # Safety
    /// If it returns `true`, the rules of [`free`](Self::free) hold; `number` is the result of [`ItemKeg::number_of`]
    /// for the item.
    #[inline(always)]
    #[must_use]
    pub unsafe fn free_cached_numbered(&self, number: u32) -> bool {
        self.zone.free_cached(number)
    }

    /// Returns the object with the items' callbacks.
    #[inline]
    #[must_use]
    pub fn object(&self) -> &O {
        &self.zone.backend().object
    }

    /// Returns the source of the items.
    #[must_use]
    pub fn keg(&self) -> &Arc<ItemKeg> {
        &self.zone.backend().keg
    }

    /// Returns the zone's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.zone.backend().name
    }

    /// Changes the maximum number of items, cached ones included. Caches are flushed, and limited so that they hide at
    /// most a quarter of them. If more than `max` items are in use they stay until they are freed, and then go to the
    /// keg, past the caches.
    pub fn set_max(&self, max: u64) {
        let config = ZoneConfig::for_item(self.keg().item_bytes()).capped(max);
        self.supply().limit.set_max(max);
        if self.supply().debug.is_none() {
            self.zone.set_capacity(config.max, u32::MAX);
        }
        self.press();
    }

    /// Says whether allocations sleep at the limit: other zones may hold memory that this one is short of.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.supply().limit.sleepers() > 0
    }

    /// Gives cached items to the keg (after `fini`).
    pub fn drain(&self, level: Level) {
        self.flush_quarantine();
        self.zone.drain(level);
    }

    /// Ends a period, for a zone for which no thread keeps time ([`ZoneConfig::allocator`]): gives back items that
    /// caches have not needed. Returns whether there may be more to do after the next period.
    pub fn period_over(&self) -> bool {
        self.zone.period_over()
    }

    /// Sets the size of buckets and of the depot, in items, from now on. It serves an allocator that keeps a budget of
    /// all its zones' caches ([`ZoneConfig::allocator`]). Buckets change as they are next exchanged. Cached items stay,
    /// so drain after making the sizes smaller.
    pub fn resize_caches(&self, bucket_items: u32, depot_items: u32) {
        self.zone.resize_caches(bucket_items, depot_items);
    }

    /// Ends allocation: sleepers are refused, and freed items go to the keg.
    pub fn close(&self) {
        if !std::thread::panicking() {
            self.flush_quarantine();
        }
        self.zone.close();
        self.supply().limit.close();
    }

    /// Returns the items in use and the code that allocated them, as far as the zone is debugged.
    #[must_use]
    pub fn holders(&self) -> Vec<(NonNull<u8>, String)> {
        let supply = self.supply();
        let debug = supply.debug.as_ref();
        debug.map_or_else(Vec::new, |debug| debug.holders(&supply.keg))
    }

    /// Returns the zone's counters and its present state.
    #[must_use]
    pub fn stats(&self) -> ItemStats {
        self.supply().stats(self.zone.stats())
    }

    pub(super) fn is_allocator(&self) -> bool {
        self.zone.is_allocator()
    }

    fn supply(&self) -> &Supply<O> {
        self.zone.backend()
    }

    #[inline]
    fn address(&self, item: u32) -> NonNull<u8> {
        // SAFETY: the keg made the item inside the arena's window.
        unsafe { self.base.add(item as usize * UNIT_LEN) }
    }

    #[inline]
    fn number(&self, item: NonNull<u8>) -> u32 {
        let offset = item.addr().get().wrapping_sub(self.base.addr().get());
        #[allow(
            clippy::cast_possible_truncation,
            reason = "an item of this zone lies in a window of 2^32 units; the keg checks what comes to it"
        )]
        let number = (offset / UNIT_LEN) as u32;
        number
    }

    #[inline]
    fn construct(&self, item: u32, arg: O::Arg<'_>) -> Result<NonNull<u8>, AllocError> {
        let address = self.address(item);
        match self.object().ctor(address, arg) {
            Ok(()) => Ok(address),
            Err(_) => {
                self.zone.count_failure();
                self.zone.free(item);
                Err(AllocError::Ctor)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, arg: O::Arg<'_>, request: Request) -> Result<NonNull<u8>, AllocError> {
        if self.zone.pressure() {
            self.press(); // a limit that was lowered may be kept by now
        }
        match self.obtain(request) {
            Ok(item) => {
                let Some(debug) = &self.supply().debug else {
                    return self.construct(item, arg);
                };
                let address = self.construct(item, arg)?;
                debug.on_alloc(self.keg(), item);
                Ok(address)
            }
            Err(error) => {
                self.zone.count_failure();
                Err(error)
            }
        }
    }

    fn obtain(&self, request: Request) -> Result<u32, AllocError> {
        if let Some(item) = self.zone.obtain() {
            return Ok(item);
        }
        if self.zone.is_closed() {
            return Err(AllocError::Closed);
        }
        let limit = &self.supply().limit;
        // Items that other threads have cached count against the limit, and must not be the reason that none is left.
        let resting = self.flush_quarantine();
        if limit.sleepers() == 0 && (resting || self.zone.stats().cached() > 0) {
            self.zone.drain(Level::All);
            if let Some(item) = self.zone.obtain() {
                return Ok(item);
            }
        }
        if limit.is_met() && self.supply().notifier.ring(self.name(), limit.max()) {
            reaper::wake_to_act();
        }
        let outcome = limit.sleep(request.wait, || {
            self.press();
            // Items that were freed into the quarantine before that.
            self.flush_quarantine();
        });
        self.press();
        match outcome {
            Outcome::Granted => {
                let item = self
                    .supply()
                    .import_one(request.wait, request.use_reserve)?;
                self.zone.count_imported(1);
                Ok(item)
            }
            Outcome::TimedOut => Err(AllocError::Limit { max: limit.max() }),
            Outcome::Closed => Err(AllocError::Closed),
        }
    }

    #[cold]
    fn free_debugged(&self, address: NonNull<u8>) {
        let (supply, name) = (self.supply(), self.name());
        let Some(debug) = &supply.debug else { return };
        debug.check_free(name, &supply.keg, address);
        self.object().dtor(address);
        let rested = debug.on_free(
            name,
            &supply.keg,
            self.number(address),
            !self.is_exhausted(),
        );
        rested.into_iter().for_each(|item| self.zone.free(item));
    }

    /// Gives resting items to the keg; returns whether there were any.
    fn flush_quarantine(&self) -> bool {
        let supply = self.supply();
        let rested = match &supply.debug {
            None => return false,
            Some(debug) => debug.flush(&supply.name, &supply.keg),
        };
        rested.iter().for_each(|&item| self.zone.free(item));
        !rested.is_empty()
    }

    /// Sets the pressure: nothing is cached while a thread sleeps, or there are more items than the limit allows.
    fn press(&self) {
        let mut pressed = self.supply().pressed.lock();
        let want = self.is_exhausted() || self.supply().limit.is_exceeded();
        if want != *pressed {
            *pressed = want;
            self.zone.set_pressure(want);
        }
    }
}

/// Operations that touch only the calling thread's cache: no lock, no memory. They serve an allocator that has to know
/// when it leaves this path.
impl ItemZone<Bytes> {
    /// Allocates an item out of the calling thread's cache or not at all.
    #[inline]
    #[must_use]
    pub fn alloc_cached(&self) -> Option<NonNull<u8>> {
        self.zone.alloc_cached().map(|item| self.address(item))
    }

    /// Frees an item into the calling thread's cache. Returns `false`, and changes nothing, if the cache has no room.
    ///
    /// # Safety
    /// If it returns `true`, the rules of [`free`](Self::free) hold.
    #[inline]
    #[must_use]
    pub unsafe fn free_cached(&self, item: NonNull<u8>) -> bool {
        self.zone.free_cached(self.number(item))
    }
}

impl<O: Object> std::fmt::Debug for ItemZone<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemZone")
            .field("name", &self.name())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
