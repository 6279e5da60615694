//! Items in memory: constructors that fail, zones that share a keg, limits.

#[path = "../common/mod.rs"]
mod common;
mod limits;

use common::watchdog;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tranship_items::arena::Arena;
use tranship_items::item::{AllocError, Refused, Request, Wait};
use tranship_items::{Bytes, ItemKeg, ItemOptions, ItemZone, Level, Object};

fn keg(bytes: u64) -> Arc<ItemKeg> {
    let arena = Arc::new(Arena::private(256 << 20).expect("arena"));
    ItemKeg::new(&arena, bytes, 16).expect("keg")
}

fn plain(keg: &Arc<ItemKeg>) -> ItemZone<Bytes> {
    ItemZone::new(keg, Bytes, ItemOptions::named("plain"))
}

fn watched<R>(work: impl FnOnce() -> R) -> R {
    let _watchdog = watchdog();
    work()
}

/// Counts the callbacks, and refuses on request.
#[derive(Default)]
struct Watched {
    inits: AtomicI64,
    ctors: AtomicI64,
    /// The number of calls before the first refusal; -1: no refusal.
    init_budget: AtomicI64,
    ctor_budget: AtomicI64,
}

impl Watched {
    fn unlimited() -> Self {
        Self {
            init_budget: AtomicI64::new(-1),
            ctor_budget: AtomicI64::new(-1),
            ..Self::default()
        }
    }
}

fn spend(budget: &AtomicI64) -> Result<(), Refused> {
    let spent = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
        0 => None,
        -1 => Some(-1),
        left => Some(left - 1),
    });
    spent.map(|_| ()).map_err(|_| Refused)
}

impl Object for Watched {
    type Arg<'a> = u64;
    const INITIALIZED: bool = true;

    fn init(&self, item: NonNull<u8>, _wait: Wait) -> Result<(), Refused> {
        spend(&self.init_budget)?;
        self.inits.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the item is ours, of at least 16 bytes.
        unsafe { item.cast::<u64>().write(0x1234) };
        Ok(())
    }

    fn fini(&self, item: NonNull<u8>) {
        self.inits.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as in `init`, which wrote it.
        assert_eq!(unsafe { item.cast::<u64>().replace(0) }, 0x1234);
    }

    fn ctor(&self, item: NonNull<u8>, arg: u64) -> Result<(), Refused> {
        spend(&self.ctor_budget)?;
        self.ctors.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as in `init`.
        unsafe {
            assert_eq!(item.cast::<u64>().read(), 0x1234);
            item.cast::<u64>().add(1).write(arg);
        }
        Ok(())
    }

