//! One word to and fro between two processes: what the machine itself takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::shared::Shared;
use crate::clock;
use crate::party::{self, Member, Party};
use crate::stats::{Samples, median};

const STOP: u64 = u64::MAX;

/// The median over the runs, in nanoseconds; 0 if both sides are on one core, where spinning measures nothing.
pub fn round_trip(cores: [usize; 2], runs: usize) -> Result<f64> {
    if cores[0] == cores[1] {
        return Ok(0.0);
    }
    let shared = Shared::make(4096)?;
    let shared = &shared;
    let mut each = Vec::new();
    for number in 0..runs as u64 {
        let word = move || {
            // SAFETY: inside the mapping, zeroed, aligned, accessed as an atomic only.
            unsafe { shared.at(0, 8).cast::<AtomicU64>().as_ref() }
        };
        word().store(0, Ordering::Relaxed);
        let ping = move |_: &Party| {
            let mut samples = Samples::new(1 << 16, 1);
            let end = clock::ticks() + clock::in_ticks(Duration::from_millis(5));
            let (mut before, mut odd) = (clock::ticks(), 1);
            loop {
                // Ordering: release and acquire, as in a ring; partner: pong.
                word().store(odd, Ordering::Release);
                while word().load(Ordering::Acquire) == odd {
                    std::hint::spin_loop();
                }
                odd += 2;
                let now = clock::ticks();
                if !samples.push(now - before) || now > end {
                    break;
                }
                before = now;
            }
            word().store(STOP, Ordering::Release);
            Ok(vec![samples.finish("").context("no samples")?])
        };
        let pong = move |_: &Party| {
            loop {
                // Ordering: as in ping.
                match word().load(Ordering::Acquire) {
                    STOP => return Ok(Vec::new()),
                    odd if odd % 2 == 1 => word().store(odd + 1, Ordering::Release),
                    _ => std::hint::spin_loop(),
                }
            }
        };
        let members = vec![
            Member {
                core: cores[0],
                body: Box::new(ping),
            },
            Member {
                core: cores[1],
                body: Box::new(pong),
            },
        ];
        each.extend(
            party::run(number, members)?
                .into_iter()
                .flatten()
                .map(|m| m.median_ns),
        );
    }
    Ok((median(each) * 10.0).round() / 10.0)
}
