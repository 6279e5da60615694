//! Limits of mbufs and clusters.

use crate::size::ClusterSize;
use std::fs;

/// The most items of each zone, cached ones included (`kern.ipc.nmbufs`, `nmbclusters`, `nmbjumbop`, `nmbjumbo9`,
/// `nmbjumbo16`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Mbufs of each kind.
    #[doc(alias = "nmbufs")]
    pub mbufs: u64,
    /// Clusters of 2 KiB, those of packets included.
    #[doc(alias = "nmbclusters")]
    pub clusters: u64,
    /// Clusters of a page.
    #[doc(alias = "nmbjumbop")]
    pub jumbo_page: u64,
    /// Clusters of 9 KiB.
    #[doc(alias = "nmbjumbo9")]
    pub jumbo9: u64,
    /// Clusters of 16 KiB.
    #[doc(alias = "nmbjumbo16")]
    pub jumbo16: u64,
}

impl Limits {
    /// No limits but memory.
    pub const NONE: Limits = Limits {
        mbufs: u64::MAX,
        clusters: u64::MAX,
        jumbo_page: u64::MAX,
        jumbo9: u64::MAX,
        jumbo16: u64::MAX,
    };

    /// Returns the traditional defaults for a size of memory: a quarter of it may be 2 KiB clusters, a quarter
    /// page-sized ones, a sixth each of the two larger ones.
    #[must_use]
    pub fn for_memory(bytes: u64) -> Limits {
        let share = |size: ClusterSize, part| bytes / size.bytes() as u64 / part;
        let clusters = share(ClusterSize::Std, 4);
        let jumbo_page = share(ClusterSize::Page, 4);
        let jumbo9 = share(ClusterSize::Jumbo9, 6);
        let jumbo16 = share(ClusterSize::Jumbo16, 6);
        let sum = clusters + jumbo_page + jumbo9 + jumbo16;
        Limits {
            mbufs: sum.max(share(ClusterSize::Std, 1) * 2),
            clusters,
            jumbo_page,
            jumbo9,
            jumbo16,
        }
    }

    pub(crate) fn clusters(&self, size: ClusterSize) -> u64 {
        match size {
            ClusterSize::Std => self.clusters,
            ClusterSize::Page => self.jumbo_page,
            ClusterSize::Jumbo9 => self.jumbo9,
            ClusterSize::Jumbo16 => self.jumbo16,
        }
    }

    /// Says whether there are enough mbufs for all clusters.
    pub(crate) fn fits(&self) -> bool {
        let sum = ClusterSize::ALL
            .into_iter()
            .fold(0u64, |sum, size| sum.saturating_add(self.clusters(size)));
        self.mbufs >= sum
    }
}

impl Default for Limits {
    /// Returns the limits for half of the machine's memory (`maxmbufmem`).
    fn default() -> Limits {
        Limits::for_memory(machine_bytes() / 2)
    }
}

fn machine_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok());
    kib.map_or(1 << 30, |kib| kib << 10)
}
