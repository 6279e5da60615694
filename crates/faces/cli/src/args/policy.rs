//! `tranship policy`.

use super::values::{ConnectArgs, parse_time};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum PolicyAction {
    /// The policies that there are, and the scenarios in which they can be tried.
    List {
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Sets the quotas of a running manager's pools, period after period: its policy as a program of its own.
    ///
    /// It needs two rights, and has no others: to read the manager's figures of pools, and to set their quotas. Root
    /// and the manager's own user have them, others by a rule `[[policy_run]]` in the manager's configuration, whose
    /// `policy` has to be "static". One runs at a time. The manager checks all quotas that it sets. When it ends, in
    /// whatever way, the last quotas stay, and another one may go on.
    Run(RunArgs),
    /// Records into a file what a running manager tells its policy of all pools, for `policy simulate`: a line each
    /// period.
    Record(RecordArgs),
    /// Plays a recorded trace, or a scenario, under policies; needs no manager.
    ///
    /// A trace gives the memory that pools used and missed. Each of its pools becomes a program that wants as much,
    /// whatever it gets.
    Simulate(SimulateArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct SimulateArgs {
    /// The trace: JSON lines, as `docs/scheduling.md` says.
    #[arg(conflicts_with = "scenario")]
    pub trace: Option<PathBuf>,
    /// Instead of a trace: `paper`, `step` and others (see `tranship policy list`); `paper:PAGES:TARGET` and
    /// `pressure:TARGET`, such as `paper:260:0.05`.
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// A policy; may be given several times. Default: all of them.
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// With --json: adds every period of every run.
    #[arg(long, requires = "json")]
    pub frames: bool,
    /// Draws throughput, waiting and quotas over time into an SVG file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Writes the pictures and the tables into one HTML page that needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct RunArgs {
    /// The policy: see `tranship policy list`.
    #[arg(long, value_name = "NAME", required_unless_present = "config")]
    pub policy: Option<String>,
    /// Length of a period.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_time)]
    pub every: std::time::Duration,
    /// TOML file of the settings that differ from the defaults: policy, most_step, headroom, calm, calm_collecting,
    /// band (docs/scheduling.md).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Time to run; default: until it is interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<std::time::Duration>,
    /// Runs without the lock-down to the manager's socket and a clock.
    #[arg(long)]
    pub no_sandbox: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct RecordArgs {
    /// The file; `-`: standard output.
    pub file: PathBuf,
    /// Length of a period.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_time)]
    pub every: std::time::Duration,
    /// Time to record; default: until the manager leaves, or this program is interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<std::time::Duration>,
    #[command(flatten)]
    pub connect: ConnectArgs,
}
