//! A policy's rules for pools.

use super::access::pattern;
use super::units::{opt_memory, parse_duration};
use serde::{Deserialize, Deserializer, de};
use std::time::Duration;
use tranship_proto::{MAX_NAME_BYTES, check_name};

/// The policy that moves no quota.
pub(super) const STATIC: &str = "static";
/// The allowed periods. Any other is a mistake, because a waiting thread reports every 100 ms.
const PERIODS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
/// No pool weighs more.
const HEAVIEST: u32 = 1000;

/// A rule for pools of a name.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub struct PoolRule {
    /// A name, or the beginning of one followed by `*`.
    pub name: String,
    rule: tranship_policy::Rule,
}

impl PoolRule {
    pub(super) fn rule(&self) -> tranship_policy::Rule {
        self.rule.clone()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(deserialize_with = "pattern")]
    name: String,
    #[serde(default, deserialize_with = "opt_memory")]
    min: Option<u64>,
    #[serde(default, deserialize_with = "opt_memory")]
    max: Option<u64>,
    weight: Option<u32>,
    #[serde(default)]
    priority: i32,
    target: Option<f64>,
    callers: Option<u32>,
    group: Option<String>,
    #[serde(default, deserialize_with = "opt_memory")]
    group_max: Option<u64>,
}

impl TryFrom<Raw> for PoolRule {
    type Error = String;

    fn try_from(raw: Raw) -> Result<PoolRule, String> {
        let usual = tranship_policy::Rule::default();
        let rule = tranship_policy::Rule {
            min_bytes: raw.min.unwrap_or(usual.min_bytes),
            max_bytes: raw.max.unwrap_or(usual.max_bytes),
            weight: raw.weight.unwrap_or(usual.weight),
            priority: raw.priority,
            target: raw.target,
            callers: raw.callers.unwrap_or(usual.callers),
            group: raw.group,
            group_max_bytes: raw.group_max,
        };
        if rule.group.is_none() && rule.group_max_bytes.is_some() {
            return Err("group_max without group: which pools have it together?".to_owned());
        }
        if rule.min_bytes > rule.max_bytes {
            let (min, max) = (rule.min_bytes, rule.max_bytes);
            return Err(format!("min is {min} bytes, more than max, which is {max}"));
        }
        if !(1..=HEAVIEST).contains(&rule.weight) {
            let weight = rule.weight;
            return Err(format!("weight is {weight}, it must be 1 to {HEAVIEST}"));
        }
        if let Some(group) = rule.group.as_ref().filter(|g| !check_name(g)) {
            return Err(format!(
                "{group:?} is no group: 1 to {MAX_NAME_BYTES} bytes without control characters"
            ));
        }
        if rule.callers == 0 {
            return Err("callers is 0, it must be at least 1".to_owned());
        }
        if let Some(target) = rule.target.filter(|t| !(0.0..1.0).contains(t)) {
            return Err(format!(
                "target is {target}, it must be a share of time: from 0 to below 1, such as 0.05"
            ));
        }
        Ok(PoolRule {
            name: raw.name,
            rule,
        })
    }
}

pub(super) fn policy<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let name = String::deserialize(d)?;
    tranship_policy::find(&name).map_err(de::Error::custom)?;
    Ok(name)
}

pub(super) fn period<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)?;
    let found = parse_duration(&text).filter(|period| PERIODS.contains(period));
    found.ok_or_else(|| {
        de::Error::custom(format!(
            "policy_period is {text:?}, it must be \"100ms\" to \"60s\""
        ))
    })
}
