//! Table of every metric.

/// Meaning of a metric's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only rises, until the counted object begins anew; its samples end in `_total`.
    Counter,
    /// Always 1: its labels carry the information; its samples end in `_info`.
    Info,
}

/// Samples of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// Name without the suffix of its kind.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Unit of its values, unless they count things; the name ends in it.
    pub unit: Option<&'static str>,
    /// Help text, for people.
    pub help: &'static str,
    /// The labels of its samples.
    pub labels: &'static [&'static str],
}

impl Family {
    /// Returns the name of its samples, which queries ask for.
    #[must_use]
    pub fn sample_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Gauge => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        };
        format!("{}{suffix}", self.name)
    }
}

const POOL: &[&str] = &["pool", "domain"];
const HEAP: &[&str] = &["heap", "domain"];
const DOMAIN: &[&str] = &["domain", "uid"];
const CHANNEL: &[&str] = &["channel", "from", "to"];
const HOLD: &[&str] = &["domain", "pool"];

macro_rules! families {
    ($($id:ident = $kind:ident $name:literal $(in $unit:literal)? $labels:expr, $help:literal;)*) => {
        $(pub(crate) const $id: Family = Family {
            name: $name,
            kind: Kind::$kind,
            unit: families!(@unit $($unit)?),
            help: $help,
            labels: $labels,
        };)*
        /// All families, in the order in which they are printed.
        pub const FAMILIES: &[Family] = &[$($id),*];
    };
    (@unit $unit:literal) => { Some($unit) };
    (@unit) => { None };
}

