//! `tranship topic hz` and `bw`: what comes in a period, and how evenly.

use super::subscribed::Subscribed;
use crate::args::topic::RateArgs;
use crate::commands::view::SCHEMA;
use crate::commands::words::{rate, time};
use crate::exit::Answer;
use crate::output::{self, size};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use tranship::ErrorKind;

/// First column of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Messages,
    Bytes,
}

/// Messages of a period.
#[derive(Debug, Default, Serialize, PartialEq)]
struct Period {
    messages: u64,
    bytes: u64,
    smallest_bytes: Option<u64>,
    largest_bytes: Option<u64>,
    /// Times between two messages.
    shortest_gap_ns: Option<u64>,
    longest_gap_ns: Option<u64>,
    /// Messages that were overwritten before this program took them.
    missed: u64,
}

impl Period {
    fn add(&mut self, bytes: u64, gap: Option<Duration>) {
        let gap = gap.map(|gap| u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX));
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        widen((&mut self.smallest_bytes, &mut self.largest_bytes), bytes);
        if let Some(gap) = gap {
            widen((&mut self.shortest_gap_ns, &mut self.longest_gap_ns), gap);
        }
    }

    /// Returns a figure each second.
    #[allow(clippy::cast_precision_loss)] // for people
    fn each_second(count: u64, time: Duration) -> f64 {
        count as f64 / time.as_secs_f64().max(1e-9)
    }

    fn line(&self, shown: Shown, time_of_it: Duration) -> String {
        let per_second = |count| Period::each_second(count, time_of_it);
        let range = |[from, to]: [Option<u64>; 2], text: fn(u64) -> String| match (from, to) {
            (Some(from), Some(to)) => format!("{} to {}", text(from), text(to)),
            _ => "-".to_owned(),
        };
        let gaps = range([self.shortest_gap_ns, self.longest_gap_ns], time);
        let sizes = range([self.smallest_bytes, self.largest_bytes], size);
        let messages = format!("{} messages/s", rate(per_second(self.messages)));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // for people
        let bytes = format!("{}/s", size(per_second(self.bytes) as u64));
        let missed = self.missed;
        match shown {
            Shown::Messages => format!("{messages}, gaps {gaps}, missed {missed}"),
            Shown::Bytes => format!("{bytes}, {messages} of {sizes}, missed {missed}"),
        }
    }
}

fn widen((least, most): (&mut Option<u64>, &mut Option<u64>), value: u64) {
    *least = Some(least.map_or(value, |least| least.min(value)));
    *most = Some(most.map_or(value, |most| most.max(value)));
}

pub(super) fn run(args: &RateArgs, shown: Shown) -> Result<Answer> {
    let mut from = Subscribed::new(&args.subscribe)?;
    from.join(args.subscribe.wait)?;
    let (mut last, mut missed, mut done) = (None, from.missed(), 0);
    let mut begun = Instant::now();
    loop {
        let (mut period, until) = (Period::default(), begun + args.every);
        let ended = take(&mut from, &mut period, (until, &mut last));
        period.missed = from.missed() - missed;
        missed += period.missed;
        print(args, shown, &period, begun.elapsed())?;
        begun = Instant::now();
        done += 1;
        match ended {
            Err(error) if error == ErrorKind::PeerGone => break,
            ended => ended.with_context(|| from.under())?,
        }
        if args.count == Some(done) {
            break;
        }
    }
    finish()
}

/// Takes what comes until then.
fn take(
    from: &mut Subscribed,
    period: &mut Period,
    (until, last): (Instant, &mut Option<Instant>),
) -> Result<(), tranship::Error> {
    while Instant::now() < until {
        let Some(message) = from.next(Some(until))? else {
            break;
        };
        let now = Instant::now();
        let gap = last.replace(now).map(|last| now.duration_since(last));
        period.add(message.len() as u64, gap);
    }
    Ok(())
}

/// Prints a period: on a terminal over the one before, else as a line.
fn print(args: &RateArgs, shown: Shown, period: &Period, time: Duration) -> Result<()> {
    let mut out = output::stdout();
    if args.subscribe.json {
        let mut value = json!({ "schema": SCHEMA, "topic": args.subscribe.topic.name });
        value["messages_per_s"] = json!(Period::each_second(period.messages, time));
        value["bytes_per_s"] = json!(Period::each_second(period.bytes, time));
        value["period"] = json!(period);
        writeln!(out, "{value}")?;
    } else {
        let line = period.line(shown, time);
        match std::io::stdout().is_terminal() {
            true => write!(out, "\r\x1b[K{line}")?,
            false => writeln!(out, "{line}")?,
        }
    }
    Ok(out.flush()?)
}

/// Leaves the last line on a terminal.
fn finish() -> Result<Answer> {
    if std::io::stdout().is_terminal() {
        output::say("")?;
    }
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_says_how_many_how_large_and_how_even() {
        let mut period = Period::default();
        for (bytes, gap) in [(100, None), (300, Some(10)), (200, Some(30))] {
            period.add(bytes, gap.map(Duration::from_millis));
        }
        period.missed = 2;
        let time = Duration::from_millis(500);
        assert_eq!(
            period.line(Shown::Messages, time),
            "6.0 messages/s, gaps 10.0 ms to 30.0 ms, missed 2"
        );
        assert_eq!(
            period.line(Shown::Bytes, time),
            "1.2 KiB/s, 6.0 messages/s of 100 B to 300 B, missed 2"
        );
        let none = Period::default().line(Shown::Bytes, time);
        assert_eq!(none, "0 B/s, 0 messages/s of -, missed 0");
    }
}
