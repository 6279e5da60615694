//! Time stamps: the cycle counter where there is one, since a system clock costs as much as what we time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

/// Bits of the `f64` number of nanoseconds in a tick; 0 before [`calibrate`].
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// The counter now.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    // SAFETY: RDTSC has no precondition; every x86-64 processor we run on has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The counter now.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Ticks that it takes.
#[inline(always)]
pub fn spent(run: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = ticks();
    run()?;
    Ok(ticks() - before)
}

/// Measures the counter against the system's clock. Call once per program, before any fork.
pub fn calibrate() {
    let (t0, c0) = (Instant::now(), ticks());
    while t0.elapsed() < Duration::from_millis(40) {
        std::hint::spin_loop();
    }
    let (wall, c1) = (t0.elapsed(), ticks());
    let ns = wall.as_secs_f64() * 1e9 / (c1 - c0) as f64;
    NS_PER_TICK.store(ns.to_bits(), Ordering::Relaxed);
}

/// Takes over what another process found.
pub fn adopt(ns_per_tick: f64) {
    NS_PER_TICK.store(ns_per_tick.to_bits(), Ordering::Relaxed);
}

/// Nanoseconds in `ticks`.
pub fn ns(ticks: u64) -> f64 {
    ticks as f64 * f64::from_bits(NS_PER_TICK.load(Ordering::Relaxed))
}

/// Ticks in a duration.
pub fn in_ticks(time: Duration) -> u64 {
    let ticks = time.as_secs_f64() * 1e9 / ns(1);
    // A duration of a bench is below an hour: far from 2^63 ticks.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = ticks as u64;
    whole
}
