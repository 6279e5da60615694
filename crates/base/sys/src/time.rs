//! The only clock of the project.

/// Returns nanoseconds of `CLOCK_MONOTONIC`, which is equal in all processes of the machine.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The monotonic clock starts at boot and is never negative.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Returns nanoseconds of `CLOCK_MONOTONIC` at the system timer's last tick: cheaper, and up to 10 ms late.
#[inline]
pub fn coarse_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Reads the processor's counter, in its own unit; 0 where [`has_steady_counter`] is false for lack of one. It takes
/// less time than [`monotonic_ns`].
#[inline(always)]
pub fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no precondition; every x86-64 processor has it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Says whether [`counter`] runs at one rate on all processors: the kernel takes its own time from it.
pub fn has_steady_counter() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(path).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_steady_counter_does_not_go_backwards() {
        let first = super::counter();
        assert!(!super::has_steady_counter() || super::counter() >= first);
    }

    #[test]
    fn it_does_not_go_backwards() {
        let first = super::monotonic_ns();
        let second = super::monotonic_ns();
        assert!(first > 0 && second >= first);
    }
}
