//! The zones' counters and present state, as `netstat -m` shows them.

use crate::alloc::Mbufs;
use crate::counts::Calls;
use crate::histogram::Histogram;
use crate::size::ClusterSize;
use std::fmt;
use std::sync::atomic::Ordering;
use tranship_items::PAGE;
use tranship_items::item::ItemStats;

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneUse {
    /// The zone's name.
    pub name: String,
    /// Bytes of an item.
    pub item_bytes: u64,
    /// Items that are out.
    pub current: u64,
    /// Items in caches.
    pub cached: u64,
    /// The most there may be.
    pub limit: u64,
    /// Allocations so far; of packets, the calls of `m_getcl`.
    pub allocs: u64,
    /// The least number of allocations that got a freed, ready-made item: the others came from the keg.
    pub hits: u64,
    /// Items freed so far.
    pub frees: u64,
    /// Allocations that failed (denied).
    pub failures: u64,
    /// Allocations that slept (delayed).
    pub sleeps: u64,
}

impl ZoneUse {
    fn of(name: &str, stats: &ItemStats) -> ZoneUse {
        let zone = &stats.zone;
        ZoneUse {
            name: name.to_owned(),
            item_bytes: stats.item_bytes,
            current: zone.outstanding(),
            cached: zone.cached(),
            limit: stats.max,
            allocs: zone.allocs,
            hits: zone.allocs.saturating_sub(zone.imported),
            frees: zone.frees,
            failures: zone.failures,
            sleeps: stats.sleeps,
        }
    }

    /// Returns the bytes of its items, cached ones included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.current + self.cached) * self.item_bytes
    }
}

/// An allocator's counters and present state.
#[derive(Clone, Debug)]
pub struct MbufStats {
    /// Plain mbufs.
    pub mbufs: ZoneUse,
    /// Mbufs with a cluster, allocated as a unit.
    pub packets: ZoneUse,
    /// Mini-mbufs.
    pub minis: ZoneUse,
    /// Clusters, by size, the smallest first. Packets' clusters are among them.
    pub clusters: [ZoneUse; 4],
    /// Further zones: of tagged mbufs, of file segments.
    pub more: Vec<ZoneUse>,
    /// Bytes of memory that the zones have.
    pub memory_bytes: u64,
    /// Packets by size; see [`Mbufs::record_sizes`].
    pub sizes: Histogram,
    /// Calls of the routines, of the whole process.
    pub calls: Calls,
}

impl MbufStats {
    /// Returns the mbufs of all kinds and clusters in use. A cached packet's cluster is not in use, but while the
    /// zones' own thread gives packets back it may be counted for a moment.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        let mbufs = [&self.mbufs, &self.packets, &self.minis].into_iter();
        let mbufs: u64 = mbufs.chain(&self.more).map(|zone| zone.current).sum();
        let clusters: u64 = self.clusters.iter().map(|zone| zone.current).sum();
        mbufs + clusters.saturating_sub(self.packets.current + self.packets.cached)
    }
}

impl Mbufs {
    /// Returns the counters and the present state. Exact while no thread allocates or frees.
    #[must_use]
    pub fn stats(&self) -> MbufStats {
        let inner = &*self.inner;
        let home =
            |home: &crate::zones::Home| ZoneUse::of(home.zone().name(), &home.zone().stats());
        let cluster = |size: ClusterSize| {
            let zone = &inner.clusters[size as usize];
            ZoneUse::of(zone.name(), &zone.stats())
        };
        MbufStats {
            mbufs: home(&inner.mbuf),
            packets: home(&inner.packet),
            minis: home(&inner.mini),
            clusters: ClusterSize::ALL.map(cluster),
            more: inner.more().iter().map(|more| home(more)).collect(),
            memory_bytes: inner.arena.stats().committed_pages * PAGE,
            sizes: inner.sizes.histogram(),
            calls: Calls::now(),
        }
    }

    /// Sets whether the sizes of packets are counted at their entry and exit: `devget`, sending, receiving, and
    /// [`count_size`](Self::count_size). Off at first.
    pub fn record_sizes(&self, yes: bool) {
        self.inner.sizes.on.store(yes, Ordering::Relaxed);
    }

    /// Counts a packet's size.
    pub fn count_size(&self, bytes: usize) {
        self.inner.sizes.count(bytes);
    }
}

impl fmt::Display for MbufStats {
    /// Formats the figures as `netstat -m` does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mbufs, packets) = (&self.mbufs, &self.packets);
        let (current, cached) = (
            mbufs.current + packets.current,
            mbufs.cached + packets.cached,
        );
        let total = current + cached;
        writeln!(
            f,
            "{current}/{cached}/{total} mbufs in use (current/cache/total)"
        )?;
        let minis = &self.minis;
        writeln!(
            f,
            "{}/{}/{} mini-mbufs in use (current/cache/total)",
            minis.current,
            minis.cached,
            minis.current + minis.cached
        )?;
        for (zone, what) in self.clusters.iter().zip(["2k", "page", "9k", "16k"]) {
            // A cached packet's cluster counts as cached.
            let held = if what == "2k" { packets.cached } else { 0 };
            let (current, cached) = (zone.current.saturating_sub(held), zone.cached + held);
            writeln!(
                f,
                "{current}/{cached}/{}/{} {what} mbuf clusters in use (current/cache/total/max)",
                current + cached,
                zone.limit
            )?;
        }
        writeln!(
            f,
            "{}/{} mbuf+clusters out of packet secondary zone in use (current/cache)",
            packets.current, packets.cached
        )?;
        for zone in &self.more {
            writeln!(
                f,
                "{}/{} {} in use (current/cache)",
                zone.current, zone.cached, zone.name
            )?;
        }
        let used: u64 = [mbufs, packets, minis]
            .into_iter()
            .chain(&self.clusters)
            .chain(&self.more)
            .map(|zone| zone.current * zone.item_bytes)
            .sum();
        writeln!(
            f,
            "{}K/{}K bytes allocated to network (current/total)",
            used >> 10,
            self.memory_bytes >> 10
        )?;
        let clusters = &self.clusters;
        let of = |count: fn(&ZoneUse) -> u64| (count(mbufs), count(&clusters[0]), count(packets));
        let (m, c, p) = of(|zone| zone.failures);
        writeln!(
            f,
            "{m}/{c}/{p} requests for mbufs denied (mbufs/clusters/mbuf+clusters)"
        )?;
        let (m, c, p) = of(|zone| zone.sleeps);
        writeln!(
            f,
            "{m}/{c}/{p} requests for mbufs delayed (mbufs/clusters/mbuf+clusters)"
        )?;
        let (p, c) = (&clusters[1], &clusters[2]);
        writeln!(
            f,
            "{}/{}/{} requests for jumbo clusters denied (4k/9k/16k)",
            p.failures, c.failures, clusters[3].failures
        )?;
        for (_, name, calls) in self.calls.iter().filter(|(_, _, calls)| *calls > 0) {
            writeln!(f, "{calls} {name}")?;
        }
        write!(f, "{}", self.sizes)
    }
}
