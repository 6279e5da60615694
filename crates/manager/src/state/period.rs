//! The policy that sets quotas, and when it does next; how short memory is outside.

use super::types::ClientId;
use crate::Config;
use std::collections::BTreeSet;
use std::time::Duration;
use tranship_policy::Governor;
use tranship_proto::{DomainId, PoolId, Pressure};

/// When, and by what.
#[derive(Debug)]
pub(super) struct Schedule {
    /// None: quotas stay as they are.
    pub governor: Option<Governor>,
    pub due: Duration,
    /// Who sets quotas from outside.
    pub seat: Option<(ClientId, DomainId)>,
    /// Somebody has done so.
    pub steered: bool,
}

impl Schedule {
    pub fn new(config: &Config) -> Schedule {
        let governor = config.is_scheduled().then(|| {
            // The name was looked up when the configuration was read.
            Governor::new(tranship_policy::Config::of(&config.policy)).ok()
        });
        Schedule {
            governor: governor.flatten(),
            // Those who were there before are not to be divided anew while they come back.
            due: config.grace,
            seat: None,
            steered: false,
        }
    }

    /// Whether quotas move by themselves.
    pub fn is_on(&self) -> bool {
        self.governor.is_some() || self.steered
    }
}

/// What is known of memory outside of the manager.
#[derive(Debug)]
pub(super) struct Outside {
    pub level: Pressure,
    /// When the level was reached last.
    pub reached: Duration,
    /// What may be granted in all, at most the total.
    pub limit_bytes: u64,
    /// How often in a row it was found to be as bad as it can be.
    pub full: u32,
    /// Who was asked to shrink, and may grow again when it is over.
    pub asked: BTreeSet<PoolId>,
    /// The next figures are for this.
    pub wants: bool,
}

impl Outside {
    pub fn new(total_bytes: u64) -> Outside {
        Outside {
            level: Pressure::Unwatched,
            reached: Duration::ZERO,
            limit_bytes: total_bytes,
            full: 0,
            asked: BTreeSet::new(),
            wants: false,
        }
    }
}
