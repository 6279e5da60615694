//! Counters of the processor's own over all threads of a server: cycles, and misses of the last cache (the ZCopy paper's
//! table 1, whose unit they have).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// `PERF_COUNT_HW_CPU_CYCLES` and `PERF_COUNT_HW_CACHE_MISSES`.
const EVENTS: [u64; 2] = [0, 3];
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;
/// Result of a run: misses in a thousand cycles, of program and kernel.
pub const MISSES: &str = "misses_per_kcycle";

/// Counts from its making on.
pub struct Counters([Vec<File>; 2]);

impl Counters {
    /// Of all threads that the process has now.
    pub fn of(pid: u32) -> io::Result<Counters> {
        let mut all = [Vec::new(), Vec::new()];
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let id = thread?
                .file_name()
                .to_string_lossy()
                .parse()
                .map_err(io::Error::other)?;
            for (event, files) in EVENTS.into_iter().zip(&mut all) {
                files.push(open(event, id)?);
            }
        }
        Ok(Counters(all))
    }

    /// Misses in a thousand cycles so far; an error if the counters do not move.
    pub fn read(&mut self) -> io::Result<f64> {
        let mut sums = [0u64; 2];
        for (files, sum) in self.0.iter_mut().zip(&mut sums) {
            for file in files {
                let mut count = [0; 8];
                file.read_exact(&mut count)?;
                *sum += u64::from_ne_bytes(count);
            }
        }
        match sums {
            [0, _] => Err(io::Error::other("the processor's counters do not move")),
            [cycles, misses] => Ok(misses as f64 * 1e3 / cycles as f64),
        }
    }
}

fn open(event: u64, thread: i32) -> io::Result<File> {
    const BYTES: usize = 64;
    // perf_event_attr, its first version: type (hardware), size, config; the rest are zeros.
    let mut attributes = [0u64; BYTES / 8];
    attributes[0] = (BYTES as u64) << 32;
    attributes[1] = event;
    let none = -1;
    // SAFETY: the kernel reads as many bytes as the size in them says.
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            thread,
            none,
            none,
            CLOEXEC,
        )
    };
    match i32::try_from(file) {
        // SAFETY: a fresh descriptor, which nobody else knows.
        Ok(file @ 0..) => Ok(unsafe { File::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}