    fn dtor(&self, _item: NonNull<u8>) {
        self.ctors.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn items_are_distinct_aligned_and_found_by_address() {
    let arena = Arc::new(Arena::private(64 << 20).expect("arena"));
    for (bytes, align) in [
        (1, 1),
        (16, 16),
        (224, 32),
        (256, 256),
        (2048, 2048),
        (9216, 4096),
    ] {
        let keg = ItemKeg::new(&arena, bytes, align).expect("keg");
        let zone = plain(&keg);
        let mut seen = HashSet::new();
        let items: Vec<_> = (0..1000).map(|_| zone.alloc(()).expect("room")).collect();
        for &item in &items {
            assert_eq!(item.addr().get() as u64 % align.max(16), 0);
            assert!(seen.insert(item));
            assert_eq!(arena.tag_of(item.as_ptr()), keg.tag());
            assert!(keg.is_item(item.as_ptr()));
            // SAFETY: ours.
            unsafe {
                item.as_ptr()
                    .write_bytes(0xa5, usize::try_from(bytes).expect("small"))
            };
        }
        assert_eq!(zone.stats().zone.outstanding(), 1000);
        // SAFETY: each once.
        items
            .into_iter()
            .for_each(|item| unsafe { zone.free(item) });
        assert_eq!(zone.stats().zone.outstanding(), 0);
        drop(zone);
        assert_eq!(keg.used_items(), 0);
        drop(keg);
        // The thread that keeps time may hold the keg a moment longer, and may have given memory back already.
        while arena.stats().used_pages > 0 {
            std::thread::yield_now();
        }
    }
    arena.purge();
    let stats = arena.stats();
    assert!(
        stats.committed_pages == 0 && stats.given_back_pages > 0,
        "{stats:?}"
    );
}

#[test]
fn init_fails_at_every_point_and_the_successful_prefix_is_kept() {
    for budget in 0..100 {
        let keg = keg(64);
        let zone = ItemZone::new(&keg, Watched::unlimited(), ItemOptions::named("w"));
        zone.object().init_budget.store(budget, Ordering::Relaxed);
        let mut items = Vec::new();
        while let Some(item) = zone.alloc(7) {
            items.push(item);
        }
        assert_eq!(items.len() as i64, budget);
        assert_eq!(zone.request(7, Request::default()), Err(AllocError::Init));
        assert_eq!(zone.stats().zone.failures, 2);
        assert_eq!(zone.stats().items, keg.used_items());
        assert_eq!(keg.used_items(), items.len() as u64);
        // SAFETY: each once.
        items
            .into_iter()
            .for_each(|item| unsafe { zone.free(item) });
        zone.drain(Level::All);
        assert_eq!(zone.object().inits.load(Ordering::Relaxed), 0);
        assert_eq!((keg.used_items(), zone.stats().items), (0, 0));
    }
}

#[test]
fn a_failing_ctor_gives_the_item_back_and_counts() {
    let keg = keg(64);
    let zone = ItemZone::new(&keg, Watched::unlimited(), ItemOptions::named("w"));
    for budget in [0, 1, 5, 63, 64, 65] {
        zone.object().ctor_budget.store(budget, Ordering::Relaxed);
        let before = zone.stats().zone.failures;
        let mut items = Vec::new();
        while let Some(item) = zone.alloc(3) {
            items.push(item);
        }
        assert_eq!(items.len() as i64, budget);
        assert_eq!(zone.stats().zone.failures, before + 1);
        assert_eq!(zone.stats().zone.outstanding(), items.len() as u64);
        zone.object().ctor_budget.store(0, Ordering::Relaxed);
        assert_eq!(zone.request(3, Request::default()), Err(AllocError::Ctor));
        // SAFETY: each once.
        items
            .into_iter()
            .for_each(|item| unsafe { zone.free(item) });
        assert_eq!(zone.object().ctors.load(Ordering::Relaxed), 0);
    }
}

/// A packet: an item whose first word points to a cluster of another zone while it is in the packet zone.
struct Packet {
    clusters: Arc<ItemZone<Bytes>>,
}

impl Object for Packet {
    type Arg<'a> = ();
    const INITIALIZED: bool = true;

    fn init(&self, item: NonNull<u8>, wait: Wait) -> Result<(), Refused> {
        let cluster = self
            .clusters
            .request((), Request::wait(wait))
            .map_err(|_| Refused)?;
        // SAFETY: ours.
        unsafe { item.cast::<NonNull<u8>>().write(cluster) };
        Ok(())
    }

    fn fini(&self, item: NonNull<u8>) {
        // SAFETY: `init` wrote it; no other code has the cluster.
        unsafe { self.clusters.free(item.cast::<NonNull<u8>>().read()) };
    }
}

#[test]
fn a_secondary_zone_shares_the_keg_and_accounts_for_itself() {
    let arena = Arc::new(Arena::private(256 << 20).expect("arena"));
    let mbufs = ItemKeg::new(&arena, 256, 256).expect("keg");
    let clusters = ItemKeg::new(&arena, 2048, 2048).expect("keg");
    let cluster_zone = Arc::new(ItemZone::new(
        &clusters,
        Bytes,
        ItemOptions::named("cluster").max(100),
    ));
    let mbuf_zone = plain(&mbufs);
    let packets = ItemZone::new(
        &mbufs,
        Packet {
            clusters: cluster_zone.clone(),
        },
        ItemOptions::named("packet"),
    );
    let single: Vec<_> = (0..50)
        .map(|_| mbuf_zone.alloc(()).expect("room"))
        .collect();
    let mut full = Vec::new();
    while let Some(packet) = packets.alloc(()) {
        full.push(packet);
    }
    // The clusters' limit ends it.
    assert_eq!(full.len(), 100);
    assert_eq!(cluster_zone.stats().zone.outstanding(), 100);
    assert_eq!(packets.stats().items, 100);
    assert_eq!(mbufs.used_items(), 100 + mbuf_zone.stats().items);
    let addresses: HashSet<_> = single.iter().chain(&full).collect();
    assert_eq!(addresses.len(), 150);
    // SAFETY: each once.
    full.into_iter()
        .for_each(|packet| unsafe { packets.free(packet) });
    // Packets rest as packets: their clusters are still out of the cluster zone.
    assert!(cluster_zone.stats().zone.outstanding() > 0);
    packets.drain(Level::All);
    assert_eq!(cluster_zone.stats().zone.outstanding(), 0);
    assert_eq!(packets.stats().items, 0);
    // SAFETY: each once.
    single
        .into_iter()
        .for_each(|item| unsafe { mbuf_zone.free(item) });
}

#[test]
fn a_zone_that_is_destroyed_with_items_out_says_so() {
    let keg = keg(100);
    let zone = plain(&keg);
    let items: Vec<_> = (0..3).map(|_| zone.alloc(()).expect("room")).collect();
    // SAFETY: once.
    unsafe { zone.free(items[0]) };
    let out = zone.destroy().expect_err("two are out");
    assert_eq!((out.items, out.item_bytes), (2, 100));
    assert_eq!(
        out.to_string(),
        "zone plain was destroyed with items out: 2 of 100 bytes; free all of them first"
    );
    assert_eq!(keg.used_items(), 2, "they stay where they are");
    let zone = plain(&keg);
    let item = zone.alloc(()).expect("room");
    // SAFETY: once.
    unsafe { zone.free(item) };
    assert_eq!(zone.destroy(), Ok(()));
}

/// A caller that only drops the zone is told by a warning.
#[test]
fn a_zone_that_is_dropped_with_items_out_warns() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || to.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let keg = keg(100);
        drop(plain(&keg));
        let zone = plain(&keg);
        let (_out, _told) = (zone.alloc(()), zone.destroy().is_err());
        let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("leaky"));
        let _lost = zone.alloc(()).expect("room");
    });
    let log = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("text");
    assert_eq!(log.matches("was destroyed").count(), 1, "{log}");
    assert!(
        log.contains("WARN")
            && log.contains("zone leaky was destroyed with items out: 1 of 100 bytes"),
        "{log}"
    );
}

