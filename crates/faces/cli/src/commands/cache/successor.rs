//! SIGUSR2: this program again, as it was started, which takes over.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command};

/// Command line of this program. The path is asked for at the start: an upgrade may put another file there later.
pub(super) struct Start {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Child that was started last.
    last: Option<Child>,
}

impl Start {
    pub(super) fn of_this() -> Result<Start> {
        Ok(Start {
            program: std::env::current_exe().context("looking where this program is")?,
            arguments: std::env::args_os().skip(1).collect(),
            last: None,
        })
    }

    /// Starts the program again, unless the last one is still starting.
    pub(super) fn again(&mut self) -> Result<()> {
        if let Some(last) = &mut self.last
            && last.try_wait()?.is_none()
        {
            eprintln!("tranship: process {} is taking over already", last.id());
            return Ok(());
        }
        let started = Command::new(&self.program).args(&self.arguments).spawn();
        let started = started.with_context(|| format!("starting {}", self.program.display()))?;
        eprintln!("tranship: process {} is to take over", started.id());
        self.last = Some(started);
        Ok(())
    }
}
