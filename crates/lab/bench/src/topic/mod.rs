//! `topic`: a publish to 1 to 200 subscribers of a topic, its cost beside the same ring without the topic, and beside other
//! ways to give one message to many.
//!
//! | mode | what is measured |
//! |---|---|
//! | `publish` | one message: a buffer is allocated, written, frozen and published. One subscriber runs, on the other core, and holds nobody back |
//! | `stream` | the same, and the running subscriber is reliable: the publisher waits for it |
//! | `asleep` | one publish after a pause of 1 ms, with every subscriber asleep |
//! | `trip` | one message, until the only subscriber has said that it has it; beside a channel |
//! | `delivered` | one message of 1 MiB, until each of 8 subscribers has it and has said so |
//!
//! The system `ring` does what a topic's `publish` does without the topic: the same pool, `alloc`, write, `freeze`, line,
//! bell, rounds, and the handle that is dropped when a round finds the buffer free. Its reader counts no buffers. `vllm-ring` is
//! vLLM's ShmRingBuffer rebuilt: 10 chunks of 16 MiB, a flag byte a reader. Subscribers that do not run have joined and
//! stand still; each tenth keeps a buffer.

mod channel;
mod few;
#[cfg(feature = "iceoryx2")]
mod iceoryx;
mod library;
mod ring;
mod trip;
mod vllm;
mod what;

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Party};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row};
use crate::stats::Measured;
use what::{DELIVERED, Mode};

const RECEIVERS: [usize; 5] = [1, 2, 8, 32, 200];
/// Task of one side of a run.
type Side = fn(Mode, usize, &Party, u64) -> Result<Vec<Measured>>;

#[derive(Debug, clap::Args)]
pub struct Topic;

impl Bench for Topic {
    const REFERENCES: &'static [&'static str] = &["ring", "tranship"];

    fn systems(&self) -> Vec<&'static str> {
        let mut all = vec!["tranship", "ring", "channel", "vllm-ring"];
        if cfg!(feature = "iceoryx2") {
            all.push("iceoryx2");
        }
        all
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [core, other] = common.cores();
        ensure!(core != other, "two cores: both sides spin");
        let all = common.some_of(&RECEIVERS);
        for &receivers in &all {
            self.group(&mut outcome, Mode::Publish, receivers, common);
        }
        for mode in [Mode::Stream, Mode::Asleep] {
            for receivers in common.some_of(&[1, 32, 200]) {
                self.group(&mut outcome, mode, receivers, common);
            }
        }
        self.group(&mut outcome, Mode::Trip, 1, common);
        self.group(&mut outcome, Mode::Delivered, DELIVERED.0, common);
        outcome.verdicts = verdicts(&outcome.rows);
        if common.wants("tranship") {
            outcome.verdicts.extend(few::verdicts(common)?);
        }
        Ok(outcome)
    }
}

impl Topic {
    /// All systems that know the mode, alternating.
    fn group(&self, outcome: &mut Outcome, mode: Mode, receivers: usize, common: &Common) {
        let systems = self.systems().into_iter();
        let wanted = systems.filter(|system| common.wants(system));
        let cells = wanted.filter_map(|system| {
            let (write, read) = sides(system, mode)?;
            let key = Key::of(mode.name()).payload(mode.bytes());
            let key = key.with("receivers", receivers);
            Some(Cell::of(system, key, move |number| {
                party::each(number, &common.cores(), |me, party| {
                    let side = [write, read][me];
                    side(mode, receivers, party, clock::in_ticks(common.budget()))
                })
            }))
        });
        let cells: Vec<_> = cells.collect();
        if !cells.is_empty() {
            outcome.group(common.runs(), cells);
        }
    }
}

/// The two sides of a system, if it knows the mode.
fn sides(system: &str, mode: Mode) -> Option<(Side, Side)> {
    match (system, mode) {
        ("tranship", _) => Some((library::publisher, library::subscribers)),
        ("ring", Mode::Publish) => Some((ring::writer, ring::reader)),
        ("channel", Mode::Trip) => Some((channel::sender, channel::receiver)),
        ("vllm-ring", Mode::Delivered) => Some((vllm::writer, vllm::readers)),
        #[cfg(feature = "iceoryx2")]
        ("iceoryx2", Mode::Publish) => Some((iceoryx::publisher, iceoryx::subscribers)),
        _ => None,
    }
}

/// A topic beside its ring, many subscribers beside one, and other ways.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let of = |system: &str, mode: Mode, receivers| {
        let is = |row: &&Row| {
            row.system == system
                && row.key.mode == mode.name()
                && row.key.counts.get("receivers") == Some(&receivers)
        };
        rows.iter().find(is)
    };
    let mut said = Vec::new();
    let one = of("tranship", Mode::Publish, 1);
    for n in RECEIVERS {
        let topic = of("tranship", Mode::Publish, n);
        if let (Some(topic), Some(ring)) = (topic, of("ring", Mode::Publish, n)) {
            let (median, mean) = ratios(topic, ring);
            said.push(format!(
                "a publish to {n} costs {median:.2}x the ring's without the topic in the median, {mean:.2}x in the mean"
            ));
        }
        if let (Some(topic), Some(one)) = (topic, one.filter(|_| n > 1)) {
            let (mean, p99) = (one.per_second / topic.per_second, topic.p99_ns / one.p99_ns);
            said.push(format!(
                "a publish to {n} costs {mean:.2}x one to 1 in the mean, {p99:.2}x in p99"
            ));
        }
        if let (Some(topic), Some(other)) = (topic, of("iceoryx2", Mode::Publish, n)) {
            let (median, mean) = ratios(topic, other);
            said.push(format!(
                "a publish to {n} costs {median:.3}x iceoryx2's in the median, {mean:.3}x in the mean"
            ));
        }
    }
    let trips = (of("tranship", Mode::Trip, 1), of("channel", Mode::Trip, 1));
    if let (Some(topic), Some(channel)) = trips {
        let (median, _) = ratios(topic, channel);
        let p99 = topic.p99_ns / channel.p99_ns;
        said.push(format!(
            "a message of a topic takes {median:.2}x a channel's time in the median, {p99:.2}x in p99"
        ));
    }
    let (n, bytes) = DELIVERED;
    let both = (
        of("tranship", Mode::Delivered, n),
        of("vllm-ring", Mode::Delivered, n),
    );
    if let (Some(topic), Some(vllm)) = both {
        let times = vllm.median_ns / topic.median_ns;
        said.push(format!(
            "{bytes} bytes reach {n} subscribers {times:.1} times as fast as by vLLM's scheme"
        ));
    }
    said
}

fn ratios(this: &Row, other: &Row) -> (f64, f64) {
    (
        this.median_ns / other.median_ns,
        other.per_second / this.per_second,
    )
}
