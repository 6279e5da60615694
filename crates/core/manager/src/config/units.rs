//! Sizes ("64MiB") and durations ("5ms") in configuration files.

use serde::{Deserialize, Deserializer, de};
use std::time::Duration;

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..at].parse().ok()?, text[at..].trim()))
}

/// Parses a size such as "64MiB", in bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (n, unit) = split(text)?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    n.checked_mul(factor)
}

/// A hundred years. A clock's time plus a configured time must stay in the clock's range.
const LONGEST: Duration = Duration::from_secs(876_000 * 3600);

/// Parses a time such as "5ms".
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (n, unit) = split(text)?;
    let time = match unit {
        "us" => Some(Duration::from_micros(n)),
        "ms" => Some(Duration::from_millis(n)),
        "s" => Some(Duration::from_secs(n)),
        "min" => n.checked_mul(60).map(Duration::from_secs),
        "h" => n.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    };
    time.filter(|time| *time <= LONGEST)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Number(u64),
    Text(String),
}

/// The smallest useful size. A smaller value is a mistake, perhaps a number without its unit.
const LEAST_MEMORY: u64 = 64 << 10;

pub(super) fn opt_memory<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    let bytes = match Raw::deserialize(d) {
        Ok(Raw::Number(n)) => n,
        Ok(Raw::Text(t)) => parse_size(&t)
            .ok_or_else(|| de::Error::custom(format!("{t:?} is not a size such as \"64MiB\"")))?,
        Err(_) => return Err(de::Error::custom("expected a size such as \"64MiB\"")),
    };
    if bytes < LEAST_MEMORY {
        return Err(de::Error::custom(format!(
            "{bytes} bytes are too few for anybody: at least 64 KiB, and with a unit, such as \"64MiB\""
        )));
    }
    Ok(Some(bytes))
}

pub(super) fn pools_per_domain<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    let pools = i64::deserialize(d)?;
    let fits = u32::try_from(pools)
        .ok()
        .filter(|n| (1..=65536).contains(n));
    fits.ok_or_else(|| {
        de::Error::custom(format!(
            "pools_per_domain is {pools}, it must be 1 to 65536"
        ))
    })
}

pub(super) fn opt_mode<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    let mode = u32::deserialize(d)?;
    if mode > 0o777 {
        return Err(de::Error::custom(format!(
            "{mode} is {mode:#o}, more than permission bits: at most 0o777, and octal, such as 0o660"
        )));
    }
    Ok(Some(mode))
}

pub(super) fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)
        .map_err(|_: D::Error| de::Error::custom("expected a duration such as \"5ms\""))?;
    parse_duration(&text)
        .filter(|d| !d.is_zero())
        .ok_or_else(|| {
            de::Error::custom(format!(
                "{text:?} is not a duration such as \"5ms\", at most \"876000h\" (100 years)"
            ))
        })
}

pub(super) fn opt_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    duration(d).map(Some)
}
