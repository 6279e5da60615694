//! `multiprocessing.Queue`, by a program of its own.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::way::ITEM;
use crate::options::Common;
use crate::stats::Measured;

const PROGRAM: &str = include_str!("mp_queue.py");

pub fn stream(sides: usize, common: &Common, _: u64) -> Result<Vec<Measured>> {
    let [core, other] = common.cores();
    let seconds = common.budget().as_secs_f64();
    let given = [
        sides.to_string(),
        ITEM.to_string(),
        seconds.to_string(),
        core.to_string(),
        other.to_string(),
    ];
    let mut python = Command::new("python3");
    python
        .args(["-c", PROGRAM])
        .args(given)
        .stdin(Stdio::null());
    let done = python.output().context("starting Python")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}: {}", done.status, said.trim());
    let rate = String::from_utf8_lossy(&done.stdout);
    Ok(vec![Measured::rate(rate.trim().parse()?)])
}
