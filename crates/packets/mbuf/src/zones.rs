//! The zones: the source of mbufs and clusters.
//!
//! ```text
//!   mbuf     packet      tagged ...    mini     file ...     std  page  9k  16k     zones: caches per thread, limits
//!     └────────┼───────────┘            └────────┘            │    │    │    │
//!              │ keg of 256 bytes          keg of 192        kegs of 2, 4, 9, 16 KiB
//!              └────────────────┬──────────────┴──────────────┴────┴────┴────┘
//!                             arena: one window of private memory
//! ```
//! Packets take a cluster when they come into their zone's caches and keep it while they are cached; the tag of tagged
//! mbufs and the file of file segments likewise. These three are freed as a unit.

use crate::error::{NoBuffers, What};
use crate::header::Header;
use crate::histogram::Sizes;
use crate::inject;
use crate::limits::Limits;
use crate::size::{ClusterSize, MINI_SIZE, MSIZE};
use crate::tag::Tags;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;
use tranship_core::Pool;
use tranship_items::item::{AllocError, Request, Wait};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone, Level};

/// How long an allocation may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    NoWait,
    Until(Option<Instant>),
}

impl How {
    fn request(self) -> Request {
        Request::wait(match self {
            How::NoWait => Wait::No,
            How::Until(None) => Wait::Forever,
            How::Until(Some(end)) => Wait::Until(end),
        })
    }
}

/// The form of a zone's mbufs.
#[derive(Debug, Clone)]
pub(crate) enum Make {
    Mbuf,
    Mini,
    Packet(Arc<ItemZone<Bytes>>),
    Tagged { cookie: u32, id: u16, len: usize },
    File(Arc<File>),
}

/// A zone of mbufs, to which each of them points. It outlives them.
pub(crate) struct Home {
    zone: ItemZone<Template>,
    inner: *const Inner,
    /// Bytes of data area in an mbuf, with the space in front of it; 0 for mini-mbufs.
    mini: bool,
    unit: bool,
    /// The number of threads that wait for storage that the zone's mbufs keep, and one more if there is too much of it.
    /// While it is not 0, no mbuf is cached.
    starved: AtomicU32,
    tag: Option<(u32, u16)>,
}

// SAFETY: `inner` is the allocator that the home is part of; all else is Send and Sync by itself.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

/// An item as it comes from its zone, and the zone's number for it: an mbuf that no other code knows yet.
pub(crate) struct Fresh {
    pub(crate) item: NonNull<u8>,
    pub(crate) number: u32,
}

/// Prepares a zone's mbufs when they come from the keg.
pub(crate) struct Template {
    pub(crate) home: *const Home,
    pub(crate) keg: Arc<ItemKeg>,
    pub(crate) make: Make,
}

// SAFETY: `home` is only an address, written into mbufs.
unsafe impl Send for Template {}
// SAFETY: as above.
unsafe impl Sync for Template {}

/// An allocator's zones.
pub(crate) struct Inner {
    pub(crate) packet: Home,
    pub(crate) pool: Option<Pool>,
    pub(crate) mbuf: Home,
    pub(crate) mini: Home,
    pub(crate) clusters: [Arc<ItemZone<Bytes>>; 4],
    mbuf_keg: Arc<ItemKeg>,
    mini_keg: Arc<ItemKeg>,
    pub(crate) arena: Arc<Arena>,
    /// Zones that were added: of tagged mbufs, of file segments. They stay as long as the allocator.
    pub(crate) more: Mutex<Vec<Arc<Home>>>,
    pub(crate) limits: Mutex<Limits>,
    /// Whether there are more clusters than the lowered limit allows.
    exceeded: Mutex<bool>,
    pub(crate) sizes: Sizes,
    /// The program's handles; with the last one the allocator closes.
    pub(crate) handles: AtomicUsize,
}

