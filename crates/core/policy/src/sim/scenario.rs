//! The description of a simulation.

use super::app::App;
use crate::snapshot::Rule;

/// A page, the unit of requests.
pub const PAGE: u64 = 4096;

/// Programs, their pools, and how much memory there is.
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
    /// How often quotas are set.
    pub period_ms: u64,
    /// How long it goes on.
    pub end_ms: u64,
    /// The pools.
    pub pools: Vec<PoolSpec>,
    /// The programs that use the pools.
    pub apps: Vec<App>,
    /// Of the variations in how long requests take.
    pub seed: u64,
}

/// A pool of it.
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
    /// With the usual rule.
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
