//! `mbuma-fig7`: resident memory over time, before, during and after a spike of network traffic (the paper's figure 7, which
//! plots swapped pages).
//!
//! Each system is a fresh process. A steady load of packets goes on all the time; for a moment there are very many; half of
//! them are freed by another thread, which then sleeps. What is sampled is the resident size of the process.

mod picture;
mod series;

pub use series::Series;

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::alloc;
use crate::machine::Machine;
use crate::options::Common;
use crate::stats::median;
use crate::systems::netbufs::{self, CLUSTER, MBUF, NetBufs, Packet, resident};

/// Packets that are out all the time; the first load is the one that is drawn.
const STEADY: [usize; 4] = [16384, 1024, 4096, 65536];
/// With `--quick`.
const QUICK_STEADY: [usize; 1] = [4096];
const SAMPLE: Duration = Duration::from_millis(20);
/// How long before the spike, while it is held, and after it.
const PHASES_MS: [u64; 3] = [1500, 300, 4500];
const QUICK_PHASES_MS: [u64; 3] = [200, 50, 2300];

#[derive(Debug, Serialize)]
struct Answer<'a> {
    bench: &'static str,
    machine: Machine,
    rows: &'a [Series],
}

/// Runs every system; prints; draws into `svg`. True if all could be measured.
pub fn bench(
    common: &Common,
    packets: usize,
    steady: &[usize],
    svg: Option<&std::path::Path>,
) -> Result<bool> {
    common.check(&netbufs::NAMES)?;
    let steady = match steady {
        [] if common.is_quick() => &QUICK_STEADY[..],
        [] => &STEADY[..],
        some => some,
    };
    let (rows, failures) = measure(common, packets, steady);
    if let Some(path) = svg {
        let first = rows.iter().filter(|row| row.steady == steady[0]);
        std::fs::write(path, picture::draw(&first.collect::<Vec<_>>()))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if common.json {
        let answer = Answer {
            bench: "mbuma-fig7",
            machine: Machine::look(common.cores(), 1, common.sample_ms()),
            rows: &rows,
        };
        println!("{}", serde_json::to_string(&answer)?);
    } else {
        println!(
            "mbuma-fig7: resident memory around a spike of {packets} packets of {} bytes\n\n  {:<10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}",
            MBUF + CLUSTER,
            "",
            "all the time",
            "before",
            "peak",
            "after 2 s",
            "x before",
            "get+put",
            "reclaims"
        );
        for row in &rows {
            let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
            println!(
                "  {:<10}{:>12}{:>12}{:>12}{:>12}{:>12.3}{:>12}{:>10}",
                row.system,
                row.steady,
                mib(row.before_bytes),
                mib(row.peak_bytes),
                mib(row.after_2s_bytes),
                row.after_2s_ratio,
                format!("{:.1} ns", row.median_ns),
                row.reclaims
            );
        }
    }
    Ok(failures == 0)
}

/// Of each load and system the run with the middle ratio; and how many runs failed.
pub fn measure(common: &Common, packets: usize, steady: &[usize]) -> (Vec<Series>, usize) {
    let mut rows = Vec::new();
    let mut failures = 0;
    let names = || netbufs::NAMES.into_iter().filter(|name| common.wants(name));
    let mut all: Vec<(&str, usize, Vec<Series>)> = steady
        .iter()
        .flat_map(|&steady| names().map(move |name| (name, steady, Vec::new())))
        .collect();
    let once = |name: &str, steady: usize| {
        let numbers = [packets.to_string(), steady.to_string()];
        let mut arguments = vec!["mbuma-child", name, &numbers[0], &numbers[1]];
        arguments.extend(common.is_quick().then_some("--quick"));
        let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
        alloc::run_child::<Series>(&arguments, None)
    };
    for _ in 0..common.runs_or(1) {
        let each = all.iter().map(|(name, steady, _)| (*name, *steady));
        let runs: Vec<Result<Series>> = match common.is_quick() {
            // Mostly they wait for what the others do not disturb: their memory.
            true => std::thread::scope(|scope| {
                let begun = each.map(|(name, steady)| scope.spawn(move || once(name, steady)));
                let begun: Vec<_> = begun.collect();
                let ended = begun.into_iter().map(|one| one.join());
                ended.map(|one| one.expect("no panic")).collect()
            }),
            false => each.map(|(name, steady)| once(name, steady)).collect(),
        };
        for ((name, _, seen), run) in all.iter_mut().zip(runs) {
            match run {
                Ok(series) => seen.push(series),
                Err(error) => {
                    failures += 1;
                    eprintln!("FAILED: {name}: {error:#}");
                }
            }
        }
    }
    for (_, _, mut seen) in all {
        seen.sort_by(|a, b| a.after_2s_ratio.total_cmp(&b.after_2s_ratio));
        let ratios = seen.iter().map(|series| series.after_2s_ratio).collect();
        let middle = seen.len() / 2;
        rows.extend(seen.into_iter().nth(middle).map(|series| Series {
            after_2s_ratios: ratios,
            ..series
        }));
    }
    (rows, failures)
}

/// The process's side.
pub fn child(system: &str, packets: usize, steady: usize, quick: bool) -> Result<()> {
    let bufs = netbufs::open(system)?;
    let series = watch(&*bufs, system, packets, steady, quick)?;
    println!("{}", serde_json::to_string(&series)?);
    Ok(())
}

fn take(bufs: &dyn NetBufs) -> Result<Packet> {
    let packet = bufs.get().context("out of memory")?;
    // SAFETY: just taken.
    unsafe { bufs.fill(packet) };
    Ok(packet)
}

fn pair_ns(bufs: &dyn NetBufs) -> Result<f64> {
    const PAIRS: u32 = 20_000;
    let mut runs = Vec::new();
    for _ in 0..11 {
        let begun = Instant::now();
        for _ in 0..PAIRS {
            let packet = bufs.get().context("out of memory")?;
            // SAFETY: just taken.
            unsafe { bufs.put(std::hint::black_box(packet)) };
        }
        runs.push(begun.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS));
    }
    Ok(median(runs))
}

