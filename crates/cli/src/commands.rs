//! One module a command.

mod block;
mod cache;
mod cert;
pub(crate) mod connect;
mod generate;
mod manager;
mod metrics;
mod names;
mod policy;
mod quota;
mod recv;
mod run;
mod send;
pub(crate) mod sockets;
mod top;
mod trace;
mod view;
mod zcopy;

use crate::args::{Args, Command};
use crate::exit::Answer;
use crate::{demo, doctor, experiment};
use anyhow::Result;

/// Runs what the command line asks for.
pub(crate) fn run(args: Args) -> Result<Answer> {
    match args.command {
        Command::Manager(args) => manager::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Recv(args) => recv::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Block(args) => block::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Zcopy(action) => zcopy::run(&action),
        Command::Ls(args) => view::ls(&args),
        Command::Stat(args) => view::stat(&args),
        Command::Top(args) => top::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Quota(action) => quota::run(&action),
        Command::Trace(args) => trace::run(&args),
        Command::Policy(action) => policy::run(&action),
        Command::Experiment(args) => experiment::run(&args),
        Command::Cert(action) => cert::run(&action),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir } => generate::man(&dir),
        Command::DemoConsumer(args) => demo::run_consumer(&args),
        Command::ExperimentPart(args) => experiment::run_part(&args),
    }
}
