//! The view of a running program of components: each process, and each channel with its rate.

use crate::commands::words::rate;
use crate::output::Table;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tranship::Domain;
use tranship::admin::StatRecord;
use tranship_proto::shown;
use tranship_run::View;

/// Time between two pictures.
const EVERY: Duration = Duration::from_secs(1);
/// A manager that hangs must not stop the picture of the processes for long.
const PATIENCE: Duration = Duration::from_millis(500);

/// Starts the thread that shows it.
pub(super) fn start(view: View, socket: PathBuf) -> Result<()> {
    let thread = std::thread::Builder::new().name("view".to_owned());
    let show = move || {
        let mut rates = Rates {
            socket,
            domain: None,
            before: BTreeMap::new(),
            at: Instant::now(),
        };
        loop {
            std::thread::sleep(EVERY);
            let mut text = processes(&view);
            text.extend(rates.now());
            print(&text);
        }
    };
    thread.spawn(show).context("starting a thread")?;
    Ok(())
}

fn print(lines: &[String]) {
    let mut err = std::io::stderr().lock();
    // In place on a terminal; else one picture after the other.
    let start = if err.is_terminal() {
        "\x1b[H\x1b[J"
    } else {
        ""
    };
    let text = lines.iter().map(|line| format!("{}\n", shown(line)));
    let text: String = text.collect();
    // A reader that is gone is no reason to end.
    let _ = write!(err, "{start}{text}");
}

fn processes(view: &View) -> Vec<String> {
    let mut table = Table::new(&["component", "state", ">process", ">restarts"]);
    let seen = view.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for one in seen {
        table.row(vec![
            one.name,
            one.state.word().to_owned(),
            one.pid
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            one.restarts.to_string(),
        ]);
    }
    table.lines()
}

/// Counts of the last picture.
struct Rates {
    socket: PathBuf,
    domain: Option<Domain>,
    before: BTreeMap<String, u64>,
    at: Instant,
}

impl Rates {
    fn now(&mut self) -> Vec<String> {
        if self.domain.is_none() {
            let builder = Domain::builder().name("tranship-run").autostart(false);
            let builder = builder.socket(&self.socket).manager_timeout(PATIENCE);
            self.domain = builder.connect().ok();
        }
        let Some(Ok(records)) = self.domain.as_ref().map(|domain| domain.admin().stat()) else {
            self.domain = None;
            return vec!["the manager does not answer".to_owned()];
        };
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let mut sums: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        for record in records {
            let StatRecord::Channel(channel) = record else {
                continue;
            };
            let sum = sums.entry(channel.name).or_default();
            sum.0 += channel.taken;
            sum.1 += channel.depth;
            sum.2 += channel.stalls;
        }
        let mut table = Table::new(&["channel", ">messages/s", ">waiting", ">stalls"]);
        for (name, (taken, depth, stalls)) in &sums {
            let before = self.before.get(name).copied().unwrap_or(0);
            // After a restart of one end it counts from 0.
            let more = taken.checked_sub(before).unwrap_or(*taken);
            #[allow(clippy::cast_precision_loss)] // for people
            let per_second = more as f64 / seconds.max(0.001);
            table.row(vec![
                name.clone(),
                rate(per_second),
                depth.to_string(),
                stalls.to_string(),
            ]);
        }
        self.before = sums
            .into_iter()
            .map(|(name, (taken, ..))| (name, taken))
            .collect();
        table.lines()
    }
}
