//! The facts about pools for a policy.

use serde::{Deserialize, Serialize};

/// All pools at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The time, on any clock that only rises.
    pub at_ns: u64,
    /// The most for all quotas together, bytes.
    pub limit_bytes: u64,
    /// Each pool once.
    pub pools: Vec<PoolState>,
}

/// One pool. Counters count from its creation on; where one is smaller than before, the pool counts as a new one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolState {
    /// The pool's id.
    pub id: u32,
    /// The pool's name.
    pub name: String,
    /// Time that callers spent waiting for memory, summed over callers, those that wait now included.
    pub blocked_ns: u64,
    /// Time spent collecting.
    pub collect_ns: u64,
    /// Collections.
    pub collections: u64,
    /// Buffers handed out.
    pub allocs: u64,
    /// Bytes in use.
    pub live_bytes: u64,
    /// The most that was in use at once since the last snapshot; 0: not known.
    pub peak_bytes: u64,
    /// Dead and not collected yet, as far as is known.
    pub garbage_bytes: u64,
    /// Bytes that are free and kept in caches.
    pub cached_bytes: u64,
    /// Buffers in use now; 0: not known.
    pub live_buffers: u64,
    /// Callers that wait now.
    pub waiters: u32,
    /// The summed time of present waits, ns: already in `blocked_ns`.
    pub waiting_ns: u64,
    /// The quota in force.
    pub quota_bytes: u64,
    /// The pool's granted memory, bytes.
    pub granted_bytes: u64,
    /// The chunk size: quotas are multiples of it.
    pub grain_bytes: u64,
    /// The pool's configured rule.
    #[serde(flatten)]
    pub rule: Rule,
}

/// The wishes of an administrator for a pool.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// The pool's minimum, bytes.
    pub min_bytes: u64,
    /// The pool's maximum, bytes.
    pub max_bytes: u64,
    /// The weight: scarce memory is divided in proportion to weights.
    pub weight: u32,
    /// Policy `priority`: the higher is served first.
    pub priority: i32,
    /// For policy `qos`: the share of its callers' time that should be spent waiting for memory and collecting, 0 to 1.
    pub target: Option<f64>,
    /// The number of callers at once.
    pub callers: u32,
    /// The group: its pools have one target together, over which `callers` go.
    pub group: Option<String>,
    /// The most for the whole group, bytes: one quota, divided among its pools by their wishes.
    pub group_max_bytes: Option<u64>,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            min_bytes: 0,
            max_bytes: u64::MAX,
            weight: 1,
            priority: 0,
            target: None,
            callers: 1,
            group: None,
            group_max_bytes: None,
        }
    }
}
