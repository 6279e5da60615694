//! The commands: one module each.

#[cfg(feature = "block")]
mod block;
#[cfg(feature = "zcopy")]
mod cache;
#[cfg(feature = "net")]
mod cert;
pub(crate) mod connect;
mod figures;
mod generate;
mod manager;
mod messages;
mod metrics;
mod names;
mod policy;
mod queue;
mod quota;
mod readers;
mod recv;
mod run;
mod send;
mod service;
pub(crate) mod sockets;
#[cfg(feature = "top")]
mod top;
mod topic;
mod trace;
mod view;
mod words;
#[cfg(feature = "zcopy")]
mod zcopy;

use crate::args::topic::TopicAction;
use crate::args::{Args, Command};
#[cfg(feature = "demo")]
use crate::demo;
use crate::exit::Answer;
use crate::{doctor, output};
use anyhow::Result;

/// Runs the command of the command line.
pub(crate) fn run(args: Args) -> Result<Answer> {
    if is_read(&args.command) {
        output::check_stdout()?;
    }
    match args.command {
        Command::Manager(args) => manager::run(args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Recv(args) => recv::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Component { plan } => run::component(&plan),
        #[cfg(feature = "block")]
        Command::Block(args) => block::run(&args),
        #[cfg(feature = "zcopy")]
        Command::Cache(args) => cache::run(&args),
        #[cfg(feature = "zcopy")]
        Command::Zcopy(action) => zcopy::run(&action),
        Command::Topic(action) => topic::run(&action),
        Command::Service(action) => service::run(&action),
        Command::Queue(action) => queue::run(&action),
        Command::Ls(args) => view::ls(&args),
        Command::Stat(args) => view::stat(&args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Quota(action) => quota::run(&action),
        Command::Trace(args) => trace::run(&args),
        Command::Policy(action) => policy::run(&action),
        #[cfg(feature = "net")]
        Command::Cert(action) => cert::run(&action),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir } => generate::man(&dir),
        #[cfg(feature = "demo")]
        Command::DemoConsumer(args) => demo::run_consumer(&args),
    }
}

/// Returns whether the command's purpose is its standard output. Servers print there at most that they listen.
fn is_read(command: &Command) -> bool {
    match command {
        Command::Recv(args) => args.file.is_none(),
        Command::Topic(action) => !matches!(action, TopicAction::Pub(_)),
        Command::Ls(_)
        | Command::Stat(_)
        | Command::Quota(_)
        | Command::Service(_)
        | Command::Queue(_)
        | Command::Trace(_)
        | Command::Doctor(_)
        | Command::Completions { .. } => true,
        #[cfg(feature = "demo")]
        Command::Demo(_) => true,
        #[cfg(feature = "zcopy")]
        Command::Zcopy(_) => true,
        #[cfg(feature = "top")]
        Command::Top(_) => true,
        _ => false,
    }
}
