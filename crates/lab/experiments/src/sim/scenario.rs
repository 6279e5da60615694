//! The description of a simulation.

use super::app::App;
use tranship_policy::Rule;

/// A page, the unit of requests.
pub const PAGE: u64 = 4096;

/// Programs, their pools, and the amount of memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The scenario's name.
    pub name: String,
    /// A sentence about the scenario's purpose.
    pub about: String,
    /// The simulator's unit and every pool's chunk, bytes.
    pub page_bytes: u64,
    /// Memory, pages.
    pub limit_pages: u64,
    /// The period between two settings of quotas, ms.
    pub period_ms: u64,
    /// The scenario's length, ms.
    pub end_ms: u64,
    /// The pools.
    pub pools: Vec<PoolSpec>,
    /// The programs that use the pools.
    pub apps: Vec<App>,
    /// The seed of the variations in the time of requests.
    pub seed: u64,
}

/// A pool of a scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolSpec {
    /// The pool's name.
    pub name: String,
    /// The pool's rule, in bytes.
    pub rule: Rule,
    /// The pool's first quota, pages; `None`: an equal part of the limit.
    pub first_pages: Option<u64>,
}

impl PoolSpec {
    /// Makes a pool with the usual rule.
    pub fn new(name: &str) -> PoolSpec {
        PoolSpec {
            name: name.to_owned(),
            rule: Rule {
                min_bytes: PAGE,
                ..Rule::default()
            },
            first_pages: None,
        }
    }
}