impl Inner {
    pub(crate) fn new(pool: Option<Pool>, limits: Limits, window: u64) -> io::Result<Arc<Inner>> {
        let arena = Arc::new(Arena::private(window)?);
        let keg = |bytes: usize, align| {
            ItemKeg::new(&arena, bytes as u64, align).map_err(io::Error::other)
        };
        let (mbuf_keg, mini_keg) = (keg(MSIZE, 64)?, keg(MINI_SIZE, 64)?);
        let cluster = |size: ClusterSize, name| {
            let align = if size == ClusterSize::Page { 4096 } else { 64 };
            let options = ItemOptions::named(name).max(limits.clusters(size));
            Ok::<_, io::Error>(Arc::new(ItemZone::new(
                &keg(size.bytes(), align)?,
                Bytes,
                options,
            )))
        };
        let clusters = [
            cluster(ClusterSize::Std, "mbuf_cluster")?,
            cluster(ClusterSize::Page, "mbuf_jumbo_page")?,
            cluster(ClusterSize::Jumbo9, "mbuf_jumbo_9k")?,
            cluster(ClusterSize::Jumbo16, "mbuf_jumbo_16k")?,
        ];
        Ok(Arc::new_cyclic(|me: &Weak<Inner>| {
            let at = me.as_ptr();
            let home = |home: *const Home, keg: &_, make, name: &str, max| {
                Home::new(home, at, keg, make, ItemOptions::named(name).max(max))
            };
            // SAFETY: only addresses of fields are taken, of a place that the allocator will be in.
            let (mbuf, packet, mini) = unsafe {
                (
                    &raw const (*at).mbuf,
                    &raw const (*at).packet,
                    &raw const (*at).mini,
                )
            };
            let attached = Make::Packet(clusters[0].clone());
            Inner {
                mbuf: home(mbuf, &mbuf_keg, Make::Mbuf, "mbuf", limits.mbufs),
                packet: home(packet, &mbuf_keg, attached, "mbuf_packet", limits.mbufs),
                mini: home(mini, &mini_keg, Make::Mini, "mbuf_mini", limits.mbufs),
                pool,
                clusters,
                mbuf_keg,
                mini_keg,
                arena,
                more: Mutex::default(),
                limits: Mutex::new(limits),
                exceeded: Mutex::new(false),
                sizes: Sizes::default(),
                handles: AtomicUsize::new(1), // its maker's
            }
        }))
    }

    /// Adds a zone: of tagged mbufs over the mbufs' keg, or of file segments over the mini-mbufs'.
    pub(crate) fn add_zone(&self, make: Make, name: &str) -> Arc<Home> {
        let max = self.lock_limits().mbufs;
        let keg = match make {
            Make::File(_) => &self.mini_keg,
            _ => &self.mbuf_keg,
        };
        let options = ItemOptions::named(name).max(max);
        let home =
            Arc::new_cyclic(|me: &Weak<Home>| Home::new(me.as_ptr(), self, keg, make, options));
        self.more().push(home.clone());
        home
    }

