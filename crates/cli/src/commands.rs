//! One module a command.

mod generate;
mod manager;
pub(crate) mod sockets;
#[allow(dead_code)] // until `stat` and `ls` are wired
mod view;

use crate::args::{Args, Command};
use crate::exit::Answer;
use crate::{demo, doctor};
use anyhow::{Result, bail};

/// Runs what the command line asks for.
pub(crate) fn run(args: Args) -> Result<Answer> {
    match args.command {
        Command::Manager(args) => manager::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir } => generate::man(&dir),
        Command::Demo(args) => demo::run(&args),
        Command::DemoConsumer(args) => demo::run_consumer(&args),
        Command::Send(_) | Command::Recv(_) | Command::Ls(_) | Command::Stat(_) => {
            bail!("this build has no client library yet")
        }
    }
}
