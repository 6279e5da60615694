//! `zc-fault`: what keeps the bytes of a page as they were sent when the program writes the page: three mechanisms, of which ZCopy has
//! the first. The two others live here alone, to be compared with.
//!
//! - `private-view`: the pageblock is mapped anew, privately; the kernel copies a page when it is written.
//! - `mprotect`: the pageblock is made read only. A handler of SIGSEGV takes the page's bytes, has the file give it a fresh page
//!   (a hole), puts the bytes there and makes the page writable.
//! - `uffd-wp`: the same with userfaultfd(2)'s write protection and SIGBUS.
//!
//! `protect` is the time for one pageblock of 16 pages when so many in a row are protected in one go, `write` that of the first
//! write to a protected page. `kernel_writes`: can the kernel write there (read(2) into a value that was sent)? `mappings` is how many
//! more the process has for each pageblock when every second one is protected; vm.max_map_count allows 65530.
//! With two threads the other one runs all the time, so that its processor must be told of each change.

use crate::clock;
use crate::options::Common;
use crate::party::{self, Member};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Facts, Measured, Samples};
use anyhow::{Context, Result, ensure};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tranship_sys::map::{self, Access, Sharing};
use tranship_sys::memfd;

/// What can be named.
pub const SYSTEMS: [&str; 3] = ["private-view", "mprotect", "uffd-wp"];
const PAGE: usize = 4096;
const BLOCK: usize = 16 * PAGE;
/// Rows that are numbers of their own, not times.
const KERNEL: &str = "kernel writes";
const MAPPINGS: &str = "mappings";

pub fn bench(common: &Common, blocks: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    for threads in [1, 2] {
        for count in common.some_of(blocks) {
            let wanted = SYSTEMS.iter().filter(|name| common.wants(name));
            let cells = wanted.map(|system| Cell {
                system,
                key: Key {
                    mode: "block",
                    buffers: Some(count),
                    threads: Some(threads),
                    ..Key::default()
                },
                measure: Box::new(move |number| {
                    let cores = common.cores();
                    let budget = common.budget();
                    run(number, cores, system, count, threads, budget)
                }),
            });
            outcome.group(common.runs_or(9), wanted_cells(cells));
        }
    }
    outcome
}

fn wanted_cells<'a>(cells: impl Iterator<Item = Cell<'a>>) -> Vec<Cell<'a>> {
    let there = |cell: &Cell<'_>| {
        let missing = (cell.system == "uffd-wp")
            .then(|| userfaultfd().err())
            .flatten();
        if let Some(error) = &missing {
            eprintln!("SKIPPED: zc-fault uffd-wp: userfaultfd(2): {error}");
        }
        missing.is_none()
    };
    cells.filter(there).collect()
}

fn run(
    number: u64,
    cores: [usize; 2],
    system: &'static str,
    count: usize,
    threads: usize,
    budget: Duration,
) -> Result<Vec<Measured>> {
    let members = vec![Member {
        core: cores[0],
        body: Box::new(move |_| {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                if threads == 2 {
                    scope.spawn(|| {
                        // Where it runs matters; without a second core it is as with one thread.
                        let _ = party::pin(cores[1]);
                        while !stop.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
                let measured = measure(system, count, budget);
                stop.store(true, Ordering::Relaxed);
                measured
            })
        }),
    }];
    let mut results = party::run(number, members)?.into_iter();
    let mut rows = results.next().context("no process")?;
    let mut facts = Facts::new();
    rows.retain(|row| match row.op.as_str() {
        KERNEL => facts.insert("kernel_writes", row.median_ns).is_some(),
        MAPPINGS => facts.insert("mappings", row.median_ns).is_some(),
        _ => true,
    });
    for row in &mut rows {
        row.facts = facts.clone();
    }
    Ok(rows)
}

/// Memory in a file, mapped twice: where the program writes, and where the handlers put bytes back.
struct Memory {
    file: OwnedFd,
    window: NonNull<u8>,
    back: NonNull<u8>,
    len: usize,
    system: &'static str,
}

// What the handlers need; they run in the thread that writes.
static WINDOW: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static BACK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);
static FILE: AtomicI32 = AtomicI32::new(-1);
static UFFD: AtomicI32 = AtomicI32::new(-1);
/// Where the bytes of the page that is exchanged are put meanwhile.
static ASIDE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

