//! `tranship policy`.

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
    /// Plays a recorded trace, or a scenario, under policies; needs no manager.
    ///
    /// A trace says what pools used and missed. Each of its pools becomes a program that wants as much, whatever it gets.
    Simulate(SimulateArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct SimulateArgs {
    /// The trace: JSON lines, as `docs/scheduling.md` says.
    #[arg(required_unless_present = "scenario", conflicts_with = "scenario")]
    pub trace: Option<PathBuf>,
    /// Instead of a trace: `paper`, `step` and others (see `tranship policy list`); `paper:PAGES:TARGET` and `pressure:TARGET`, such as
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
    /// Draws throughput, waiting and quotas over time into an SVG file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The same and the tables into one HTML page that needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