#[test]
fn the_reserve_is_for_who_asks() {
    let arena = Arc::new(Arena::private(2 << 20).expect("arena"));
    let keg = ItemKeg::new(&arena, 4096, 4096).expect("keg");
    keg.set_reserve(10);
    assert!(keg.preallocate(10));
    let zone = plain(&keg);
    let mut items: Vec<_> = std::iter::from_fn(|| zone.alloc(())).collect();
    let total = 2 << 20 >> 12;
    assert_eq!(items.len(), total - 10);
    let urgent = Request::default().with_reserve();
    for _ in 0..10 {
        items.push(zone.request((), urgent).expect("the reserve"));
    }
    assert_eq!(
        zone.request((), urgent),
        Err(AllocError::NoMemory { bytes: 32 << 10 })
    );
    // SAFETY: each once.
    items
        .into_iter()
        .for_each(|item| unsafe { zone.free(item) });
    zone.drain(Level::All);
    keg.reap();
    assert!(keg.pages() >= 10);
}

#[test]
fn items_are_freed_on_other_threads_and_threads_give_back_what_they_cached() {
    let keg = keg(256);
    let zone = Arc::new(plain(&keg));
    let freed = Arc::new(AtomicU64::new(0));
    let (send, receive) = std::sync::mpsc::sync_channel::<usize>(64);
    let consumer = std::thread::spawn({
        let (zone, freed) = (zone.clone(), freed.clone());
        move || {
            for address in receive {
                let item = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
                // SAFETY: once, handed over.
                unsafe { zone.free(item.expect("not null")) };
                freed.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for _ in 0..20_000 {
        let item = zone.alloc(()).expect("room");
        send.send(item.as_ptr().expose_provenance())
            .expect("consumer");
    }
    drop(send);
    consumer.join().expect("consumer");
    assert_eq!(freed.load(Ordering::Relaxed), 20_000);
    let stats = zone.stats();
    assert_eq!((stats.zone.allocs, stats.zone.frees), (20_000, 20_000));
    zone.drain(Level::All);
    assert_eq!((zone.stats().items, keg.used_items()), (0, 0));
}
