//! Waiters by the thousand: each is a request of io_uring, and no thread.
//!
//! Reading a futex word is enough to wait on it (Linux 6.7). A waker that wakes all waiters walks all of them.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

const SETUP_CQSIZE: u32 = 8;
const SETUP_CLAMP: u32 = 16;
const ENTER_GETEVENTS: u32 = 1;
const FUTEX_WAIT: u64 = 51;
const POLL: u64 = 6;
/// `FUTEX2_SIZE_U32`: neither private nor of one node.
const SHARED_U32: u64 = 2;
const ENTRIES: u32 = 4096;
const SUBMISSIONS: libc::off_t = 0x1000_0000;

/// Waiters that one process has queued. They are gone when it ends, or when this is dropped.
#[derive(Debug)]
pub struct Hoard {
    fd: i32,
    params: [u32; 30],
    rings: (usize, usize),
    entries: (usize, usize),
    waiting: usize,
}

impl Hoard {
    /// Creates an empty hoard.
    ///
    /// # Errors
    /// Where there is no io_uring, or it is forbidden.
    pub fn new() -> io::Result<Self> {
        let mut params = [0u32; 30];
        // Completions that do not fit are kept by the kernel.
        params[1] = 4 * ENTRIES;
        params[2] = SETUP_CQSIZE | SETUP_CLAMP;
        // SAFETY: the kernel writes `struct io_uring_params`, of 120 bytes, into a local.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, params.as_mut_ptr()) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let map = |len: usize, offset| {
            // SAFETY: a new mapping of a descriptor of our own.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    fd,
                    offset,
                )
            };
            match at {
                libc::MAP_FAILED => Err(io::Error::last_os_error()),
                at => Ok((at.expose_provenance(), len)),
            }
        };
        // Offsets: submissions from word 10 on (head, tail, mask, entries, flags, dropped, array), completions from
        // word 20 on (head, tail, mask, entries, overflow, cqes).
        let submissions = params[16] as usize + 4 * params[0] as usize;
        let completions = params[25] as usize + 16 * params[1] as usize;
        let rings = map(submissions.max(completions), 0)?;
        let entries = map(64 * params[0] as usize, SUBMISSIONS)?;
        Ok(Self {
            fd,
            params,
            rings,
            entries,
            waiting: 0,
        })
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: offsets that the kernel gave, inside the mapping, which lives as long.
        unsafe {
            AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(
                self.rings.0 + offset as usize,
            ))
        }
    }

    fn enter(&self, submit: u32) -> io::Result<u32> {
        // SAFETY: no argument points anywhere.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd,
                submit,
                0,
                ENTER_GETEVENTS,
                std::ptr::null::<u8>(),
                0,
            )
        };
        u32::try_from(done).map_err(|_| io::Error::last_os_error())
    }

    /// Adds that many waiters, as long as the word has the value that was seen.
    ///
    /// # Errors
    /// Where the kernel knows no such request (`EINVAL`), or has no memory for it.
    pub fn wait_on(&mut self, word: *const AtomicU32, seen: u32, count: usize) -> io::Result<()> {
        let at = word.expose_provenance() as u64;
        let all = u64::from(u32::MAX);
        let request = [
            FUTEX_WAIT | SHARED_U32 << 32,
            seen.into(),
            at,
            0,
            0,
            0,
            all,
            0,
        ];
        self.queue(request, count)
    }

    /// Adds that many waiters for a descriptor to be readable.
    ///
    /// # Errors
    /// When it cannot be waited for, or there is no memory.
    pub fn poll(&mut self, fd: BorrowedFd<'_>, count: usize) -> io::Result<()> {
        let fd = u64::from(fd.as_raw_fd().cast_unsigned());
        let readable = u64::from(libc::POLLIN.cast_unsigned());
        self.queue([POLL | fd << 32, 0, 0, readable << 32, 0, 0, 0, 0], count)
    }

    fn queue(&mut self, request: [u64; 8], count: usize) -> io::Result<()> {
        let before = self.waiting;
        while self.waiting < before + count {
            let now = (before + count - self.waiting).min(self.params[0] as usize);
            let mask = self.params[0] - 1;
            let tail = self.word(self.params[11]);
            let first = tail.load(Ordering::Relaxed);
            let many = u32::try_from(now).unwrap_or(0);
            for i in 0..many {
                let at = first.wrapping_add(i) & mask;
                // SAFETY: one of the entries that are mapped, and free: all that were submitted before have been taken.
                unsafe {
                    std::ptr::with_exposed_provenance_mut::<[u64; 8]>(self.entries.0)
                        .add(at as usize)
                        .write_volatile(request);
                }
                self.word(self.params[16] + 4 * at)
                    .store(at, Ordering::Relaxed);
            }
            // Ordering: release; partner: the kernel's acquire of the tail before it takes entries.
            tail.store(first.wrapping_add(many), Ordering::Release);
            let mut left = many;
            while left > 0 {
                left -= self.enter(left)?;
            }
            self.waiting += now;
            // A waiting request completes nothing; a refused one completes at once.
            if let (_, Some(errno)) = self.take() {
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        Ok(())
    }

    /// Returns how many were woken since the last time.
    ///
    /// # Errors
    /// As io_uring_enter(2).
    pub fn woken(&mut self) -> io::Result<usize> {
        let mut all = 0;
        loop {
            self.enter(0)?;
            match self.take().0 {
                0 => return Ok(all),
                some => all += some,
            }
        }
    }

    /// Returns how many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes the completed requests: how many were woken, and why one was not queued.
    fn take(&mut self) -> (usize, Option<i32>) {
        let (mut woken, mut refused) = (0, None);
        let head = self.word(self.params[20]).load(Ordering::Relaxed);
        let tail = self.word(self.params[21]).load(Ordering::Acquire);
        let mut at = head;
        while at != tail {
            let place = self.params[25] + 16 * (at & (self.params[1] - 1)) + 8;
            match self.word(place).load(Ordering::Relaxed).cast_signed() {
                error if error < 0 => refused = Some(-error),
                _ => woken += 1,
            }
            self.waiting -= 1;
            at = at.wrapping_add(1);
        }
        self.word(self.params[20]).store(tail, Ordering::Release);
        (woken, refused)
    }
}

impl Drop for Hoard {
    fn drop(&mut self) {
        // SAFETY: our own mappings and descriptor; nothing refers to them any more.
        unsafe {
            libc::munmap(
                std::ptr::with_exposed_provenance_mut(self.rings.0),
                self.rings.1,
            );
            libc::munmap(
                std::ptr::with_exposed_provenance_mut(self.entries.0),
                self.entries.1,
            );
            libc::close(self.fd);
        }
    }
}
