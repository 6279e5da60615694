//! The load: Debian's `wrk` and `ab`, and what they report.

use crate::pinned;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The program that sends requests.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    /// `wrk`: connections are kept.
    Wrk,
    /// `ab -k`: connections are kept.
    AbKept,
    /// `ab`: a connection for each request.
    Ab,
}

impl Client {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::AbKept => "ab -k",
            Self::Ab => "ab",
        }
    }
}

/// Measurements of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests with a complete answer of status 2xx.
    pub answered: u64,
    /// Requests without one.
    pub failed: u64,
    pub seconds: f64,
    /// The part of its processor that the client used.
    pub client_busy: f64,
}

/// Runs a client for so long, on this processor.
pub(crate) fn load(
    client: Client,
    url: &str,
    connections: u32,
    time: Duration,
    core: usize,
) -> Result<Load> {
    let seconds = time.as_secs().max(1);
    let program = match client {
        Client::Wrk => "wrk",
        Client::AbKept | Client::Ab => "ab",
    };
    let mut command = pinned::command(core, program)?;
    match client {
        Client::Wrk => command.arg("-t1"),
        Client::AbKept => command.args(["-q", "-k"]),
        Client::Ab => command.arg("-q"),
    };
    command.arg(format!("-c{connections}"));
    match client {
        Client::Wrk => command.arg(format!("-d{seconds}s")),
        _ => command.args([&format!("-t{seconds}"), "-n100000000"]),
    };
    let before = children_ran()?;
    let begin = Instant::now();
    let output = command.arg(url).output();
    let output = output.with_context(|| format!("running {}", client.name()))?;
    let client_busy = (children_ran()? - before) / begin.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stdout);
    let read = match client {
        Client::Wrk => wrk(&said),
        _ => ab(&said),
    };
    let Some((answered, failed, seconds)) = read else {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{} {url}: {}: {said}{why}", client.name(), output.status);
    };
    Ok(Load {
        answered,
        failed,
        seconds,
        client_busy,
    })
}

/// Reads `wrk`'s report: answered, failed, seconds.
fn wrk(said: &str) -> Option<(u64, u64, f64)> {
    let (count, rest) = said.lines().find_map(|l| l.split_once(" requests in "))?;
    let all: u64 = count.trim().parse().ok()?;
    let seconds = period(rest.split(',').next()?)?;
    let other = after(said, "Non-2xx or 3xx responses:").unwrap_or(0);
    let errors = said
        .lines()
        .find_map(|l| l.trim().strip_prefix("Socket errors:"));
    let errors = errors.map_or(0, |line| {
        let words = line.split([' ', ',']).filter_map(|w| w.parse::<u64>().ok());
        words.sum()
    });
    Some((all.saturating_sub(other), other + errors, seconds))
}

/// Reads `ab`'s report.
fn ab(said: &str) -> Option<(u64, u64, f64)> {
    let all = after(said, "Complete requests:")?;
    let failed = after(said, "Failed requests:")? + after(said, "Non-2xx responses:").unwrap_or(0);
    let taken = said
        .lines()
        .find_map(|l| l.strip_prefix("Time taken for tests:"))?;
    let seconds = taken.split_whitespace().next()?.parse().ok()?;
    Some((all.saturating_sub(failed), failed, seconds))
}

fn after(said: &str, name: &str) -> Option<u64> {
    let line = said.lines().find_map(|l| l.trim().strip_prefix(name))?;
    line.trim().parse().ok()
}

/// A time as `wrk` writes it.
fn period(text: &str) -> Option<f64> {
    let text = text.trim();
    for (unit, factor) in [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<f64>().ok().map(|n| n * factor);
        }
    }
    None
}

/// Processor time of the children that this process has waited for, seconds.
fn children_ran() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    let words = stat.rsplit(')').next().unwrap_or_default();
    let ticks = words.split_whitespace().skip(13).take(2);
    let ticks: f64 = ticks.filter_map(|t| t.parse::<f64>().ok()).sum();
    let per_second = rustix::param::clock_ticks_per_second();
    #[allow(clippy::cast_precision_loss)] // 100
    Ok(ticks / per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_both_clients() {
        let said = "Running 1s test\n  11411 requests in 2.05s, 180.09MB read\n  \
                    Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 11\n";
        assert_eq!(wrk(said), Some((11_400, 15, 2.05)));
        assert_eq!(wrk("unable to connect"), None);
        let said = "Time taken for tests:   2.000 seconds\nComplete requests:      500\nFailed requests:        2\n   \
                    (Connect: 0)\nNon-2xx responses:      1\n";
        assert_eq!(ab(said), Some((497, 3, 2.0)));
    }
}
