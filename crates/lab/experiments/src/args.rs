//! The command line.

use crate::web::System;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// A paper's experiments on memory scheduling with real processes, and a simulator of policies.
#[derive(Parser, Debug)]
#[command(name = "tranship-lab", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// The CBUF paper's experiments, with real processes: what memory costs, and what policies do with it.
    Experiment(ExperimentArgs),
    /// Plays a recorded trace, or a scenario, under policies; needs no manager.
    ///
    /// A trace says what pools used and missed. Each of its pools becomes a program that wants as much, whatever it gets.
    Simulate(SimulateArgs),
    /// Measures every figure and table of the four papers, beside their peers, and writes one page of all.
    Papers(PapersArgs),
    /// The policies that there are, and the scenarios in which they can be tried.
    List {
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// A process of an experiment; started by `experiment`, not by people.
    #[command(name = "part", hide = true)]
    Part(PartArgs),
    /// Becomes another program, which stays on a processor and ends with the experiment; started by `experiment`.
    #[command(name = "pinned", hide = true)]
    Pinned(PinnedArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct SimulateArgs {
    /// The trace: JSON lines, as `docs/scheduling.md` says.
    #[arg(conflicts_with = "scenario")]
    pub trace: Option<PathBuf>,
    /// Instead of a trace: `paper`, `step` and others (see `tranship-lab list`); `paper:PAGES:TARGET` and `pressure:TARGET`, such as
    /// `paper:260:0.05`.
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// A policy; may be given several times. Default: all of them.
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// With --json: every period of every run, too.
    #[arg(long, requires = "json")]
    pub frames: bool,
}

/// Which figure of the paper.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Figure {
    /// Cost of a page, by the pool's size and by the number of domains that share it.
    CbufFig7,
    /// The web server of isolated components, its one-process build, Apache and nginx, by the size of answers.
    CbufFig9,
    /// The web server and an interferer, under each policy.
    CbufFig10,
    /// The same under `qos` with several targets, while the interferer takes all it can.
    CbufFig11,
}

impl Figure {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CbufFig7 => "cbuf-fig7",
            Self::CbufFig9 => "cbuf-fig9",
            Self::CbufFig10 => "cbuf-fig10",
            Self::CbufFig11 => "cbuf-fig11",
        }
    }
}

/// Runs a figure with a manager of its own and real processes, and reports which of the orderings of the paper hold.
#[derive(ClapArgs, Clone, Debug)]
#[command(after_help = "\
At scale 1 cbuf-fig9 takes a quarter of an hour, cbuf-fig10 and cbuf-fig11 65 s for each policy or target, cbuf-fig7 takes seconds. At a smaller scale quotas are set as often as the \
manager can, every 100 ms, which is less often than the scale would have it: below 0.4 rates and targets are not judged.
Exit code 5: an ordering did not hold.")]
pub(crate) struct ExperimentArgs {
    /// The figure.
    pub figure: Figure,
    /// How long a second of the paper's takes, in seconds; of cbuf-fig7: the part of its 100,000 operations.
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_scale)]
    pub scale: f64,
    /// Runs at the smallest scale that shows something: `--scale 0.05`.
    #[arg(long, conflicts_with = "scale")]
    pub quick: bool,
    /// Runs only this policy; may be given several times. Default: all policies of the figure.
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// cbuf-fig11: the server's targets, as shares of its callers' time.
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', value_parser = parse_share, default_value = "0.01,0.05,0.1,0.25")]
    pub target: Vec<f64>,
    /// cbuf-fig9: measures only this web server; may be given several times. Default: all that this machine has.
    #[arg(long, value_name = "NAME")]
    pub system: Vec<System>,
    /// Plays the simulator's programs instead of processes: the same figures each time, at once.
    #[arg(long)]
    pub simulated: bool,
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// With --json: adds every period of every run.
    #[arg(long, requires = "json")]
    pub frames: bool,
}

/// How long the papers' figures are measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// Minutes: few sizes, short runs.
    Small,
    /// An hour: all sizes, and runs enough for figures to be kept.
    Whole,
}

impl Scale {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Whole => "whole",
        }
    }
}

/// Runs the program of each figure, one after the other, and goes on where one fails.
#[derive(ClapArgs, Clone, Debug)]
#[command(after_help = "\
Writes index.html (one page, which needs no other file), results.json, and the report of each figure as FIGURE.json.
Exit code 2: a figure could not be measured; 5: an ordering did not hold.")]
pub(crate) struct PapersArgs {
    /// How long figures are measured.
    #[arg(long, value_enum, default_value = "small")]
    pub scale: Scale,
    /// Measures only this figure; may be given several times, or separated by commas.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Time that a figure's program may take. Then it is killed with all processes that it started [default: 900 at
    /// the small scale, 7200 at the whole one].
    #[arg(long, value_name = "SECONDS")]
    pub limit: Option<u64>,
    /// The folder of the page.
    #[arg(long, value_name = "DIR", default_value = "target/papers")]
    pub out: PathBuf,
}

/// Part of a process in an experiment.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartRole {
    /// Asks the web server, the next request when one is answered.
    Client,
    /// Allocates and frees pages in the paper's rhythm.
    Interferer,
    /// Measures what pages cost.
    Writer,
    /// Receives pages.
    Reader,
}

impl PartRole {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Interferer => "interferer",
            Self::Writer => "writer",
            Self::Reader => "reader",
        }
    }
}

#[derive(ClapArgs, Debug)]
pub(crate) struct PartArgs {
    /// The part's role.
    pub role: PartRole,
    /// The manager's socket.
    #[arg(long)]
    pub socket: PathBuf,
    /// Number of the process, from 1 on; of a writer: number of readers.
    #[arg(long, default_value = "0")]
    pub number: u32,
    /// Of a client: the server's port; of a writer: how many operations.
    #[arg(long, default_value = "0")]
    pub amount: u64,
    /// The processor that it stays on.
    #[arg(long)]
    pub core: Option<usize>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct PinnedArgs {
    /// The experiment's process.
    #[arg(long)]
    pub parent: u32,
    /// The processor.
    #[arg(long)]
    pub core: usize,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|why| format!("{why}"))?;
    if (0.02..=10.0).contains(&scale) {
        Ok(scale)
    } else {
        Err("a scale is from 0.02 to 10".to_owned())
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|why| format!("{why}"))?;
    if share > 0.0 && share < 1.0 {
        Ok(share)
    } else {
        Err("a target is a share of time, above 0 and below 1, such as 0.05".to_owned())
    }
}
