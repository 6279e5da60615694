//! The live table: redrawn in place on a terminal, printed once per stage elsewhere.

use super::worker::Worker;
use crate::output::Table;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Interval at which a terminal is redrawn and the rates are taken.
const PAUSE: Duration = Duration::from_millis(250);

/// Rates of some consumers over time.
#[derive(Debug)]
pub(crate) struct Live {
    stage: String,
    begin: Instant,
    last: Instant,
    /// Bytes of each consumer when the rates were last taken.
    bytes: Vec<u64>,
    /// Seconds since the beginning, and MiB/s of each consumer.
    pub samples: Vec<(f64, Vec<f64>)>,
    /// Lines on the screen that the next drawing replaces.
    drawn: usize,
    terminal: bool,
}

impl Live {
    /// Creates a table. `quiet`: it takes rates and draws nothing.
    pub(crate) fn new(stage: &str, quiet: bool) -> Self {
        let now = Instant::now();
        let terminal = !quiet && io::stderr().is_terminal();
        let stage = stage.to_owned();
        Self {
            stage,
            begin: now,
            last: now,
            bytes: Vec::new(),
            samples: Vec::new(),
            drawn: 0,
            terminal,
        }
    }

    /// Takes rates and draws when it is time; call it often.
    pub(crate) fn tick(&mut self, workers: &[Worker]) {
        let elapsed = self.last.elapsed();
        if elapsed < PAUSE {
            return;
        }
        self.last = Instant::now();
        let progress: Vec<_> = workers.iter().map(Worker::progress).collect();
        let bytes: Vec<u64> = progress.iter().map(|progress| progress.bytes).collect();
        let old = self.bytes.iter().copied().chain(std::iter::repeat(0));
        let rates: Vec<f64> = bytes
            .iter()
            .zip(old)
            .map(|(new, old)| mib(new.saturating_sub(old)) / elapsed.as_secs_f64())
            .collect();
        self.bytes = bytes;
        self.samples
            .push((self.begin.elapsed().as_secs_f64(), rates.clone()));
        if self.terminal {
            let mut table = Table::new(&["consumer", ">MiB/s", ">frames", ">bytes"]);
            for ((worker, progress), rate) in workers.iter().zip(progress).zip(rates) {
                table.row(vec![
                    worker.role.name().to_owned(),
                    format!("{rate:.0}"),
                    progress.frames.to_string(),
                    crate::output::size(progress.bytes),
                ]);
            }
            // A terminal that went away ends the drawing, not the work.
            let _ = self.draw(&table);
        }
    }

    /// Takes the table off the screen; the report prints the lasting figures.
    pub(crate) fn clear(&mut self) {
        if self.drawn > 0 {
            let _ = write!(
                io::stderr(),
                "\x1b[{}A\x1b[J",
                std::mem::take(&mut self.drawn)
            );
        }
    }

    fn draw(&mut self, table: &Table) -> io::Result<()> {
        let mut text = Vec::new();
        if self.drawn > 0 {
            write!(text, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        writeln!(
            text,
            "{} {:.0} s",
            self.stage,
            self.begin.elapsed().as_secs_f64()
        )?;
        table.write(&mut text)?;
        self.drawn = 1 + table.lines().len();
        io::stderr().write_all(&text)
    }
}

/// Returns bytes as MiB.
#[allow(clippy::cast_precision_loss)] // for people
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1u32 << 20)
}