fn measure(system: &'static str, count: usize, budget: Duration) -> Result<Vec<Measured>> {
    let memory = Memory::new(system, count)?;
    memory.check()?;
    let kernel = memory.kernel_writes()?;
    let mappings = memory.mappings()?;
    let mut protects = Samples::new(1 << 16, u32::try_from(count)?);
    let mut writes = Samples::new(1 << 18, 1);
    let begun = Instant::now();
    while begun.elapsed() < budget {
        memory.fill(1);
        let now = clock::ticks();
        memory.protect(0, count)?;
        if !protects.push(clock::ticks() - now) {
            break;
        }
        for block in 0..count {
            for page in [0, 5, 10, 15] {
                let at = block * BLOCK + page * PAGE;
                let now = clock::ticks();
                memory.write(at, 2);
                let room = writes.push(clock::ticks() - now);
                ensure!(
                    memory.read(at) == 2,
                    "the writer does not see what it wrote"
                );
                if !room {
                    break;
                }
            }
        }
        memory.renew()?;
    }
    let number = |op: &str, value: f64| Measured {
        op: op.to_owned(),
        median_ns: value,
        p99_ns: 0.0,
        per_second: 0.0,
        facts: Facts::new(),
        sampled: None,
    };
    Ok(vec![
        protects.finish("protect").context("no sample")?,
        writes.finish("write").context("no sample")?,
        number(KERNEL, f64::from(u8::from(kernel))),
        number(MAPPINGS, mappings),
    ])
}

impl Memory {
    fn new(system: &'static str, count: usize) -> Result<Memory> {
        // Twice as many, so that every second one can be protected.
        let len = 2 * count.max(16) * BLOCK;
        let file = memfd::create("zc-fault")?;
        memfd::set_len(&file, len as u64)?;
        let (window, back) = (map::reserve(len, BLOCK)?, map::reserve(len, BLOCK)?);
        for at in [window, back] {
            // SAFETY: a reservation of our own that nobody knows yet.
            unsafe { map::map_inherited(at, &file, Access::ReadWrite, Sharing::Shared, len, 0)? };
        }
        WINDOW.store(window.as_ptr(), Ordering::Relaxed);
        BACK.store(back.as_ptr(), Ordering::Relaxed);
        LEN.store(len, Ordering::Relaxed);
        FILE.store(file.as_raw_fd(), Ordering::Relaxed);
        ASIDE.store(
            Box::leak(Box::new([0u8; PAGE])).as_mut_ptr(),
            Ordering::Relaxed,
        );
        let memory = Memory {
            file,
            window,
            back,
            len,
            system,
        };
        match system {
            "mprotect" => handle(libc::SIGSEGV)?,
            "uffd-wp" => {
                let uffd = userfaultfd()?;
                let mut register = [window.as_ptr() as u64, len as u64, REGISTER_WP, 0];
                control(&uffd, UFFDIO_REGISTER, &mut register)?;
                UFFD.store(uffd.as_raw_fd(), Ordering::Relaxed);
                std::mem::forget(uffd);
                handle(libc::SIGBUS)?;
            }
            _ => {}
        }
        memory.fill(1);
        Ok(memory)
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: inside the window.
        unsafe { self.window.add(offset) }
    }

    fn write(&self, offset: usize, byte: u8) {
        // SAFETY: mapped memory that only this thread uses; volatile, as a handler may run in between.
        unsafe { self.at(offset).write_volatile(byte) };
    }

    fn read(&self, offset: usize) -> u8 {
        // SAFETY: as above.
        unsafe { self.at(offset).read_volatile() }
    }

    fn fill(&self, byte: u8) {
        for offset in (0..self.len).step_by(PAGE) {
            self.write(offset, byte);
        }
    }

    /// Protects blocks in a row.
    fn protect(&self, first: usize, count: usize) -> io::Result<()> {
        let (offset, len) = (first * BLOCK, count * BLOCK);
        let at = self.at(offset);
        // SAFETY: our own window; the bytes stay the same at the same addresses.
        unsafe {
            match self.system {
                "private-view" => map::map_inherited(
                    at,
                    &self.file,
                    Access::ReadWrite,
                    Sharing::Private,
                    len,
                    offset as u64,
                ),
                "mprotect" => map::protect(at, len, Access::Read),
                _ => write_protect(at.as_ptr(), len, true),
            }
        }
    }

    /// As at first.
    fn renew(&self) -> io::Result<()> {
        // SAFETY: our own window.
        unsafe {
            match self.system {
                "private-view" => {
                    memfd::punch(&self.file, 0, self.len as u64)?;
                    let access = Access::ReadWrite;
                    map::map_inherited(
                        self.window,
                        &self.file,
                        access,
                        Sharing::Shared,
                        self.len,
                        0,
                    )
                }
                "mprotect" => map::protect(self.window, self.len, Access::ReadWrite),
                _ => write_protect(self.window.as_ptr(), self.len, false),
            }
        }
    }

