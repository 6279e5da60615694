//! The launcher: a process of one thread that takes on a component's rights, and becomes its program.
//!
//! The supervisor starts it as `tranship component PLAN`. So no code runs between a fork and an exec, and what a check
//! tries is what a start does.

use crate::filter;
use crate::listen;
use crate::plan::Plan;
use anyhow::{Context, Result, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Does what the plan says; returns only where there is nothing to run, and after a filter, with the exit code.
///
/// # Errors
/// Refusals of the kernel; a program that cannot be run.
pub fn launch(plan: &str) -> Result<i32> {
    let plan: Plan = serde_json::from_str(plan)
        .context("`tranship component` is started by `tranship run`, and not by people")?;
    if let Some(filter) = &plan.filter {
        dies_with(plan.parent)?;
        return filter::run(&plan, filter);
    }
    let Some((program, arguments)) = plan.run.split_first() else {
        if let Some(rights) = plan.rights {
            rights.confined().confine()?;
        }
        return Ok(0);
    };
    let mut program = Command::new(program);
    listen::take(plan.listens, &mut program)?;
    if let Some(rights) = plan.rights {
        rights.confined().confine()?;
    }
    // Last: a change of user takes it away.
    dies_with(plan.parent)?;
    let error = program.args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.get_program().display()))
}

/// Lets the kernel kill this process when its parent dies.
// Crash: a parent that died before the call shows by another parent's number afterwards.
fn dies_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("prctl(PR_SET_PDEATHSIG)")?;
    let now = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    // 0: the parent is outside of this process namespace.
    if now != parent && now != 0 {
        bail!("process {parent}, which started this one, has ended");
    }
    Ok(())
}
