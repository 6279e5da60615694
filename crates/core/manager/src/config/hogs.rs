//! How much memory of others a domain may hold, and the action when it holds more.

use super::Who;
use super::access::{name_matches, pattern};
use super::units::{parse_duration, parse_size};
use serde::{Deserialize, Deserializer, de};
use std::time::Duration;
use tranship_proto::HogAction;

/// A rule for domains of a name, or of a user.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HogRule {
    /// A domain's name, or the beginning of one followed by `*`.
    #[serde(default = "everybody", deserialize_with = "pattern")]
    pub name: String,
    /// The domain's user.
    #[serde(default)]
    pub uid: Who,
    over: Over,
    /// The time for which the limit must be exceeded.
    #[serde(default, rename = "for", deserialize_with = "lasting")]
    pub lasting: Duration,
    /// The action.
    #[serde(default)]
    pub action: HogAction,
    /// Users whose writers are believed when a domain is expelled for buffers that it keeps in their pools.
    #[serde(default)]
    writers: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Bytes(u64),
    /// Hundredths of the manager's total.
    Percent(u8),
}

impl HogRule {
    /// Returns the rule that holds without a configured one: it only reports.
    pub(super) fn usual() -> HogRule {
        HogRule {
            name: "*".to_owned(),
            uid: Who::All,
            over: Over::Percent(25),
            lasting: Duration::from_secs(10),
            action: HogAction::Report,
            writers: Vec::new(),
        }
    }

    pub(super) fn matches(&self, name: &str, uid: u32) -> bool {
        name_matches(&self.name, name) && (self.uid == Who::All || self.uid == Who::Id(uid))
    }

    /// Says whether the rule believes a writer, besides those that are believed without being named.
    pub(crate) fn believes(&self, writer: u32) -> bool {
        self.writers.contains(&writer)
    }

    /// Returns the limit above which a domain holds too much, bytes.
    pub(crate) fn over_bytes(&self, total_bytes: u64) -> u64 {
        match self.over {
            Over::Bytes(bytes) => bytes,
            Over::Percent(n) => total_bytes / 100 * u64::from(n),
        }
    }
}

impl<'de> Deserialize<'de> for Over {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Over, D::Error> {
        let text = String::deserialize(d).map_err(|_: D::Error| {
            de::Error::custom("over must be a size such as \"64MiB\" or a share such as \"10%\"")
        })?;
        let percent = text
            .strip_suffix('%')
            .and_then(|n| n.trim().parse::<u8>().ok());
        match (percent.filter(|n| *n <= 100), parse_size(&text)) {
            (Some(n), _) => Ok(Over::Percent(n)),
            (None, Some(bytes)) => Ok(Over::Bytes(bytes)),
            (None, None) => Err(de::Error::custom(format!(
                "over is {text:?}, it must be a size such as \"64MiB\" or a share of the total from \"0%\" to \"100%\""
            ))),
        }
    }
}

fn everybody() -> String {
    "*".to_owned()
}

fn lasting<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)?;
    parse_duration(&text).ok_or_else(|| {
        de::Error::custom(format!(
            "for is {text:?}, it must be a time such as \"5s\", at most \"876000h\" (100 years)"
        ))
    })
}
