//! The processes below this one, and its parent.

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use std::fs;
use std::io;

/// Returns the parent's number; 0: it is outside of this process namespace.
pub(crate) fn parent() -> u32 {
    getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
}

/// Lets the kernel send this process a signal when its parent's thread that started it ends. `expected` is the parent.
///
/// # Errors
/// The parent has ended already; refusals of the system.
// Crash: a parent that died before the call shows by another parent's number afterwards.
pub fn dies_with(expected: u32, signal: Signal) -> Result<()> {
    set_parent_process_death_signal(Some(signal)).context("prctl(PR_SET_PDEATHSIG)")?;
    let now = parent();
    if now != expected && now != 0 {
        bail!("process {expected}, which started this one, has ended");
    }
    Ok(())
}

/// Makes this process the parent of all descendants that lose theirs.
///
/// # Errors
/// Refusals of the system.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A child of this process.
pub(crate) struct Relative {
    pub pid: Pid,
    pub group: Pid,
}

/// Returns the children of this process.
pub(crate) fn children() -> io::Result<Vec<Relative>> {
    let own = getpid().as_raw_pid();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // The process may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // The name before may have any characters, blanks and brackets, too.
        let mut fields = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace();
        let mut number = |nth| fields.nth(nth).and_then(|field| field.parse::<i32>().ok());
        let (parent, group) = (number(1), number(0));
        if parent == Some(own)
            && let (Some(pid), Some(group)) = (Pid::from_raw(pid), group.and_then(Pid::from_raw))
        {
            children.push(Relative { pid, group });
        }
    }
    Ok(children)
}

/// Kills all descendants, and waits until none is left. Descendants that lost their parent are killed, too, once this
/// process [adopts](adopt_orphans) them.
///
/// # Errors
/// Refusals of the system.
// Crash: a process that dies here leaves them to its own parent's call, or to the kernel's signal at its death.
pub fn end_all() -> io::Result<()> {
    loop {
        for child in children()? {
            let _ = kill_process(child.pid, Signal::KILL);
        }
        // Children of those that ended are children of this process now.
        match wait(WaitOptions::empty()) {
            Ok(_) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
