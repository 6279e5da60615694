//! `mbuma-fig7`: resident memory over time, before, during and after a spike of network traffic (the paper's figure 7, which
//! plots swapped pages).
//!
//! Each system is a fresh process. A steady load of packets goes on all the time; for a moment there are very many; half of
//! them are freed by another thread, which then sleeps. What is sampled is the resident size of the process.

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::alloc;
use crate::bench::Bench;
use crate::clock;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Facts, Measured, Samples, median};
use crate::systems::netbufs::{self, NetBufs, Packet, resident};

/// Packets that are out all the time; the first load is the one that is drawn.
const STEADY: [usize; 4] = [16384, 1024, 4096, 65536];
/// With `--quick`.
const QUICK_STEADY: [usize; 1] = [4096];
const SAMPLE: Duration = Duration::from_millis(20);
/// How long before the spike, while it is held, and after it.
const PHASES_MS: [u64; 3] = [1500, 300, 4500];
const QUICK_PHASES_MS: [u64; 3] = [200, 50, 2300];

#[derive(Debug, clap::Args)]
pub struct Spike {
    /// Packets of the spike.
    #[arg(long, default_value_t = 65536)]
    packets: usize,
    /// Packets that are out all the time: several loads [default: 16384, 1024, 4096, 65536; with --quick 4096].
    #[arg(long, value_delimiter = ',')]
    steady: Vec<std::num::NonZeroUsize>,
}

/// What a process is to measure.
#[derive(Debug, Serialize, Deserialize)]
pub struct Given {
    system: String,
    packets: usize,
    steady: usize,
    phases_ms: [u64; 3],
}

impl Bench for Spike {
    const REFERENCES: &'static [&'static str] = &["4.x"];

    fn systems(&self) -> Vec<&'static str> {
        netbufs::NAMES.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let (steady, phases_ms) = match common.is_quick() {
            true => (&QUICK_STEADY[..], QUICK_PHASES_MS),
            false => (&STEADY[..], PHASES_MS),
        };
        let given: Vec<_> = self.steady.iter().map(|n| n.get()).collect();
        let steady = match &given[..] {
            [] => steady,
            some => some,
        };
        let mut outcome = Outcome::default();
        for &steady in steady {
            let names = netbufs::NAMES.into_iter().filter(|name| common.wants(name));
            let cells = names.map(|system| Cell {
                system,
                key: Key {
                    mode: "spike",
                    buffers: Some(steady),
                    ..Key::default()
                },
                measure: Box::new(move |_| {
                    let given = Given {
                        system: system.to_owned(),
                        packets: self.packets,
                        steady,
                        phases_ms,
                    };
                    let measured: Measured = alloc::run_child("mbuma-fig7", &given, None)?;
                    Ok(vec![measured])
                }),
            });
            outcome.group(common.runs_or(1), cells.collect());
        }
        Ok(outcome)
    }
}

/// The process's side.
pub fn child(given: Given) -> Result<()> {
    alloc::adopt_clock();
    let bufs = netbufs::open(&given.system)?;
    let measured = watch(&*bufs, &given)?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

fn take(bufs: &dyn NetBufs) -> Result<Packet> {
    let packet = bufs.get().context("out of memory")?;
    // SAFETY: just taken.
    unsafe { bufs.fill(packet) };
    Ok(packet)
}

/// A packet taken and given back, hot.
fn pair(bufs: &dyn NetBufs) -> Result<Measured> {
    const PAIRS: u32 = 64;
    let mut samples = Samples::new(4096, PAIRS);
    loop {
        let begun = clock::ticks();
        for _ in 0..PAIRS {
            let packet = bufs.get().context("out of memory")?;
            // SAFETY: just taken.
            unsafe { bufs.put(std::hint::black_box(packet)) };
        }
        if !samples.push(clock::ticks() - begun) {
            return samples.finish("").context("no samples");
        }
    }
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

fn watch(bufs: &dyn NetBufs, given: &Given) -> Result<Measured> {
    let [before, held, after] = given.phases_ms.map(Duration::from_millis);
    let (packets, steady) = (given.packets, given.steady);
    let pair = pair(bufs)?;
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
    let peak = points
        .iter()
        .fold(0.0f64, |most, (_, bytes)| bytes.max(most));
    Ok(Measured {
        facts: Facts::from([
            ("before_bytes".into(), before_bytes),
            ("peak_bytes".into(), peak),
            ("after_2s_bytes".into(), after_2s_bytes),
            ("after_2s_ratio".into(), after_2s_bytes / before_bytes),
            ("freed_ms".into(), freed_ms),
            ("reclaims".into(), f64::from(u8::from(bufs.reclaims()))),
        ]),
        points,
        ..pair
    })
}
