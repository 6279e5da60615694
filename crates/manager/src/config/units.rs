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

/// "64MiB" and the like, in bytes.
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

/// "5ms" and the like.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (n, unit) = split(text)?;
    match unit {
        "us" => Some(Duration::from_micros(n)),
        "ms" => Some(Duration::from_millis(n)),
        "s" => Some(Duration::from_secs(n)),
        "min" => n.checked_mul(60).map(Duration::from_secs),
        "h" => n.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Number(u64),
    Text(String),
}

pub(super) fn opt_size<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    match Raw::deserialize(d) {
        Ok(Raw::Number(n)) => Ok(Some(n)),
        Ok(Raw::Text(t)) => parse_size(&t)
            .map(Some)
            .ok_or_else(|| de::Error::custom(format!("{t:?} is not a size such as \"64MiB\""))),
        Err(_) => Err(de::Error::custom("expected a size such as \"64MiB\"")),
    }
}

pub(super) fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)
        .map_err(|_| de::Error::custom("expected a duration such as \"5ms\""))?;
    parse_duration(&text)
        .filter(|d| !d.is_zero())
        .ok_or_else(|| de::Error::custom(format!("{text:?} is not a duration such as \"5ms\"")))
}

pub(super) fn opt_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    duration(d).map(Some)
}
