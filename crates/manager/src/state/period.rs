//! The policy that sets quotas, and when it does next.

use crate::Config;
use std::time::Duration;
use tranship_policy::Governor;

/// When, and by what.
#[derive(Debug)]
pub(super) struct Schedule {
    /// None: quotas stay as they are.
    pub governor: Option<Governor>,
    pub due: Duration,
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
        }
    }

    pub fn is_on(&self) -> bool {
        self.governor.is_some()
    }
}
