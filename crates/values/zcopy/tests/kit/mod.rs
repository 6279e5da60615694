//! Connections, patterns, children.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod hosts;
pub mod line;
pub mod pair;

use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use tranship_sys::map;
use tranship_testkit::Watchdog;
use tranship_zcopy::Way;
use tranship_zcopy::kernel::ring::Ring;

pub const WAYS: [Way; 3] = [Way::Copy, Way::Splice, Way::Notified];

/// Ends a test that hangs.
pub fn dog() -> Watchdog {
    Watchdog::new()
}

/// Fills memory of `alloc_raw`.
///
/// # Safety
/// It is as long as that, and nobody else uses it.
pub unsafe fn fill(at: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: passed on.
    unsafe {
        at.as_ptr()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
}

/// Bytes that tell which value and which place they are of.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

/// The other end receives exactly these bytes, and no more.
pub fn exactly(connection: &pair::Pair, expected: &[u8]) {
    let got = connection.takes(expected.len());
    if let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b) {
        panic!(
            "byte {at} of {} is {} and was sent as {}",
            got.len(),
            got[at],
            expected[at]
        );
    }
}

/// Makes the kernel write 0x77 into the second half of a value; returns how many bytes.
pub fn read_from_file(at: NonNull<u8>, len: usize, from: usize) -> usize {
    let mut file = tempfile();
    file.write_all(&vec![0x77; len - from]).expect("write");
    file.seek(SeekFrom::Start(0)).expect("seek");
    // SAFETY: the value's own bytes; no slice of them is alive.
    let to = unsafe { std::slice::from_raw_parts_mut(at.as_ptr().add(from), len - from) };
    file.read(to)
        .expect("the kernel writes into protected memory")
}

fn tempfile() -> std::fs::File {
    let fd = tranship_sys::memfd::create("test").expect("memfd");
    std::fs::File::from(fd)
}

pub struct Child(libc::pid_t);

/// Runs a closure in a forked child.
pub fn fork(body: impl FnOnce() -> bool) -> Child {
    // SAFETY: the child runs the closure and leaves without returning.
    match unsafe { libc::fork() } {
        0 => {
            let good =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
            // SAFETY: leaves at once.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        pid => {
            assert!(pid > 0, "fork");
            Child(pid)
        }
    }
}

impl Child {
    pub fn succeeds(self) -> bool {
        let mut status = 0;
        // SAFETY: our own child, once.
        let got = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        got == self.0 && status == 0
    }
}

pub fn read_byte(from: &mut impl Read) {
    from.read_exact(&mut [0]).expect("a byte");
}

/// Checks that the kernel sends out of registered memory.
pub fn ring_possible() -> Result<(), String> {
    let mut ring = Ring::new().map_err(|error| format!("no io_uring: {error}"))?;
    let (near, far) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
    let len = 4096;
    let room = map::reserve_private(len, len).expect("a page");
    let pieces = [(room.as_ptr().cast_const(), 10)];
    // SAFETY: our own, and written by nobody; it goes with this process.
    let (sent, _) = unsafe {
        room.as_ptr().write(1);
        ring.register(room, len).expect("a page");
        let to = Some(far.local_addr().expect("an address"));
        ring.send(&near, to, &pieces, None, 0, &mut |_, _| {})
    };
    sent.map_err(|error| format!("no SENDMSG_ZC out of registered memory (Linux 6.15): {error}"))
}

pub fn bound(at: &str) -> UdpSocket {
    UdpSocket::bind(at.parse::<SocketAddr>().expect("an address")).expect("bind")
}

/// Returns whether there is something in the socket's queue of errors.
pub fn has_error(socket: BorrowedFd<'_>) -> bool {
    let mut poll = [rustix::event::PollFd::new(
        &socket,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut poll, Some(&now)).expect("poll");
    poll[0].revents().contains(rustix::event::PollFlags::ERR)
}
