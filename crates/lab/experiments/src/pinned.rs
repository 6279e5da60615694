//! A program that stays on a processor, and that the kernel ends when the experiment ends, however that comes.
//!
//! `tranship-lab pinned` sets both for its own process, and becomes the program. So no code runs between a fork and an
//! exec.

use crate::args::PinnedArgs;
use anyhow::{Context, Result};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use tranship_run::family;

/// Returns the command that starts a program on this processor. The thread that runs the command must live as long as
/// the program is to.
pub(crate) fn command(core: usize, program: impl AsRef<OsStr>) -> Result<Command> {
    let own = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(own);
    command
        .args(["pinned", "--parent", &std::process::id().to_string()])
        .args(["--core", &core.to_string(), "--"])
        .arg(program);
    Ok(command)
}

/// Stays on one processor from here on.
pub(crate) fn stay(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("staying on processor {core}"))
}

/// Becomes the program; returns only if it cannot.
pub(crate) fn run(args: &PinnedArgs) -> Result<()> {
    // SIGTERM, as a server that is killed leaves its workers behind.
    family::dies_with(args.parent, Signal::TERM)?;
    stay(args.core)?;
    let (program, arguments) = args.command.split_first().context("no program")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