    pub(crate) fn more(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Home>>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock_limits(&self) -> std::sync::MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Mbufs and clusters that are out. A cached packet's cluster is not.
    pub(crate) fn outstanding(&self) -> u64 {
        let more = self.more();
        let homes = more.iter().map(|home| &**home);
        let homes = homes.chain([&self.mbuf, &self.mini, &self.packet]);
        let mbufs: u64 = homes.map(|home| home.zone.stats().zone.outstanding()).sum();
        let clusters: u64 = self
            .clusters
            .iter()
            .map(|zone| zone.stats().zone.outstanding())
            .sum();
        mbufs + clusters.saturating_sub(self.packet.zone.stats().items)
    }

    pub(crate) fn cluster(&self, size: ClusterSize, how: How) -> Result<NonNull<u8>, NoBuffers> {
        let none = || What::Cluster(size).into();
        if inject::fails() {
            return Err(none());
        }
        let zone = &self.clusters[size as usize];
        if let Some(cluster) = zone.alloc(()) {
            return Ok(cluster);
        }
        // Packets in caches may have the missing clusters.
        if size == ClusterSize::Std {
            self.packet.zone.drain(Level::All);
        }
        self.packet
            .starved(size == ClusterSize::Std && how != How::NoWait, || {
                zone.request((), how.request())
                    .map_err(|_: AllocError| none())
            })
    }

    /// Stops caching freed packets while there are more clusters than their limit allows.
    pub(crate) fn keep_cluster_limit(&self) {
        let clusters = self.clusters[ClusterSize::Std as usize].stats();
        let exceeds = clusters.items > clusters.max;
        let mut exceeded = self.exceeded.lock().unwrap_or_else(PoisonError::into_inner);
        if exceeds != std::mem::replace(&mut *exceeded, exceeds) {
            self.packet.set_starved(exceeds);
        }
    }

    /// # Safety
    /// The cluster came from here and is not used again.
    pub(crate) unsafe fn free_cluster(&self, at: NonNull<u8>, size: ClusterSize) {
        // SAFETY: as the caller promises.
        unsafe { self.clusters[size as usize].free(at) };
    }

    pub(crate) fn drain(&self, level: Level) {
        for home in self.more().iter() {
            home.zone.drain(level);
        }
        for home in [&self.packet, &self.mbuf, &self.mini] {
            home.zone.drain(level);
        }
        for zone in &self.clusters {
            zone.drain(level);
        }
    }

    pub(crate) fn reap(&self) -> u64 {
        self.drain(Level::All);
        self.mbuf_keg.reap() + self.mini_keg.reap() + {
            let kegs = self.clusters.iter().map(|zone| zone.keg().reap());
            kegs.sum::<u64>()
        }
    }

    /// Ends allocation; freed items go to the kegs.
    fn close(&self) {
        for home in self.more().iter() {
            home.zone.close();
        }
        for home in [&self.packet, &self.mbuf, &self.mini] {
            home.zone.close();
        }
        for zone in &self.clusters {
            zone.close();
        }
    }
}

/// Allocators without handles that have mbufs out.
static RETIRED: Mutex<Vec<Arc<Inner>>> = Mutex::new(Vec::new());

/// Keeps an allocator whose last handle is gone until its last mbuf has come back. It is dropped when the next
/// allocator is made or released.
pub(crate) fn retire(inner: Option<Arc<Inner>>) {
    let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(inner) = inner {
        inner.close();
        retired.push(inner);
    }
    let (empty, used) = std::mem::take(&mut *retired)
        .into_iter()
        .partition(|inner| inner.outstanding() == 0);
    *retired = used;
    drop(retired);
    let empty: Vec<Arc<Inner>> = empty;
    drop(empty);
}

impl Home {
    fn new(
        home: *const Home,
        inner: *const Inner,
        keg: &Arc<ItemKeg>,
        make: Make,
        options: ItemOptions,
    ) -> Home {
        Home {
            inner,
            mini: matches!(make, Make::Mini | Make::File(_)),
            unit: matches!(make, Make::Packet(_) | Make::File(_)),
            starved: AtomicU32::new(0),
            tag: match make {
                Make::Tagged { cookie, id, .. } => Some((cookie, id)),
                _ => None,
            },
            zone: ItemZone::new(
                keg,
                Template {
                    home,
                    keg: keg.clone(),
                    make,
                },
                options,
            ),
        }
    }

    /// Returns the allocator.
    #[inline]
    pub(crate) fn inner<'a>(&self) -> &'a Inner {
        // SAFETY: an allocator outlives its mbufs, and is asked for through one of them or a handle.
        unsafe { &*self.inner }
    }

    /// Says whether the zone's mbufs have no data area.
    #[inline(always)]
    pub(crate) fn is_mini(&self) -> bool {
        self.mini
    }

    /// Says whether the zone's mbufs keep their storage when they are freed.
    #[inline(always)]
    pub(crate) fn is_unit(&self) -> bool {
        self.unit
    }

    /// Says whether the zone's mbufs keep a tag when they are freed.
    #[inline(always)]
    pub(crate) fn is_tagged(&self) -> bool {
        self.tag.is_some()
    }

    pub(crate) fn zone(&self) -> &ItemZone<Template> {
        &self.zone
    }

