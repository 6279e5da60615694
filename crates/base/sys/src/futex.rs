//! Futexes: shared ones, and those of one process ([`private`]).
//!
//! Any process that can read a shared word can queue as many waiters on it as it likes. The kernel goes through all of
//! them on behalf of the process that wakes. [`wake_some`] bounds this work, for words that another domain can read.
//!
//! All functions are safe: the kernel only reads the word, and answers `EFAULT` for an address that is not mapped. The
//! functions work on read-only mappings.

use rustix::io::Errno;
use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Most waiters that one [`wake_some`] wakes.
pub const WAKE_MOST: u32 = 16;

/// Most words that [`waitv`] takes at once.
pub const WAITV_MAX: usize = 128;

/// The reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// Another thread woke this one, or the kernel woke it without a reason: read the words again.
    Woken,
    /// The time is over.
    Timeout,
    /// The word did not hold the expected value to begin with.
    Changed,
    /// A signal handler ran.
    Interrupted,
}

fn outcome(result: Result<usize, Errno>) -> io::Result<Woken> {
    match result {
        Ok(_) => Ok(Woken::Woken),
        Err(Errno::TIMEDOUT) => Ok(Woken::Timeout),
        Err(Errno::AGAIN) => Ok(Woken::Changed),
        Err(Errno::INTR) => Ok(Woken::Interrupted),
        Err(error) => Err(error.into()),
    }
}

fn timespec(duration: Duration) -> rustix::time::Timespec {
    rustix::time::Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Sleeps while `*word == expected`, at most `timeout`.
pub fn wait(word: *const AtomicU32, expected: u32, timeout: Option<Duration>) -> io::Result<Woken> {
    wait_as(libc::FUTEX_WAIT, word, expected, timeout)
}

fn wait_as(
    operation: libc::c_int,
    word: *const AtomicU32,
    expected: u32,
    timeout: Option<Duration>,
) -> io::Result<Woken> {
    let timeout = timeout.map(timespec);
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: FUTEX_WAIT reads the word through the kernel's checked access and never writes it; `timeout` is
    // null or points to a local.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.expose_provenance(),
            operation,
            expected,
            timeout.cast::<libc::c_void>(),
            std::ptr::null::<u32>(),
            0u32,
        )
    };
    outcome(from_libc(result))
}

/// Wakes at most `n` sleepers; returns their number.
pub fn wake(word: *const AtomicU32, n: u32) -> io::Result<usize> {
    wake_as(libc::FUTEX_WAKE, word, n)
}

/// Wakes at most [`WAKE_MOST`] sleepers, for a word that another domain can read.
///
/// The oldest sleepers are woken first, and the other domain may have queued more waiters before them. A sleeper that
/// must be woken in time therefore has two ways. It sleeps on a word on which only its own domain has a reason to
/// sleep, or it looks again by itself.
pub fn wake_some(word: *const AtomicU32) -> io::Result<usize> {
    wake(word, WAKE_MOST)
}

/// Futexes on words on which only threads of this process sleep. Their queues are not in the table that all processes
/// share (Linux 6.16 and later), so other processes' waiters do not stand in them.
pub mod private {
    use super::{AtomicU32, Duration, Woken, io, wait_as, wake_as};

    /// Sleeps while `*word == expected`, at most `timeout`. Woken by [`wake`] of this module alone.
    pub fn wait(
        word: *const AtomicU32,
        expected: u32,
        timeout: Option<Duration>,
    ) -> io::Result<Woken> {
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        wait_as(operation, word, expected, timeout)
    }

    /// Wakes at most `n` sleepers; returns their number.
    pub fn wake(word: *const AtomicU32, n: u32) -> io::Result<usize> {
        wake_as(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, word, n)
    }
}

fn wake_as(operation: libc::c_int, word: *const AtomicU32, n: u32) -> io::Result<usize> {
    // The kernel takes a signed count.
    let n = n.min(i32::MAX.unsigned_abs());
    // SAFETY: FUTEX_WAKE only looks the address up.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.expose_provenance(), operation, n) };
    Ok(from_libc(result)?)
}