    /// Bytes under way stay, the writer sees his own: else there is nothing to compare.
    fn check(&self) -> Result<()> {
        for offset in 0..BLOCK {
            self.write(offset, 7);
        }
        self.protect(0, 1)?;
        let (read, write) = tranship_sys::pipe::nonblocking()?;
        // SAFETY: the file's page, which never changes again if the mechanism works.
        let sent = unsafe {
            let page = self.back.add(3 * PAGE).as_ptr().cast_const();
            tranship_sys::pipe::vmsplice(&write, &[(page, PAGE)])?
        };
        ensure!(sent == PAGE, "the pipe took {sent} bytes");
        self.write(3 * PAGE, 8);
        self.write(3 * PAGE + 1, 9);
        let mut got = [0; PAGE];
        let count = rustix::io::read(&read, &mut got)?;
        ensure!(
            count == PAGE && got == [7; PAGE],
            "{}: what was under way changed",
            self.system
        );
        let seen = [0, 1, 2, PAGE].map(|byte| self.read(3 * PAGE + byte));
        ensure!(
            seen == [8, 9, 7, 7],
            "{}: the writer sees {seen:?}",
            self.system
        );
        Ok(self.renew()?)
    }

    /// Can read(2) put bytes into a page that is protected?
    fn kernel_writes(&self) -> Result<bool> {
        self.fill(1);
        self.protect(0, 1)?;
        let zeros = std::fs::File::open("/dev/zero")?;
        // SAFETY: a page of ours, of which there is no reference.
        let got = unsafe { libc::read(zeros.as_raw_fd(), self.at(0).as_ptr().cast(), 100) };
        self.renew()?;
        Ok(got == 100)
    }

    /// Mappings more for each block, if every second one is protected.
    fn mappings(&self) -> Result<f64> {
        let count =
            || -> Result<usize> { Ok(std::fs::read_to_string("/proc/self/maps")?.lines().count()) };
        let before = count()?;
        let blocks = self.len / BLOCK / 2;
        for number in 0..blocks {
            self.protect(2 * number, 1)?;
        }
        let after = count()?;
        self.renew()?;
        Ok(after.saturating_sub(before) as f64 / blocks as f64)
    }
}

fn handle(signal: libc::c_int) -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = exchange;
    // SAFETY: all zeros is a valid action; the handler only makes system calls and copies bytes.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives the file a fresh page with the same bytes, and makes it writable.
extern "C" fn exchange(signal: libc::c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's own.
    let at = unsafe { (*about).si_addr() }.addr();
    let window = WINDOW.load(Ordering::Relaxed);
    let Some(offset) = at
        .checked_sub(window.addr())
        .filter(|offset| *offset < LEN.load(Ordering::Relaxed))
    else {
        // SAFETY: leaves at once.
        unsafe { libc::_exit(70) }
    };
    let offset = offset / PAGE * PAGE;
    // SAFETY: a page of the mappings that `Memory` made, used by the thread that was interrupted alone.
    let done = unsafe {
        let page = window.add(offset);
        let back = BACK.load(Ordering::Relaxed).add(offset);
        let aside = ASIDE.load(Ordering::Relaxed);
        aside.copy_from_nonoverlapping(back, PAGE);
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let hole = libc::fallocate(
            FILE.load(Ordering::Relaxed),
            flags,
            libc::off_t::try_from(offset).unwrap_or(0),
            PAGE as libc::off_t,
        );
        back.copy_from_nonoverlapping(aside, PAGE);
        let writable = if signal == libc::SIGSEGV {
            libc::mprotect(page.cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE) == 0
        } else {
            write_protect(page, PAGE, false).is_ok()
        };
        hole == 0 && writable
    };
    if !done {
        // SAFETY: leaves at once.
        unsafe { libc::_exit(71) }
    }
}

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const REGISTER_WP: u64 = 1 << 1;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_WP_SHMEM: u64 = 1 << 12;
const USER_MODE_ONLY: libc::c_long = 1;

fn userfaultfd() -> io::Result<OwnedFd> {
    let flags = libc::c_long::from(libc::O_CLOEXEC) | USER_MODE_ONLY;
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let fd = libc::c_int::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(io::Error::last_os_error)?;
    // SAFETY: just made, and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    control(
        &fd,
        UFFDIO_API,
        &mut [0xaa, FEATURE_SIGBUS | FEATURE_WP_SHMEM, 0],
    )?;
    Ok(fd)
}

fn control<const N: usize>(
    fd: &OwnedFd,
    what: libc::c_ulong,
    words: &mut [u64; N],
) -> io::Result<()> {
    // SAFETY: the structures of these three are so many words.
    match unsafe { libc::ioctl(fd.as_raw_fd(), what, words.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
/// The range is registered.
unsafe fn write_protect(at: *mut u8, len: usize, on: bool) -> io::Result<()> {
    let mut words = [at as u64, len as u64, u64::from(on)];
    let uffd = UFFD.load(Ordering::Relaxed);
    // SAFETY: `struct uffdio_writeprotect` is three words.
    match unsafe { libc::ioctl(uffd, UFFDIO_WRITEPROTECT, words.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