struct Watch<'a> {
    bufs: &'a dyn NetBufs,
    begun: Instant,
    points: Vec<(f64, f64)>,
    steady: Vec<Packet>,
    turn: usize,
}

impl Watch<'_> {
    fn ms(&self) -> f64 {
        self.begun.elapsed().as_secs_f64() * 1e3
    }

    #[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
    fn sample(&mut self) -> Result<()> {
        self.points.push((self.ms(), resident()? as f64));
        Ok(())
    }

    /// Steady traffic: packets come and go, the oldest first.
    fn traffic(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for _ in 0..1000 {
                let fresh = take(self.bufs)?;
                let old = std::mem::replace(&mut self.steady[self.turn], fresh);
                // SAFETY: taken once, given once.
                unsafe { self.bufs.put(old) };
                self.turn = (self.turn + 1) % self.steady.len();
            }
            self.sample()?;
            std::thread::sleep(SAMPLE);
        }
        Ok(())
    }
}

fn watch(
    bufs: &dyn NetBufs,
    system: &str,
    packets: usize,
    steady: usize,
    quick: bool,
) -> Result<Series> {
    let phases = if quick { QUICK_PHASES_MS } else { PHASES_MS };
    let [before, held, after] = phases.map(Duration::from_millis);
    let median_ns = pair_ns(bufs)?;
    let mut watch = Watch {
        bufs,
        begun: Instant::now(),
        points: Vec::with_capacity(4096),
        steady: Vec::with_capacity(steady),
        turn: 0,
    };
    for _ in 0..steady {
        watch.steady.push(take(bufs)?);
    }
    let freed_ms = std::thread::scope(|scope| -> Result<f64> {
        // Whoever frees half of them has a cache too, and sleeps then.
        let (send, receive) = sync_channel::<Packet>(256);
        let (done, wait) = sync_channel::<()>(0);
        let (over, sleep) = sync_channel::<()>(0);
        scope.spawn(move || {
            // SAFETY: each was taken once and handed over.
            receive
                .iter()
                .for_each(|packet| unsafe { bufs.put(packet) });
            // The other side may have failed: then there is nobody to tell.
            let _ = done.send(());
            let _ = sleep.recv();
        });
        watch.traffic(before)?;
        let mut spike = Vec::with_capacity(packets);
        for number in 0..packets {
            spike.push(take(bufs)?);
            if number % 4096 == 0 {
                watch.sample()?;
            }
        }
        watch.traffic(held)?;
        for (number, packet) in spike.drain(..).enumerate() {
            if number % 2 == 0 {
                // SAFETY: taken once.
                unsafe { bufs.put(packet) };
            } else {
                send.send(packet).ok().context("the other thread is gone")?;
            }
            if number % 4096 == 0 {
                watch.sample()?;
            }
        }
        drop((spike, send));
        wait.recv().context("the other thread is gone")?;
        let freed_ms = watch.ms();
        watch.traffic(after)?;
        drop(over);
        Ok(freed_ms)
    })?;
    let points = watch.points;
    let begin = before.as_secs_f64() * 1e3;
    let of = |from: f64, to: f64| {
        let bytes = |(_, bytes): &(f64, f64)| *bytes;
        let inside = points.iter().filter(|(ms, _)| (from..to).contains(ms));
        match inside.clone().next() {
            Some(_) => median(inside.map(bytes)),
            // On a machine so busy that nothing was looked at meanwhile: the next look, or the last one.
            None => {
                let next = points.iter().find(|(ms, _)| *ms >= to);
                next.or(points.last()).map_or(0.0, bytes)
            }
        }
    };
    let before_bytes = of(begin * 0.5, begin);
    let after_2s_bytes = of(freed_ms + 2000.0, freed_ms + 2250.0);
    Ok(Series {
        system: system.to_owned(),
        mode: "spike".to_owned(),
        reclaims: bufs.reclaims(),
        packets,
        steady,
        median_ns: (median_ns * 100.0).round() / 100.0,
        freed_ms: freed_ms.round(),
        before_bytes,
        peak_bytes: points.iter().fold(0.0, |most, (_, bytes)| bytes.max(most)),
        after_2s_bytes,
        after_2s_ratios: Vec::new(),
        after_2s_ratio: (after_2s_bytes / before_bytes * 1e3).round() / 1e3,
        points,
    })
}
