//! One run: a process of this program, with the allocator under test preloaded.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::stats::Measured;
use crate::systems::allocators::Preload;

/// Task of one process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Given {
    pub(super) system: String,
    pub(super) mode: String,
    pub(super) bytes: usize,
    pub(super) buffers: usize,
    pub(super) threads: usize,
    /// The processors of the threads, in turn.
    pub(super) cores: Vec<usize>,
    pub(super) sample_ms: u64,
    /// So that the process need not find out again.
    pub(super) ns_per_tick: f64,
}

/// The library that a system must have preloaded, if any; `None`, and a word about it, if it is not here.
pub(super) fn library(name: &str, preload: Option<Preload>) -> Option<Option<PathBuf>> {
    let Some(preload) = preload else {
        return Some(None);
    };
    let found = find(&preload);
    if found.is_none() {
        let Preload { file, get } = preload;
        eprintln!("SKIPPED: {name}: no {file} here: {get}");
    }
    found.map(Some)
}

/// The library's path: beside this program, or where this machine has its libraries.
fn find(preload: &Preload) -> Option<PathBuf> {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?.to_str()?.to_owned();
    [
        beside,
        format!("/usr/lib/{triple}"),
        format!("/lib/{triple}"),
        "/usr/lib64".into(),
        "/usr/lib".into(),
        "/usr/local/lib".into(),
    ]
    .into_iter()
    .map(|dir| PathBuf::from(dir).join(preload.file))
    .find(|path| path.exists())
}

/// Runs this program with that library preloaded; returns what it measured.
pub(super) fn run_child(given: &Given, library: Option<&PathBuf>) -> Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["child", "alloc", &serde_json::to_string(given)?])
        .env_remove("LD_PRELOAD");
    if let Some(path) = library {
        command.env("LD_PRELOAD", path);
    }
    let output = command
        .output()
        .context("starting a process of this program")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.trim());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Fails unless the library is there.
pub(super) fn check_preload(preload: Option<Preload>) -> Result<()> {
    if let Some(preload) = preload {
        // The loader only warns when it cannot preload; then we would measure the wrong one.
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let stem = preload.file.split(".so").next().unwrap_or(preload.file);
        ensure!(maps.contains(stem), "{} was not preloaded", preload.file);
    }
    Ok(())
}
