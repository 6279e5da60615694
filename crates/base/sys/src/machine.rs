//! The machine's remaining memory. On tmpfs, as in a cgroup, the kernel answers a lack of memory by killing a process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Returns the bytes that are free at once. The call is cheap, but the number is too low if much is cached.
pub fn free_bytes() -> u64 {
    info().map_or(0, |info| {
        let units = u64::from(info.mem_unit);
        (info.freeram.saturating_add(info.freeswap)).saturating_mul(units)
    })
}

/// Returns the bytes that the kernel could still hand out, with caches emptied and swap filled, or `None` if that
/// cannot be known.
///
/// The file is opened at the first question and kept, so that later questions work in a sandbox that was locked
/// meanwhile.
pub fn available_bytes() -> Option<u64> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE
        .get_or_init(|| File::open("/proc/meminfo").ok())
        .as_ref()?;
    let mut text = [0; 4096];
    let len = file.read_at(&mut text, 0).ok()?;
    parse(&String::from_utf8_lossy(&text[..len]))
}

/// Returns the bytes of memory that the machine has, swap not counted.
pub fn memory_total() -> u64 {
    info().map_or(0, |info| {
        info.totalram.saturating_mul(u64::from(info.mem_unit))
    })
}

fn info() -> Option<libc::sysinfo> {
    // SAFETY: all-zero is a valid `sysinfo`, plain integers; the kernel fills it in.
    unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        (libc::sysinfo(&raw mut info) == 0).then_some(info)
    }
}

fn parse(meminfo: &str) -> Option<u64> {
    let kib = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let swap = kib("SwapFree:").unwrap_or(0);
    Some(
        kib("MemAvailable:")?
            .saturating_add(swap)
            .saturating_mul(1024),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_read() {
        let text = "MemTotal: 9 kB\nMemAvailable:      100 kB\nSwapFree:   20 kB\n";
        assert_eq!(super::parse(text), Some(120 * 1024));
        assert_eq!(super::parse("MemTotal: 9 kB\n"), None);
        assert!(super::free_bytes() > 0 && super::memory_total() > super::free_bytes() / 2);
        assert!(super::available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
