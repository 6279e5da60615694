//! The machine's resources: memory, randomness.

use std::hash::{BuildHasher, Hasher};
use std::io::Read;

/// Returns a random number.
pub(super) fn random() -> u64 {
    let mut raw = [0u8; 8];
    match std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut raw)) {
        Ok(()) => u64::from_le_bytes(raw),
        // A container without /dev: the seed of the standard library's hash maps comes from getrandom.
        Err(_) => std::hash::RandomState::new().build_hasher().finish(),
    }
}

/// Returns half of the memory of the machine, or of this cgroup. Free memory is not the measure: a manager that is
/// restarted on a busy machine has to take over the existing memory.
pub(super) fn half_of_memory() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib * 1024);
    let cgroup = tranship_sys::cgroup::limit().unwrap_or(u64::MAX);
    machine.min(cgroup) / 2
}
