//! Report of the demonstration: tables, checks, the picture.

mod facts;
mod passing;

use super::consumers::Outcome;
use super::input::Input;
use super::plan::Reached;
use super::table::{Live, mib};
use crate::args::demo::DemoArgs;
use crate::exit::Answer;
use crate::output::{self, Colour, Table, paint, size};
use crate::plot::{self, Curve, Plot};
use anyhow::{Context, Result};
use facts::Facts;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Report so far.
#[derive(Debug)]
pub(crate) struct Report {
    total: u64,
    frame: usize,
    origin: String,
    /// BLAKE3 of the input, in hexadecimal.
    expected: String,
    stages: Vec<Stage>,
    checks: Vec<Check>,
    /// Numbers of the main stage.
    facts: Facts,
    plot: Plot,
    /// Start of the next stage on the picture's time axis.
    time: f64,
    json: bool,
}

#[derive(Debug)]
struct Stage {
    reached: Reached,
    mib_per_second: f64,
}

/// Check that must hold.
#[derive(Debug)]
struct Check {
    what: String,
    /// Result, unless nobody may look.
    holds: Option<bool>,
    found: String,
}

impl Report {
    pub(crate) fn new(input: &Input, frame: usize, expected: String, json: bool) -> Self {
        Self {
            total: input.len(),
            frame,
            origin: input.origin.clone(),
            expected,
            stages: Vec::new(),
            checks: Vec::new(),
            facts: Facts::default(),
            plot: Plot {
                title: "Frames to four consumers, MiB/s each".to_owned(),
                unit: "MiB/s",
                ..Plot::default()
            },
            time: 0.0,
            json,
        }
    }

    pub(crate) fn begin(&self) -> Result<()> {
        if !self.json {
            let mut out = output::stdout();
            writeln!(
                out,
                "input: {} ({}), frames of {}",
                size(self.total),
                self.origin,
                size(self.frame as u64)
            )?;
            writeln!(out, "BLAKE3: {}", self.expected)?;
        }
        Ok(())
    }

    /// Notes a check that must hold, with its finding.
    pub(crate) fn check(
        &mut self,
        what: impl Into<String>,
        holds: impl Into<Option<bool>>,
        found: impl Into<String>,
    ) {
        self.checks.push(Check {
            what: what.into(),
            holds: holds.into(),
            found: found.into(),
        });
    }

    /// Adds one way of moving frames, and checks the writer's output.
    pub(crate) fn add(&mut self, reached: Reached, live: &Live, output: &Path) -> Result<()> {
        let over = reached.over.name();
        let mark = (self.time, format!("over {over}"));
        self.plot.marks.push(mark);
        self.draw(&reached, live);
        self.check_work(over, &reached, output)?;
        let least = reached.consumers.iter().map(|c| c.progress.bytes).min();
        let mib_per_second = mib(least.unwrap_or(0)) / reached.seconds;
        self.stages.push(Stage {
            reached,
            mib_per_second,
        });
        Ok(())
    }

    /// Continues the picture.
    fn draw(&mut self, reached: &Reached, live: &Live) {
        for (number, consumer) in reached.consumers.iter().enumerate() {
            let name = consumer.role.name();
            let at = self
                .plot
                .curves
                .iter()
                .position(|curve| curve.name == name)
                .unwrap_or_else(|| {
                    self.plot.curves.push(Curve {
                        name: name.to_owned(),
                        points: Vec::new(),
                    });
                    self.plot.curves.len() - 1
                });
            let rate = |rates: &Vec<f64>| rates.get(number).copied().unwrap_or(0.0);
            let points = live
                .samples
                .iter()
                .map(|(time, rates)| (self.time + time, rate(rates)));
            self.plot.curves[at].points.extend(points);
        }
        self.time += reached.seconds;
    }

    /// Checks that the consumers did their work, and could do nothing else.
    fn check_work(&mut self, over: &str, reached: &Reached, output: &Path) -> Result<()> {
        self.check_hashes(over, reached, output)?;
        let escaped: Vec<&String> = reached
            .consumers
            .iter()
            .flat_map(|c| &c.confinement.escaped)
            .collect();
        let landlock = reached.consumers.iter().all(|c| c.confinement.landlock);
        let held = if landlock {
            "seccomp and Landlock"
        } else {
            "seccomp"
        };
        self.check(
            format!("{over}: consumers can open nothing"),
            escaped.is_empty(),
            if escaped.is_empty() {
                held.to_owned()
            } else {
                format!("{escaped:?}")
            },
        );
        Ok(())
    }

