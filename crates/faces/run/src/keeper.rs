//! The first process of a running program: nothing of the program outlives it, or the supervisor.
//!
//! | killed | what ends the rest |
//! |---|---|
//! | supervisor | the keeper adopts all that it started, and kills it |
//! | keeper | the kernel tells the supervisor, which kills all that it started |
//! | both at once | the kernel kills each process that the supervisor started |

use crate::family;
use crate::filter::code;
use crate::place;
use crate::program::Program;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Runs the supervisor as a child with these arguments, to which the folder's path is added, until it ends. Returns its
/// exit code.
///
/// # Errors
/// Refusals of the system.
pub fn keep(program: &Program, arguments: &[OsString]) -> Result<i32> {
    family::adopt_orphans().context("prctl(PR_SET_CHILD_SUBREAPER)")?;
    // Before the start, so that none is missed.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD]).context("taking signals")?;
    let dir = place::make(program)?;
    let kept = supervised(&dir, arguments, &mut signals);
    let ended = family::end_all().context("ending all processes");
    let _ = std::fs::remove_dir_all(&dir);
    let code = kept?;
    ended?;
    Ok(code)
}

fn supervised(dir: &Path, arguments: &[OsString], signals: &mut Signals) -> Result<i32> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    // A terminal's signals come once: through this process.
    let mut supervisor = command
        .args(arguments)
        .arg(dir)
        .process_group(0)
        .spawn()
        .context("starting the supervisor")?;
    for signal in signals.forever() {
        if signal != SIGCHLD {
            // If this fails, the supervisor has ended.
            let _ = tranship_sys::process::kill(supervisor.id(), signal);
        }
        if let Some(status) = supervisor
            .try_wait()
            .context("waiting for the supervisor")?
        {
            return Ok(code(status));
        }
    }
    Ok(1)
}