/// Sleeps while every word holds its expected value, at most `timeout`.
///
/// At most [`WAITV_MAX`] words. [`Woken::Woken`] does not say which word it was: check all of them.
pub fn waitv(words: &[(*const AtomicU32, u32)], timeout: Option<Duration>) -> io::Result<Woken> {
    if words.is_empty() || words.len() > WAITV_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "futex_waitv takes 1 to 128 words",
        ));
    }
    let mut waits = [WaitOne::default(); WAITV_MAX];
    for (wait, (word, expected)) in waits.iter_mut().zip(words) {
        wait.value = u64::from(*expected);
        // The kernel takes addresses as integers here.
        wait.address = word.expose_provenance() as u64;
        wait.flags = FUTEX2_SIZE_U32;
    }
    // The kernel takes a point in time here, not a duration.
    let deadline = timeout.map(|timeout| {
        timespec(Duration::from_nanos(crate::time::monotonic_ns()).saturating_add(timeout))
    });
    let deadline = deadline
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads `words.len()` entries of `waits`, the words through its checked access, and the
    // deadline, which is null or a local; it writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waits.as_ptr(),
            words.len(),
            0u32,
            deadline,
            libc::CLOCK_MONOTONIC,
        )
    };
    outcome(from_libc(result))
}

/// `struct futex_waitv`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct WaitOne {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Size of the word; neither PRIVATE nor NUMA: shared between processes.
const FUTEX2_SIZE_U32: u32 = 2;

fn from_libc(result: libc::c_long) -> Result<usize, Errno> {
    match usize::try_from(result) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{map, memfd};
    use std::sync::atomic::Ordering::SeqCst;

    /// Maps a word through a writable and a read-only mapping.
    fn two_views() -> (&'static AtomicU32, *const AtomicU32) {
        let page = crate::page_size();
        let fd = memfd::create("futex").expect("memfd");
        memfd::fallocate(&fd, page as u64).expect("fallocate");
        let rw = map::map_shared_rw(&fd, page, 0).expect("map");
        let ro = map::map_shared(&fd, map::Access::Read, page, 0).expect("map");
        // SAFETY: mapped for ever, aligned, only used atomically.
        (unsafe { rw.cast().as_ref() }, ro.cast().as_ptr())
    }

    #[test]
    fn a_changed_word_does_not_sleep_and_a_timeout_ends() {
        let (word, ro) = two_views();
        assert_eq!(wait(ro, 1, None).expect("wait"), Woken::Changed);
        assert_eq!(waitv(&[(ro, 1)], None).expect("waitv"), Woken::Changed);
        let short = Some(Duration::from_millis(1));
        assert_eq!(wait(ro, 0, short).expect("wait"), Woken::Timeout);
        assert_eq!(
            waitv(&[(ro, 0), (word, 0)], short).expect("waitv"),
            Woken::Timeout
        );
    }

    #[test]
    fn a_waker_reaches_a_sleeper_on_a_read_only_mapping() {
        for many in [false, true] {
            let (word, ro) = two_views();
            let ro = ro.expose_provenance();
            let sleeper = std::thread::spawn(move || {
                let ro = std::ptr::with_exposed_provenance(ro);
                loop {
                    let result = match many {
                        false => wait(ro, 0, None),
                        true => waitv(&[(ro, 0)], None),
                    };
                    match result.expect("wait") {
                        Woken::Interrupted => {}
                        other => return other,
                    }
                }
            });
            // Wake until the thread sleeps, so that the answer is certainly Woken.
            while wake(word, 1).expect("wake") == 0 {
                std::thread::yield_now();
            }
            word.store(1, SeqCst);
            assert_eq!(sleeper.join().expect("sleeper"), Woken::Woken);
        }
    }

    /// Another process's waiters may be the oldest, and any number.
    #[test]
    fn of_many_sleepers_some_are_woken() {
        const SLEEPERS: usize = 24;
        let (word, ro) = two_views();
        let ro = ro.expose_provenance();
        let asleep = AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..SLEEPERS {
                s.spawn(|| {
                    let ro = std::ptr::with_exposed_provenance(ro);
                    asleep.fetch_add(1, SeqCst);
                    while wait(ro, 0, None).expect("wait") == Woken::Interrupted {}
                });
            }
            while asleep.load(SeqCst) < 24 {
                std::thread::yield_now();
            }
            let mut woken = 0;
            while woken < SLEEPERS {
                let some = wake_some(word).expect("wake");
                assert!(some <= WAKE_MOST as usize, "{some} at once");
                woken += some;
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_private_word_is_woken_privately() {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let sleeper = std::thread::spawn(|| {
            while private::wait(word, 0, None).expect("wait") == Woken::Interrupted {}
        });
        while private::wake(word, 1).expect("wake") == 0 {
            std::thread::yield_now();
        }
        sleeper.join().expect("sleeper");
    }

    #[test]
    fn wrong_addresses_are_errors() {
        let nowhere = std::ptr::without_provenance(8);
        assert!(wait(nowhere, 0, None).is_err());
        assert!(waitv(&[(nowhere, 0)], None).is_err());
        assert!(waitv(&[], None).is_err());
    }
}
