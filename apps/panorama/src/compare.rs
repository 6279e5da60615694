//! Isolated processes against one process: pairs of warm runs that alternate, and the memory of a run of each.

use crate::run::Setup;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The paper's 389.63 ms over 385.52 ms.
const TIME: f64 = 1.011;
const MEMORY: f64 = 1.3;
/// A run of less says little.
const LEAST: f64 = 2.0;
/// Time between two looks at a run's memory.
const LOOK: Duration = Duration::from_millis(20);

/// A warm panorama, in seconds: the median of a run.
#[derive(Clone, Copy)]
struct Took {
    time: f64,
    processor: f64,
}

pub(crate) fn run(setup: &Setup, pairs: usize, times: usize) -> Result<bool> {
    ensure!(pairs > 0 && times > 0, "no pairs or no panoramas");
    let (mut together, mut isolated) = (Vec::new(), Vec::new());
    println!("pair   one process       isolated          ratio   (seconds; processor seconds)");
    for pair in 0..pairs {
        // Neither is always the first.
        let mut alone = None;
        if pair % 2 == 0 {
            alone = Some(timed(setup.alone(times + 1)?)?);
        }
        let apart = timed(setup.isolated(times + 1))?;
        let alone = match alone {
            Some(alone) => alone,
            None => timed(setup.alone(times + 1)?)?,
        };
        println!(
            "{:4}   {:6.3} ({:6.3})   {:6.3} ({:6.3})   {:.4} ({:.4})",
            pair + 1,
            alone.time,
            alone.processor,
            apart.time,
            apart.processor,
            apart.time / alone.time,
            apart.processor / alone.processor
        );
        together.push(alone);
        isolated.push(apart);
    }
    let of = |all: &[Took], which: fn(&Took) -> f64| median(all.iter().map(which).collect());
    let (one, apart) = (of(&together, |t| t.time), of(&isolated, |t| t.time));
    let ratios = |which: fn(&Took) -> f64| {
        let pairs = isolated.iter().zip(&together);
        median(
            pairs
                .map(|(apart, one)| which(apart) / which(one))
                .collect(),
        )
    };
    let (time, processor) = (ratios(|t| t.time), ratios(|t| t.processor));
    println!("median {one:.3} s in one process, {apart:.3} s isolated");
    println!("time:           {time:.4} (median of the pairs; at most {TIME})");
    println!("processor time: {processor:.4}");
    if one < LEAST {
        println!(
            "a panorama in one process takes less than {LEAST} s: take larger views (--width)"
        );
    }
    let (alone, _) = resident(setup.alone(2)?)?;
    let (stages, supervisor) = resident(setup.isolated(2))?;
    #[allow(clippy::cast_precision_loss)] // KiB
    let memory = stages as f64 / alone as f64;
    println!(
        "memory:         {memory:.3} (all stages together {} MiB, one process {} MiB; at most {MEMORY}), supervisor and manager {} MiB",
        stages >> 10,
        alone >> 10,
        supervisor >> 10
    );
    let read = |name: &str| std::fs::read(setup.folder.join("out").join(name));
    let same = read("panorama.png")? == read("alone.png")?;
    println!(
        "pictures:       {}",
        if same { "the same pixels" } else { "DIFFERENT" }
    );
    Ok(same && time <= TIME && memory <= MEMORY)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let middle = all.len() / 2;
    match all.len() % 2 {
        0 => f64::midpoint(all[middle - 1], all[middle]),
        _ => all[middle],
    }
}

/// Runs a program that prints `time SECONDS` for each panorama. The first one warms it.
fn timed(mut command: Command) -> Result<Took> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("an output")?;
    let (mut times, mut used) = (Vec::new(), Vec::new());
    for line in BufReader::new(output).lines() {
        if let Some(time) = line?.trim_start_matches("photos: ").strip_prefix("time ") {
            times.push(time.parse::<f64>()?);
            used.push(processor(child.id()));
        }
    }
    let status = child.wait()?;
    if !status.success() || times.len() < 2 {
        bail!(
            "{command:?} ended with {status} after {} panoramas",
            times.len()
        );
    }
    let each = used.windows(2).map(|two| two[1] - two[0]).collect();
    Ok(Took {
        time: median(times.split_off(1)),
        processor: median(each),
    })
}

/// A process and those that it started, themselves or through others, by their number.
fn tree(root: u32) -> Vec<u32> {
    let mut parents = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some(parent) = stat(pid).and_then(|fields| fields.get(1)?.parse::<u32>().ok()) {
            parents.insert(pid, parent);
        }
    }
    let mut all = vec![root];
    let mut at = 0;
    while let Some(parent) = all.get(at).copied() {
        all.extend(
            parents
                .iter()
                .filter(|(_, p)| **p == parent)
                .map(|(pid, _)| *pid),
        );
        at += 1;
    }
    all
}

/// The fields of `/proc/PID/stat` behind the name.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Processor seconds that a tree of processes has taken, from the kernel's ticks of 10 ms.
fn processor(root: u32) -> f64 {
    let ticks = |pid| {
        let fields = stat(pid)?;
        let field = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(field(11)? + field(12)?)
    };
    tree(root).into_iter().filter_map(ticks).sum::<f64>() / 100.0
}

/// The largest proportional resident memory of a run, in KiB: of its programs over OpenCV, and of the others.
fn resident(mut command: Command) -> Result<(u64, u64)> {
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let mut most = (0, 0);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let (mut ours, mut others) = (0, 0);
        for pid in tree(child.id()) {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            match name.is_ok_and(|name| name.starts_with("panorama-")) {
                true => ours += share(pid),
                false => others += share(pid),
            }
        }
        most = (most.0.max(ours), most.1.max(others));
        std::thread::sleep(LOOK);
    };
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(most)
}

/// A process's part of the memory that it maps: pages of several processes count once in all.
fn share(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