families! {
    UP = Gauge "tranship_up" &[], "1: the manager answered; 0: none is there, or it does not answer, and nothing else is said.";
    BUILD = Info "tranship_build" &["version"], "What says this.";
    LOOK = Gauge "tranship_look_seconds" in "seconds" &[], "How long the manager took to answer.";
    OMITTED = Gauge "tranship_objects_summed" &["kind"], "Objects beyond the number that is shown one by one; their figures are in the series labelled (others).";
    UPTIME = Gauge "tranship_manager_uptime_seconds" in "seconds" &[], "Since the manager's start.";
    TURN = Gauge "tranship_manager_longest_turn_seconds" in "seconds" &[], "The longest turn of the manager's loop since its start, processor time.";
    LIMIT = Gauge "tranship_memory_limit_bytes" in "bytes" &[], "What may be granted in all.";
    EFFECTIVE = Gauge "tranship_memory_effective_limit_bytes" in "bytes" &[], "What may be granted at present, while memory is short outside.";
    GRANTED = Gauge "tranship_memory_granted_bytes" in "bytes" &[], "Granted to pools and heaps.";
    STRANDED = Gauge "tranship_memory_stranded_bytes" in "bytes" &[], "Returned by writers, still mapped by readers.";
    SHARED = Gauge "tranship_memory_shared_bytes" in "bytes" &["kind"], "Shared memory that there is: data, stranded, tables, rings, control pages.";
    DESCRIPTORS = Gauge "tranship_manager_descriptors" &[], "Descriptors that the manager holds for its clients.";
    MOST_DESCRIPTORS = Gauge "tranship_manager_descriptors_limit" &[], "And how many it may hold.";
    OWN = Gauge "tranship_manager_memory_per_user_limit_bytes" in "bytes" &[], "The most that the manager's own process may come to need for one user.";
    DOMAINS = Gauge "tranship_domains" &["state"], "Domains: connected, or kept without a connection until their process ends.";
    POOLS = Gauge "tranship_pools" &["state"], "Pools: live, or orphaned when their writer is gone.";
    HEAPS = Gauge "tranship_heaps" &[], "Heaps.";
    CHANNELS = Gauge "tranship_channels" &["state"], "Channels: open, exported names that nobody is connected to, and names that somebody waits for.";

    POOL_QUOTA = Gauge "tranship_pool_quota_bytes" in "bytes" POOL, "What the pool may have now.";
    POOL_GRANTED = Gauge "tranship_pool_granted_bytes" in "bytes" POOL, "What it has.";
    POOL_MOST = Gauge "tranship_pool_max_bytes" in "bytes" POOL, "What it may ever have.";
    POOL_LIVE = Gauge "tranship_pool_live_bytes" in "bytes" POOL, "In use, as its writer says.";
    POOL_GARBAGE = Gauge "tranship_pool_garbage_bytes" in "bytes" POOL, "Found dead when its writer last looked, as it says.";
    POOL_CACHED = Gauge "tranship_pool_cached_bytes" in "bytes" POOL, "Free and at hand, as its writer says.";
    POOL_LINGERING = Gauge "tranship_pool_lingering_bytes" in "bytes" POOL, "Charged to those who hold it.";
    POOL_STRANDED = Gauge "tranship_pool_stranded_bytes" in "bytes" POOL, "Returned, still mapped by a reader.";
    POOL_DATA = Gauge "tranship_pool_data_bytes" in "bytes" POOL, "Chunks that are there.";
    POOL_TABLES = Gauge "tranship_pool_table_bytes" in "bytes" POOL, "Its slot table and all its counters.";
    POOL_BUFFERS = Gauge "tranship_pool_live_buffers" POOL, "Buffers in use, as its writer says.";
    POOL_READERS = Gauge "tranship_pool_readers" POOL, "Domains that read it.";
    POOL_ORPHANED = Gauge "tranship_pool_orphaned" POOL, "1 when its writer is gone.";
    POOL_WAITERS = Gauge "tranship_pool_waiters" POOL, "Callers that wait for memory.";
    POOL_TARGET = Gauge "tranship_pool_target_ratio" in "ratio" POOL, "The share of its callers' time that may be spent waiting, where the configuration says one.";
    POOL_BLOCKED = Counter "tranship_pool_blocked_seconds" in "seconds" POOL, "Time that callers waited for memory, summed over callers.";
    POOL_COLLECT = Counter "tranship_pool_collect_seconds" in "seconds" POOL, "Time spent collecting.";
    POOL_ALLOCS = Counter "tranship_pool_allocations" POOL, "Buffers handed out.";

    HEAP_QUOTA = Gauge "tranship_heap_quota_bytes" in "bytes" HEAP, "What the heap may have now.";
    HEAP_ADMITTED = Gauge "tranship_heap_admitted_bytes" in "bytes" HEAP, "What it has.";
    HEAP_MOST = Gauge "tranship_heap_max_bytes" in "bytes" HEAP, "What it may ever have.";

    DOMAIN_COUNT = Gauge "tranship_domain_processes" DOMAIN, "Domains of this name and user.";
    DOMAIN_CONNECTED = Gauge "tranship_domain_connected" DOMAIN, "Those of them with a connection.";
    DOMAIN_DATA = Gauge "tranship_domain_data_bytes" in "bytes" DOMAIN, "Chunks that it made.";
    DOMAIN_TABLES = Gauge "tranship_domain_table_bytes" in "bytes" DOMAIN, "Slot tables and counters that it made.";
    DOMAIN_RINGS = Gauge "tranship_domain_ring_bytes" in "bytes" DOMAIN, "Halves of channels that it made.";
    DOMAIN_LINGERING = Gauge "tranship_domain_lingering_bytes" in "bytes" DOMAIN, "Of others' pools, held for long or moved to it, and charged to it.";
    DOMAIN_STRANDED = Gauge "tranship_domain_stranded_bytes" in "bytes" DOMAIN, "Returned chunks that it still maps.";

    CHANNEL_MESSAGES = Counter "tranship_channel_messages" CHANNEL, "Messages that the receiver has taken.";
    CHANNEL_LINES = Gauge "tranship_channel_lines" CHANNEL, "Places for messages in its ring.";
    CHANNEL_RINGS = Gauge "tranship_channel_ring_bytes" in "bytes" CHANNEL, "Both halves of its ring.";

    HOLD_BYTES = Gauge "tranship_held_bytes" in "bytes" HOLD, "Bytes of a pool's buffers that a reader holds.";
    HOLD_BUFFERS = Gauge "tranship_held_buffers" HOLD, "Buffers of a pool that a reader holds.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_as_openmetrics_wants_them() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), FAMILIES.len(), "one of them twice");
        for f in FAMILIES {
            let fits = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(
                f.name.starts_with("tranship_") && f.name.chars().all(fits),
                "{f:?}"
            );
            assert!(
                f.unit.is_none_or(|u| f.name.ends_with(&format!("_{u}"))),
                "{f:?}"
            );
            // Suffixes that have another meaning in OpenMetrics.
            for reserved in ["_total", "_info", "_created", "_count", "_sum", "_bucket"] {
                assert!(!f.name.ends_with(reserved), "{f:?}");
            }
            assert!(f.kind != Kind::Info || f.unit.is_none(), "{f:?}");
            assert!(f.help.ends_with('.'), "{f:?}");
        }
    }
}
