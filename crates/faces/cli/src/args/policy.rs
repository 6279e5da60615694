//! `tranship policy`.

use super::values::{ConnectArgs, parse_time};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum PolicyAction {
    /// The policies that there are.
    List {
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Sets the quotas of a running manager's pools, period after period: its policy as a program of its own.
    ///
    /// It needs two rights, and has no others: to read what the manager knows of pools, and to set their quotas. Root and the manager's own user have them,
    /// others by a rule `[[policy_run]]` in the manager's configuration, whose `policy` has to be "static". One runs at a time. The manager checks all that
    /// it sets. When it ends, however it does, the last quotas stay, and another one may go on.
    Run(RunArgs),
    /// Writes what a running manager tells its policy of all pools into a file, a line each period: `tranship-lab simulate` plays it.
    Record(RecordArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct RunArgs {
    /// The policy: see `tranship policy list`.
    #[arg(long, value_name = "NAME", required_unless_present = "config")]
    pub policy: Option<String>,
    /// How long a period is.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_time)]
    pub every: std::time::Duration,
    /// TOML, of what is to be otherwise than usual: policy, most_step, headroom, calm, calm_collecting, band (docs/scheduling.md).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How long to run; default: until it is interrupted.
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
    /// How long a period is.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_time)]
    pub every: std::time::Duration,
    /// How long to record; default: until the manager leaves, or this program is interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<std::time::Duration>,
    #[command(flatten)]
    pub connect: ConnectArgs,
}
