//! What servers and clients of `zc-send` agree on.

use std::time::Duration;

/// Connections at a time.
pub const CONNECTIONS: usize = 16;
/// Bytes before each value, as a protocol has.
pub const HEADER: usize = 40;

/// One cell's work.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub value: usize,
    pub count: usize,
    pub depth: usize,
    pub copies: bool,
    pub budget: Duration,
}

/// This process's processor time, ns.
pub fn cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
