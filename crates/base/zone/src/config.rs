//! How a zone caches, and its counters.

/// Bytes that a thread's bucket may hold, for items of more than a kilobyte.
const BUCKET_BYTES: u64 = 256 << 10;

/// Makes every running thread of the process pass a full fence; `false` if the kernel cannot.
/// (`membarrier` with `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, after its registration.)
pub type Barrier = fn() -> bool;

/// A zone's parameters.
#[derive(Debug, Clone, Copy)]
pub struct ZoneConfig {
    /// Items of a bucket at first; it grows when threads meet at the depot. 0: nothing is cached.
    pub initial: u32,
    /// The most items to which a bucket grows.
    pub max: u32,
    /// Items that the depot keeps before it gives some back.
    pub depot_items: u32,
    /// Lets a drain take items that other threads have cached. Without it those threads are asked, and give the items
    /// back at their next call.
    pub barrier: Option<Barrier>,
    /// Whether the program's allocator consists of this zone. Then no reaper keeps time for it (it is told by
    /// [`Zone::period_over`](crate::Zone::period_over)). Its locks are the innermost, because other code
    /// allocates while it holds locks of its own.
    pub allocator: bool,
    /// Whether a forked child finds all caches shut, so that it cannot use inherited items.
    pub shut_in_child: bool,
}

impl ZoneConfig {
    /// Makes a configuration for items of `bytes`: buckets of 8 to 254 items, at most 256 KiB unless 8 items are more.
    #[must_use]
    pub fn for_item(bytes: u64) -> Self {
        let max = (BUCKET_BYTES / bytes.max(1)).clamp(8, 254);
        let max = u32::try_from(max).unwrap_or(254);
        Self {
            initial: (max / 4).max(8),
            max,
            depot_items: 2 * max,
            barrier: None,
            allocator: false,
            shut_in_child: false,
        }
    }

    /// Limits the caches for a pool in which only `items` can exist. A thread's two buckets then hide at most a quarter
    /// of them, until a shortage: a drain takes them back.
    #[must_use]
    pub fn capped(self, items: u64) -> Self {
        let cap = u32::try_from(items / 8).unwrap_or(u32::MAX).max(1);
        let max = self.max.min(cap);
        Self {
            initial: self.initial.min(max),
            max,
            depot_items: self.depot_items.min(2 * max),
            ..self
        }
    }

    /// Changes the depot to up to `items`: as many as come, if time trims it to its working set.
    #[must_use]
    pub fn with_depot(self, items: u32) -> Self {
        Self {
            depot_items: items,
            ..self
        }
    }

    /// Changes the configuration to caches that are shut in a forked child.
    #[must_use]
    pub fn shut_in_child(self) -> Self {
        Self {
            shut_in_child: true,
            ..self
        }
    }

    /// Adds a barrier to the configuration.
    #[must_use]
    pub fn with_barrier(self, barrier: Barrier) -> Self {
        Self {
            barrier: Some(barrier),
            ..self
        }
    }
}

/// The caches that a drain empties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The part of the depot beyond its working set, that is, beyond the items really taken out of it lately.
    WorkingSet,
    /// The depot.
    Depot,
    /// The depot and the calling thread's cache.
    Thread,
    /// The depot and all threads' caches, whose buckets shrink.
    All,
}

/// A zone's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneStats {
    /// Items handed out.
    pub allocs: u64,
    /// Items taken back.
    pub frees: u64,
    /// Allocations that found nothing.
    pub failures: u64,
    /// Items that came from the backend.
    pub imported: u64,
    /// Items that went to the backend.
    pub released: u64,
    /// Items in the depot.
    pub depot: u64,
    /// Items of the depot that are worth keeping.
    pub working_set: u64,
    /// Times that a thread found the depot locked.
    pub contended: u64,
    /// Items of a bucket now.
    pub bucket_items: u32,
    /// Threads with a cache.
    pub threads: u32,
}

impl ZoneStats {
    /// Returns the number of items in use.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.allocs.saturating_sub(self.frees)
    }

    /// Returns the number of items in the caches and the depot; exact while no thread allocates or frees.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.imported
            .saturating_sub(self.released)
            .saturating_sub(self.outstanding())
    }
}
