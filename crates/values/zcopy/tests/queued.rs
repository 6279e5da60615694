//! Data that waits in the kernel because it is unread never changes. This holds on each way, whatever is written, read,
//! received, freed, allocated or forked meanwhile. A thread that writes sees its own bytes.

mod kit;

use kit::line::Line;
use kit::{dog, fork, pattern};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tranship_testkit::skipped;
use tranship_zcopy::{Arena, Piece, Value, Way};

/// A child that one test forks has its own copy of values that another test still fills, which are then sent by
/// copying.
static ONE_BY_ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Operations on memory that was sent. The last one forks, after which no present pageblock is used again with its
/// present pages.
const WRITES: [fn(NonNull<u8>, usize); 5] =
    [by_the_program, by_read, by_recv, by_recvmsg, by_a_child];

#[test]
fn what_waits_in_a_stream_stays() {
    let (_alone, _dog) = (alone(), dog());
    for way in [Way::Copy, Way::Splice, Way::Notified] {
        for len in [1000, 4096, 20_000, 70_000] {
            for (unix, forks) in [(false, false), (false, true), (true, false)] {
                disturb(Line::stream(way, unix), way, len, forks);
            }
        }
    }
}

#[test]
fn what_waits_as_datagrams_stays() {
    let (_alone, _dog) = (alone(), dog());
    for way in [Way::Copy, Way::Registered] {
        for (len, forks) in [(500, false), (1000, false), (1000, true)] {
            match Line::datagrams(way) {
                Ok(line) => disturb(line, way, len, forks),
                Err(why) => skipped(format!("{way}: {why}")),
            }
        }
    }
}

fn disturb(mut line: Line, way: Way, len: usize, forks: bool) {
    let writes = &WRITES[..WRITES.len() - usize::from(!forks)];
    let arena = Arena::new().expect("arena");
    let count = 400_000 / len + 70;
    // Memory as C has it and values of Rust's, beside each other.
    let raw: Vec<_> = (0..count)
        .map(|seed| {
            let at = arena.alloc_raw(len).expect("room");
            // SAFETY: just allocated, as long.
            unsafe { kit::fill(at, &pattern(seed, len)) };
            at
        })
        .collect();
    let values: Vec<Value> = (0..count)
        .map(|seed| arena.copy(&pattern(count + seed, len)).expect("room"))
        .collect();
    let mut went = Vec::new();
    for which in 0..=writes.len() {
        let which = 2 * which;
        let bytes = [pattern(which, len), pattern(count + which, len)];
        // SAFETY: mapped until it is freed.
        let piece = unsafe { Piece::raw(&arena, raw[which].as_ptr(), len) };
        went.push(line.send(&[piece, Piece::Value(&values[which])], &bytes));
    }
    assert_eq!(went[0], 2, "{way}, {len} bytes: no room for the first");
    let counts = line.counts();
    let referred = counts.referred_bytes > 0;
    assert_eq!(referred, way != Way::Copy, "{way}, {len} bytes: {counts:?}");
    line.waits();
    for (which, write) in writes.iter().enumerate() {
        write(raw[2 * which], len);
    }
    // Neighbours go, then all, and their memory is used again.
    drop(values);
    let (kept, gone): (Vec<_>, Vec<_>) = raw.iter().enumerate().partition(|(n, _)| n % 2 == 0);
    for at in [gone, kept].into_iter().flatten() {
        // SAFETY: ours, once.
        unsafe { arena.free_raw(*at.1) };
        if at.0 == 1 {
            again(&arena, len, count);
        }
    }
    again(&arena, len, count);
    line.waits();
    line.arrives();
}

/// Fills the arena's memory with other bytes, twice.
fn again(arena: &Arena, len: usize, count: usize) {
    for round in 0..2 {
        let all: Vec<_> = (0..count)
            .map(|_| arena.copy(&vec![0xd0 + round; len]).expect("room"))
            .collect();
        arena.protect();
        drop(all);
    }
}

/// All of it is this byte, as the program sees it.
fn seen(at: NonNull<u8>, len: usize, byte: u8) {
    // SAFETY: allocated, and nobody writes it now.
    let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), len) };
    assert!(bytes.iter().all(|one| *one == byte), "the writer sees it");
}

fn by_the_program(at: NonNull<u8>, len: usize) {
    // SAFETY: our own, of which no slice is alive.
    unsafe { at.write_bytes(0xa1, len) };
    seen(at, len, 0xa1);
}

fn by_read(at: NonNull<u8>, len: usize) {
    assert_eq!(kit::read_from_file(at, len, 0), len);
    seen(at, len, 0x77);
}

/// A socket's bytes, received by `receive` as many times as that takes.
fn received(at: NonNull<u8>, len: usize, receive: impl Fn(i32, *mut u8, usize) -> isize) {
    let (mut from, to) = UnixStream::pair().expect("a pair");
    let mut got = 0;
    while got < len {
        let part = (len - got).min(10_000);
        from.write_all(&vec![0x66; part]).expect("room");
        let now = receive(to.as_raw_fd(), at.as_ptr().wrapping_add(got), part);
        got += usize::try_from(now).expect("the kernel writes into protected memory");
    }
    seen(at, len, 0x66);
}

fn by_recv(at: NonNull<u8>, len: usize) {
    received(at, len, |from, to, len| {
        // SAFETY: our own, as long.
        unsafe { libc::recv(from, to.cast(), len, 0) }
    });
}

fn by_recvmsg(at: NonNull<u8>, len: usize) {
    received(at, len, |from, to, len| {
        // The memory goes in two parts.
        let part = |at: *mut u8, len: usize| libc::iovec {
            iov_base: at.cast(),
            iov_len: len,
        };
        let half = len / 2;
        let mut parts = [part(to, half), part(to.wrapping_add(half), len - half)];
        // SAFETY: all zeros is an empty message; the parts are our own.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = parts.as_mut_ptr();
            message.msg_iovlen = parts.len();
            libc::recvmsg(from, &raw mut message, 0)
        }
    });
}

fn by_a_child(at: NonNull<u8>, len: usize) {
    // SAFETY: allocated, and nobody writes it now.
    let before = unsafe { std::slice::from_raw_parts(at.as_ptr(), len) }.to_vec();
    let child = fork(|| {
        by_the_program(at, len);
        by_recv(at, len);
        true
    });
    assert!(child.succeeds());
    // SAFETY: as above.
    let after = unsafe { std::slice::from_raw_parts(at.as_ptr(), len) };
    assert!(before == after, "a child's writes are its own");
    by_the_program(at, len);
}
