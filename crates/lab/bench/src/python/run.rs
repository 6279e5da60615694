//! One run of a system: `run.py`, `spread.py` where there are several readers, or `loader.py`. It starts the other sides itself.

use super::environment::Environment;
use super::system::{System, name_of};
use crate::case::{Case, Wait};
use crate::party::{self, Member, Party};
use crate::stats::Measured;
use crate::systems::tranship;
use anyhow::{Context, Result, ensure};
use std::process::Stdio;

pub(super) fn once(
    environment: Option<&Environment>,
    system: &System,
    (case, readers): (&Case, Option<usize>),
    number: u64,
) -> Result<Vec<Measured>> {
    let environment = environment.context("no Python")?;
    let member = Member {
        core: case.cores[0],
        body: Box::new(move |party: &Party| body(environment, system, (case, readers), party)),
    };
    let done = party::run(number, vec![member]);
    clean(number);
    Ok(done?.into_iter().flatten().collect())
}

fn body(
    environment: &Environment,
    system: &System,
    (case, readers): (&Case, Option<usize>),
    party: &Party,
) -> Result<Vec<Measured>> {
    let touches: Vec<_> = system.touches.iter().map(|touch| name_of(*touch)).collect();
    let wait = match case.wait {
        Wait::Spin => "spin",
        Wait::Block => "block",
    };
    let (bytes, chunk_bytes, slots) = tranship::shape_of(case.buffers, case.payload);
    let case = serde_json::json!({
        "pool": {"max_bytes": bytes, "chunk_bytes": chunk_bytes, "slots": slots},
        "module": system.module,
        "variant": system.variant,
        "wait": wait,
        "touches": touches,
        "payload": case.payload,
        "readers": readers,
        "buffers": case.buffers,
        "cores": case.cores,
        "sample_ms": case.budget.as_millis(),
        "run": party.run,
        "folder": party::folder(party.run),
    });
    let mut python = environment.command();
    python
        .arg(environment.program(system.program))
        .arg(case.to_string());
    let done = python
        .stdin(Stdio::null())
        .output()
        .context("starting Python")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}: {}", done.status, said.trim());
    serde_json::from_slice(&done.stdout).context("what it measured")
}

/// Files that are left in `/dev/shm`: iceoryx2 leaves one even after an orderly end.
fn clean(run: u64) {
    let ours = [
        format!("tranship_bench_{run}_"),
        format!("tranship-bench-{run:x}-"),
    ];
    for entry in std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if ours.iter().any(|prefix| name.starts_with(prefix)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
