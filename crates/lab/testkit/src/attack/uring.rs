//! io_uring as the pen, with a ring made by hand (one request at a time).

use super::writes::evil_pipe;
use super::{MAP_SHARED, Outcome, PAGE, PROT_RW, Target, address, ask, attacks, evil, open, sc};

attacks! {
    Unsealed { uring_write, uring_write_fixed_file, uring_fallocate_punch, uring_ftruncate, uring_splice }
    Writable { uring_read_into, uring_registered_buffer, uring_recv_into }
}

const READ: u8 = 22;
const WRITE: u8 = 23;
const FALLOCATE: u8 = 17;
const RECV: u8 = 27;
const SPLICE: u8 = 30;
const FTRUNCATE: u8 = 55;
const READ_FIXED: u8 = 4;
const FIXED_FILE: u8 = 1;

struct Ring {
    fd: usize,
    rings: usize,
    entries: usize,
    params: [u32; 30],
}

#[derive(Clone, Copy, Default)]
struct Request {
    operation: u8,
    flags: u8,
    fd: usize,
    offset: u64,
    address: u64,
    len: u32,
    more: u32,
    /// Word 4 (buffer index and personality) and word 5 (the other descriptor of a splice).
    index: u32,
    other: u32,
}

impl Ring {
    fn new() -> Result<Self, i32> {
        let mut params = [0u32; 30];
        let fd = sc(
            libc::SYS_io_uring_setup,
            &[4, super::address_mut(&mut params)],
        )?;
        let populate = 0x8000;
        let rings = sc(
            libc::SYS_mmap,
            &[0, PAGE, PROT_RW, MAP_SHARED | populate, fd, 0],
        )?;
        let entries = sc(
            libc::SYS_mmap,
            &[0, PAGE, PROT_RW, MAP_SHARED | populate, fd, 0x1000_0000],
        )?;
        Ok(Self {
            fd,
            rings,
            entries,
            params,
        })
    }

    fn word(&self, offset: u32) -> *mut u32 {
        std::ptr::with_exposed_provenance_mut(self.rings + offset as usize)
    }

    /// Makes one request, and returns its result.
    fn ask(&self, r: Request) -> Outcome {
        let entry = [
            u64::from(r.operation) | u64::from(r.flags) << 8 | (r.fd as u64) << 32,
            r.offset,
            r.address,
            u64::from(r.len) | u64::from(r.more) << 32,
            7,
            u64::from(r.index) | u64::from(r.other) << 32,
            0,
            0,
        ];
        // Offsets of the rings: submission head, tail, mask, entries, flags, dropped, array from word 10 on;
        // completion head, tail, mask, entries, overflow, cqes from word 20 on.
        let (tail, array) = (self.params[11], self.params[16]);
        let (seen, events) = (self.params[20], self.params[25]);
        // SAFETY: the two mappings of the ring, at least a page each, with offsets that the kernel gave for 4
        // entries; nobody else uses this ring.
        unsafe {
            std::ptr::with_exposed_provenance_mut::<[u64; 8]>(self.entries).write_volatile(entry);
            self.word(array).write_volatile(0);
            let next = self.word(tail).read_volatile().wrapping_add(1);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            self.word(tail).write_volatile(next);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if let Err(e) = sc(libc::SYS_io_uring_enter, &[self.fd, 1, 1, 1, 0, 0]) {
                return Outcome::Errno(e);
            }
            let index = self.word(seen).read_volatile() % 8;
            let result = self
                .word(events + index * 16 + 8)
                .cast::<i32>()
                .read_volatile();
            if result < 0 {
                Outcome::Errno(-result)
            } else {
                Outcome::Succeeded
            }
        }
    }
}

const LEN: u32 = 4096;

fn uring_write(t: &Target) -> Outcome {
    let (ring, bytes) = (ask!(Ring::new()), evil());
    let address = address(&bytes) as u64;
    ring.ask(Request {
        operation: WRITE,
        fd: ask!(t.fd()),
        address,
        len: LEN,
        ..Request::default()
    })
}

fn uring_write_fixed_file(t: &Target) -> Outcome {
    let (ring, bytes) = (ask!(Ring::new()), evil());
    let files = [t.fd.unwrap_or(-1)];
    ask!(t.fd());
    ask!(sc(
        libc::SYS_io_uring_register,
        &[ring.fd, 2, address(&files), 1]
    ));
    let address = address(&bytes) as u64;
    ring.ask(Request {
        operation: WRITE,
        flags: FIXED_FILE,
        fd: 0,
        address,
        len: LEN,
        ..Request::default()
    })
}

fn uring_fallocate_punch(t: &Target) -> Outcome {
    let ring = ask!(Ring::new());
    // The length of fallocate lies in the address, the mode in the length.
    let r = Request {
        operation: FALLOCATE,
        fd: ask!(t.fd()),
        address: PAGE as u64,
        len: 3,
        ..Request::default()
    };
    ring.ask(r)
}

fn uring_ftruncate(t: &Target) -> Outcome {
    let ring = ask!(Ring::new());
    ring.ask(Request {
        operation: FTRUNCATE,
        fd: ask!(t.fd()),
        offset: 0,
        ..Request::default()
    })
}

fn uring_splice(t: &Target) -> Outcome {
    let ring = ask!(Ring::new());
    let from = u32::try_from(ask!(evil_pipe())).unwrap_or(0);
    let no_offset = u64::MAX;
    let r = Request {
        operation: SPLICE,
        fd: ask!(t.fd()),
        address: no_offset,
        len: LEN,
        other: from,
        ..Request::default()
    };
    ring.ask(r)
}

fn uring_read_into(t: &Target) -> Outcome {
    let ring = ask!(Ring::new());
    let exe = ask!(open("/proc/self/exe", libc::O_RDONLY));
    let address = ask!(t.map()).0 as u64;
    ring.ask(Request {
        operation: READ,
        fd: exe,
        address,
        len: LEN,
        ..Request::default()
    })
}

fn uring_registered_buffer(t: &Target) -> Outcome {
    let ring = ask!(Ring::new());
    let at = ask!(t.map()).0;
    let iov = [at, PAGE];
    ask!(sc(
        libc::SYS_io_uring_register,
        &[ring.fd, 0, address(&iov), 1]
    ));
    let exe = ask!(open("/proc/self/exe", libc::O_RDONLY));
    ring.ask(Request {
        operation: READ_FIXED,
        fd: exe,
        address: at as u64,
        len: LEN,
        ..Request::default()
    })
}

fn uring_recv_into(t: &Target) -> Outcome {
    let ring = ask!(Ring::new());
    let mut ends = [0u32; 2];
    ask!(sc(
        libc::SYS_socketpair,
        &[1, 1, 0, super::address_mut(&mut ends)]
    ));
    let bytes = evil();
    ask!(sc(
        libc::SYS_write,
        &[ends[0] as usize, address(&bytes), PAGE]
    ));
    let address = ask!(t.map()).0 as u64;
    ring.ask(Request {
        operation: RECV,
        fd: ends[1] as usize,
        address,
        len: LEN,
        ..Request::default()
    })
}
