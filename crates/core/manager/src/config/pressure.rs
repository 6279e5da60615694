//! The signs of a memory shortage outside of the manager.

use super::units::parse_duration;
use serde::{Deserialize, Deserializer, de};
use std::path::PathBuf;
use std::time::Duration;

/// The figures of the machine and its cgroups about memory, and the reactions to them (`docs/scheduling.md`).
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PressureConfig {
    /// Whether anything is watched.
    pub watch: bool,
    /// The share of time with some task stalled for memory from which on caches are requested.
    #[serde(deserialize_with = "share")]
    pub some: f64,
    /// The share of time with all tasks stalled from which on the limit is lowered too.
    #[serde(deserialize_with = "share")]
    pub full: f64,
    /// The fill level of a cgroup from which on caches are requested.
    #[serde(deserialize_with = "share")]
    pub some_filled: f64,
    /// The fill level of a cgroup from which on the limit is lowered.
    #[serde(deserialize_with = "share")]
    pub full_filled: f64,
    /// Time between two looks.
    #[serde(deserialize_with = "every")]
    pub every: Duration,
    /// The time for which a level must not have been reached before it ends.
    #[serde(deserialize_with = "super::units::duration")]
    pub calm: Duration,
    /// Directories of cgroups to watch besides the manager's own and those above it.
    pub cgroups: Vec<PathBuf>,
    /// The directory in which `/proc` and cgroups are searched: tests use another one than `/`.
    pub root: PathBuf,
}

impl Default for PressureConfig {
    fn default() -> PressureConfig {
        PressureConfig {
            watch: true,
            some: 0.2,
            full: 0.1,
            some_filled: 0.9,
            full_filled: 0.97,
            every: Duration::from_secs(1),
            calm: Duration::from_secs(5),
            cgroups: Vec::new(),
            root: PathBuf::from("/"),
        }
    }
}

fn share<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(d)?;
    if share > 0.0 && share <= 1.0 {
        return Ok(share);
    }
    Err(de::Error::custom(format!(
        "{share} is no share: above 0, at most 1, such as 0.2"
    )))
}

/// The allowed periods. The kernel's figures do not change more often, and a longer period reacts too late.
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);

fn every<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)?;
    let found = parse_duration(&text).filter(|every| TIMES.contains(every));
    found.ok_or_else(|| {
        de::Error::custom(format!("{text:?} is not a time from \"10ms\" to \"60s\""))
    })
}
