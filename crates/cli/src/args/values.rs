//! Arguments and values that many commands take.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Where the manager is; shared by everything that talks to it.
#[derive(ClapArgs, Debug, Default)]
pub(crate) struct ConnectArgs {
    /// The manager's socket; default: $TRANSHIP_SOCKET, the system's, the user's. Where it is named, no manager is started.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// A name as the manager takes it; it decides, this only says it better.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        Err("a name has no control characters".to_owned())
    } else if text.is_empty() || text.len() > 64 {
        Err(format!("a name has 1 to 64 bytes, this one {}", text.len()))
    } else {
        Ok(text.to_owned())
    }
}

/// `64MiB`, `8m`, `4096`.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|why| format!("`{text}` does not begin with a number: {why}"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        other => {
            return Err(format!(
                "unknown unit `{other}`; known: KiB, MiB, GiB, TiB, after a whole number"
            ));
        }
    };
    match number.checked_mul(factor) {
        Some(0) => Err("must be more than 0 bytes".to_owned()),
        Some(size) => Ok(size),
        None => Err(format!("`{text}` is more than 2^64 bytes")),
    }
}

/// `250ms`, `60s`, `5m`; without a unit: seconds.
pub(super) fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|why| format!("`{text}` does not begin with a number: {why}"))?;
    let ms = match unit.trim() {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1000),
        "m" | "min" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        other => {
            return Err(format!(
                "unknown unit `{other}`; known: ms, s, m, h, after a whole number"
            ));
        }
    };
    ms.map(std::time::Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is too long"))
}
