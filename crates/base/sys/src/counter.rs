//! The processor's event counters (perf_event_open(2)), if the machine gives programs access to them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, RawFd};

/// A kind of event to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Instructions.
    Instructions,
    /// Clock ticks.
    Cycles,
    /// Misses of the last cache.
    CacheMisses,
}

/// `struct perf_event_attr`, as far as its first version goes (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);
const HARDWARE: u32 = 0;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// A counter of this thread's events, in the program and in the kernel, from its making on.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// Begins to count. Fails if the processor, the virtual machine or the kernel's settings (`perf_event_paranoid`)
    /// give no program access.
    pub fn new(event: Event) -> io::Result<Counter> {
        let attributes = Attributes {
            kind: HARDWARE,
            size: 64,
            config: match event {
                Event::Cycles => 0,
                Event::Instructions => 1,
                Event::CacheMisses => 3,
            },
            flags: EXCLUDE_HYPERVISOR,
            ..Attributes::default()
        };
        const CLOEXEC: libc::c_ulong = 1 << 3;
        // SAFETY: the kernel reads as many bytes as `size` says. This thread, on any processor, in no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0,
                -1,
                -1,
                CLOEXEC,
            )
        };
        let fd = RawFd::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and not owned elsewhere.
        let mut counter = Counter(unsafe { File::from_raw_fd(fd) });
        // A missing event may be found out only here.
        counter.read()?;
        Ok(counter)
    }

    /// Returns the count so far.
    pub fn read(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_or_it_is_an_error() {
        let Ok(mut counter) = Counter::new(Event::Instructions) else {
            return;
        };
        let before = counter.read().expect("a count");
        let mut sum = 1u64;
        for n in 0..10_000u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31) ^ n);
        }
        let more = counter.read().expect("a count") - before;
        assert!(more > 10_000, "{more} instructions for {sum}");
    }
}
