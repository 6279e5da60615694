//! Sizes and times, as people write them.

use std::time::Duration;

/// Forms of a size and a time; help and errors use the same words.
pub const FORMS: [&str; 2] = [
    "a whole number and KiB, MiB, GiB, TiB (or K, M, G, T); without: bytes",
    "a whole number and ms, s, m or h; without: seconds",
];

/// Parses `64MiB`, `8m`, `4096`.
///
/// # Errors
/// A text that describes a size, for any other text, and for 0.
pub fn parse_size(text: &str) -> Result<u64, String> {
    match parse_size_or_none(text)? {
        0 => Err("must be more than 0 bytes".to_owned()),
        size => Ok(size),
    }
}

/// Parses a size, or 0.
///
/// # Errors
/// A text that describes a size, for any other text.
pub fn parse_size_or_none(text: &str) -> Result<u64, String> {
    let factor = |unit: &str| match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kib" => Some(1 << 10),
        "m" | "mib" => Some(1 << 20),
        "g" | "gib" => Some(1 << 30),
        "t" | "tib" => Some(1 << 40),
        _ => None,
    };
    quantity(text, factor).map_err(|why| format!("{why}a size is {}", FORMS[0]))
}

/// Parses `250ms`, `60s`, `5m`; without a unit: seconds.
///
/// # Errors
/// A text that describes a time, for any other text.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let factor = |unit: &str| match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let ms = quantity(text, factor).map_err(|why| format!("{why}a time is {}", FORMS[1]))?;
    Ok(Duration::from_millis(ms))
}

/// Parses a whole number and a unit. The error is the beginning of a message.
fn quantity(text: &str, factor: impl Fn(&str) -> Option<u64>) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = factor(unit.trim()).filter(|_| digits > 0).ok_or("")?;
    let number: Option<u64> = number.parse().ok();
    let all = number.and_then(|number| number.checked_mul(factor));
    all.ok_or("too much; ".to_owned())
}
