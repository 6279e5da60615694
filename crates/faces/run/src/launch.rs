//! The launcher: a process of one thread that takes on a component's rights, and becomes its program. With a process
//! namespace its grandchild does; the launcher waits.
//!
//! The supervisor starts it as `tranship component PLAN`. So no code runs between a fork and an exec, and what a check
//! tries is what a start does.

use crate::family::{dies_with, parent};
use crate::filter;
use crate::listen;
use crate::plan::Plan;
use crate::program::Rights;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Does what the plan says; returns only where there is nothing to run, and after a filter, with the exit code.
///
/// # Errors
/// Refusals of the kernel; a program that cannot be run.
pub fn launch(plan: &str) -> Result<i32> {
    let plan: Plan = serde_json::from_str(plan)
        .context("`tranship component` is started by `tranship run`, and not by people")?;
    dies_with(plan.parent, Signal::KILL)?;
    let rights = plan.rights.clone().map(Rights::confined);
    if let Some(rights) = rights.as_ref().filter(|_| !plan.separated) {
        rights.separate()?;
    }
    // Of the process that goes on.
    let parent = parent();
    if let Some(filter) = &plan.filter {
        return filter::run(&plan, filter);
    }
    let mut program = plan.run.first().map(Command::new);
    if let Some(program) = &mut program {
        listen::take(plan.listens, program)?;
    }
    if let Some(rights) = rights {
        rights.restrict()?;
    }
    let Some(mut program) = program else {
        return Ok(0);
    };
    // Again: a change of user takes it away.
    dies_with(parent, Signal::KILL)?;
    let error = program.args(&plan.run[1..]).exec();
    Err(error).with_context(|| format!("cannot run {}", program.get_program().display()))
}