    fn check_hashes(&mut self, over: &str, reached: &Reached, output: &Path) -> Result<()> {
        for consumer in &reached.consumers {
            if let Outcome::Hash {
                hash,
                passes,
                changed,
            } = &consumer.outcome
            {
                let right = *hash == self.expected && *changed == 0 && *passes > 0;
                self.check(
                    format!("{over}: hashes right"),
                    right,
                    format!("{passes} whole passes over the input"),
                );
            }
        }
        let mut hasher = blake3::Hasher::new();
        let file = std::fs::File::open(output).context("opening the writer's output")?;
        hasher
            .update_reader(file)
            .context("reading the writer's output")?;
        let same = hasher.finalize().to_hex().to_string() == self.expected;
        self.check(
            format!("{over}: written output is the input"),
            same,
            if same { "same hash" } else { "another hash" },
        );
        Ok(())
    }

    /// Prints everything; the answer is no when a check failed.
    pub(crate) fn end(&self, args: &DemoArgs) -> Result<Answer> {
        if !args.no_svg {
            std::fs::write(&args.svg, plot::svg(&self.plot))
                .with_context(|| format!("writing {}", args.svg.display()))?;
        }
        if args.json {
            output::json(&self.json())?
        } else {
            self.print(args)?
        }
        let failed = |check: &Check| check.holds == Some(false);
        Ok((!self.checks.iter().any(failed)).into())
    }

    fn print(&self, args: &DemoArgs) -> Result<()> {
        let mut out = output::stdout();
        let mut table = Table::new(&[
            "over",
            ">MiB/s",
            ">frames",
            ">seconds",
            ">CPU s",
            ">CPU ms/frame",
            ">copied",
        ]);
        for stage in &self.stages {
            let cpu = stage.cpu_seconds();
            table.row(vec![
                stage.reached.over.name().to_owned(),
                format!("{:.0}", stage.mib_per_second),
                stage.frames().to_string(),
                format!("{:.1}", stage.reached.seconds),
                format!("{cpu:.1}"),
                format!(
                    "{:.2}",
                    cpu * 1e3 / f64::from(u32::try_from(stage.frames().max(1)).unwrap_or(u32::MAX))
                ),
                size(stage.copied()),
            ]);
        }
        writeln!(out)?;
        table.write(&mut out)?;
        writeln!(out)?;
        for line in plot::text(&self.plot, columns()) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        let colour = output::colour_on_stdout();
        for check in &self.checks {
            let (sign, shade) = match check.holds {
                Some(true) => ("ok    ", Colour::Green),
                Some(false) => ("FAILED", Colour::Red),
                None => ("?     ", Colour::Yellow),
            };
            writeln!(
                out,
                "{} {}: {}",
                paint(sign, shade, colour),
                check.what,
                check.found
            )?;
        }
        if !args.no_svg {
            writeln!(out, "picture: {}", args.svg.display())?;
        }
        Ok(out.flush()?)
    }

    fn json(&self) -> Value {
        let stages = self.stages.iter().map(|stage| {
            json!({
                "over": stage.reached.over.name(),
                "seconds": stage.reached.seconds,
                "mib_per_second": stage.mib_per_second,
                "frames": stage.frames(),
                "cpu_seconds": stage.cpu_seconds(),
                "copied_bytes": stage.copied(),
                "consumers": stage.reached.consumers.iter().map(|consumer| json!({
                    "role": consumer.role.name(),
                    "progress": consumer.progress,
                    "outcome": consumer.outcome,
                    "confinement": consumer.confinement,
                    "cpu_us": consumer.cpu_us,
                })).collect::<Vec<_>>(),
            })
        });
        let checks = self
            .checks
            .iter()
            .map(|check| json!({ "what": check.what, "holds": check.holds, "found": check.found }));
        json!({
            "schema": 1,
            "input": { "bytes": self.total, "origin": self.origin, "blake3": self.expected },
            "frame_bytes": self.frame,
            "stages": stages.collect::<Vec<_>>(),
            "passing": self.facts,
            "checks": checks.collect::<Vec<_>>(),
        })
    }
}

impl Stage {
    /// Frames that every consumer took.
    fn frames(&self) -> u64 {
        self.reached
            .consumers
            .iter()
            .map(|consumer| consumer.progress.frames)
            .min()
            .unwrap_or(0)
    }

    /// Returns the bytes copied between the processes.
    fn copied(&self) -> u64 {
        let consumers = self.reached.consumers.iter();
        consumers.map(|consumer| consumer.progress.copied).sum()
    }

    /// Returns the CPU time of producer and consumers together.
    #[allow(clippy::cast_precision_loss)] // for people
    fn cpu_seconds(&self) -> f64 {
        let consumers: u64 = self
            .reached
            .consumers
            .iter()
            .map(|consumer| consumer.cpu_us)
            .sum();
        (consumers + self.reached.producer_cpu_us) as f64 / 1e6
    }
}

/// Returns the width of the terminal, or of a plain page.
fn columns() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(100, |size| usize::from(size.ws_col).max(40))
}
