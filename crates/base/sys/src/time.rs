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

#[cfg(test)]
mod tests {
    #[test]
    fn it_does_not_go_backwards() {
        let first = super::monotonic_ns();
        let second = super::monotonic_ns();
        assert!(first > 0 && second >= first);
    }
}
