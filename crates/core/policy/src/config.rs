//! The settings of all policies.

use serde::{Deserialize, Serialize};

/// The settings of scheduling.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The policy's name.
    pub policy: String,
    /// A quota moves by at most this share of the limit in one period.
    pub most_step: f64,
    /// The wish beyond the need, for memory that no pool needs, as a share of the need.
    pub headroom: f64,
    /// Waiting below this share of the callers' time does not count.
    pub calm: f64,
    /// Collecting below this share of the time does not count.
    pub calm_collecting: f64,
    /// A share within this of its target has met it.
    pub band: f64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: "static".to_owned(),
            most_step: 0.25,
            headroom: 0.125,
            calm: 0.005,
            calm_collecting: 0.05,
            band: 0.01,
        }
    }
}

impl Config {
    /// Makes a configuration for a policy, with defaults for everything else.
    pub fn of(policy: &str) -> Config {
        Config {
            policy: policy.to_owned(),
            ..Config::default()
        }
    }
}
