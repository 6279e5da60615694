//! Whether the kernel gives each component's sandbox: launchers try them, and run nothing.

use crate::check::Fault;
use crate::plan::Plan;
use crate::program::Program;
use anyhow::{Context, Result};
use std::process::{Command, Stdio};

/// Tries the sandbox of each component. Returns a fault for each that the kernel refuses.
///
/// Starts one process after the other and waits for it.
///
/// # Errors
/// A launcher that cannot be started.
pub fn try_sandboxes(program: &Program) -> Result<Vec<Fault>> {
    let exe = std::env::current_exe().context("finding this program")?;
    let mut faults: Vec<Fault> = Vec::new();
    for component in &program.components {
        let plan = Plan {
            parent: std::process::id(),
            run: Vec::new(),
            rights: Some(component.rights.clone()),
            separated: false,
            filter: None,
            listens: 0,
        };
        let tried = Command::new(&exe)
            .arg("component")
            .arg(plan.argument()?)
            .stdin(Stdio::null())
            .output()
            .context("starting a launcher")?;
        if !tried.status.success() {
            let said = String::from_utf8_lossy(&tried.stderr);
            let said = said.trim().trim_start_matches("tranship: ");
            faults.push(Fault {
                line: component.line,
                text: format!(
                    "the sandbox of `{}` is impossible here: {said}",
                    component.name
                ),
            });
        }
    }
    Ok(faults)
}