    #[inline(always)]
    pub(crate) fn alloc(&self, how: How) -> Result<Fresh, NoBuffers> {
        if inject::fails() {
            return Err(self.none());
        }
        match self.zone.alloc_cached_numbered() {
            Some((item, number)) => Ok(Fresh { item, number }),
            None => self.alloc_uncached(how),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_uncached(&self, how: How) -> Result<Fresh, NoBuffers> {
        if self.starved.load(Ordering::Relaxed) > 0 {
            self.inner().keep_cluster_limit();
        }
        let item = match self.zone.alloc(()) {
            Some(item) => item,
            None => self.alloc_slow(how)?,
        };
        let number = self.zone.keg().number_of(item);
        Ok(Fresh { item, number })
    }

    fn alloc_slow(&self, how: How) -> Result<NonNull<u8>, NoBuffers> {
        // The thread sleeps where other threads' frees are seen; items cached elsewhere may be the missing ones.
        self.inner().drain(Level::All);
        self.starved(self.unit && how != How::NoWait, || {
            self.zone
                .request((), how.request())
                .map_err(|_: AllocError| self.none())
        })
    }

    fn none(&self) -> NoBuffers {
        let what = match (self.unit, self.mini, self.tag) {
            (true, false, _) => What::Packet,
            (_, true, _) => What::Mini,
            (_, _, Some(_)) => What::Tag,
            _ => What::Mbuf,
        };
        what.into()
    }

    /// Runs `work`, which waits for a cluster. Meanwhile freed packets are not cached.
    fn starved<R>(&self, waits: bool, work: impl FnOnce() -> R) -> R {
        if waits {
            self.set_starved(true);
        }
        let result = work();
        if waits {
            self.set_starved(false);
        }
        result
    }

    /// Adds or removes a thread for whose sake freed packets are not cached.
    fn set_starved(&self, starved: bool) {
        if starved {
            // Ordering: the mark before the drain, which makes every running thread pass a fence. A thread that frees
            // afterwards sees the mark; items that went into a cache before are drained.
            self.starved.fetch_add(1, Ordering::SeqCst);
            self.zone.drain(Level::All);
        } else {
            self.starved.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes an mbuf of the zone back. Its storage is gone, unless it is a unit.
    ///
    /// # Safety
    /// The item is of this home and not used again; the number is its own.
    #[inline(always)]
    pub(crate) unsafe fn free(&self, item: NonNull<u8>, number: u32) {
        // SAFETY: as the caller promises; the zone's object has no destructor.
        if unsafe { !self.zone.free_cached_numbered(number) } {
            // SAFETY: as the caller promises.
            return unsafe { self.free_uncached(item) };
        }
        // Ordering: after the mbuf went into the cache, see `starved`; the processor's half is the drain's fence.
        compiler_fence(Ordering::SeqCst);
        if self.starved.load(Ordering::Relaxed) > 0 {
            self.feed();
        }
    }

    /// # Safety
    /// The rules of [`free`](Self::free) hold.
    #[cold]
    #[inline(never)]
    unsafe fn free_uncached(&self, item: NonNull<u8>) {
        // SAFETY: as the caller promises.
        unsafe { self.zone.free(item) };
        // Ordering: as in `free`.
        compiler_fence(Ordering::SeqCst);
        if self.starved.load(Ordering::Relaxed) > 0 {
            self.feed();
        }
    }

    /// Frees an mbuf while a thread waits for the storage that it keeps.
    #[cold]
    #[inline(never)]
    fn feed(&self) {
        self.zone.drain(Level::All);
    }

    /// Drops a packet's tags, except the one that belongs to its zone's mbufs.
    ///
    /// # Safety
    /// The header is valid and its mbuf of this home.
    #[cold]
    pub(crate) unsafe fn drop_tags(&self, header: *mut Header) {
        // SAFETY: valid, as the caller promises.
        let tags = unsafe { &mut (*header).tags };
        match self.tag {
            Some((cookie, id)) => _ = tags.keep_only(cookie, id),
            None => drop(std::mem::replace(tags, Tags::new())),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Zones close, and give their cached items to the kegs, before their kegs go.
        self.close();
    }
}
