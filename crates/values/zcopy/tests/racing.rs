//! A value is sent while another thread writes it. The bytes that arrive were there at some time of the call; none was
//! written after it. On each way; the writer is the program, or the kernel on its behalf, and neighbours come and go
//! meanwhile.

mod kit;

use kit::dog;
use kit::line::Line;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tranship_testkit::skipped;
use tranship_zcopy::{Arena, Piece, Way};

/// Most writes of a value during a call, and after it: together fewer than a byte can tell apart.
const DURING: u64 = 100;
const AFTER: u64 = 20;
/// Values of an arena that are sent. The first one's call protects them all.
const VALUES: usize = 6;

#[test]
fn what_a_stream_carries_was_there_during_the_call() {
    let _dog = dog();
    for way in [Way::Copy, Way::Splice, Way::Notified] {
        for len in [1000, 4096, 20_000, 70_000] {
            race(Line::stream(way, len == 4096), way, len);
        }
    }
}

#[test]
fn what_a_datagram_carries_was_there_during_the_call() {
    let _dog = dog();
    for way in [Way::Copy, Way::Registered] {
        match Line::datagrams(way) {
            Ok(line) => race(line, way, 1000),
            Err(why) => skipped(format!("{way}: {why}")),
        }
    }
}

/// A value that is written with the numbers of its versions.
struct Target {
    at: NonNull<u8>,
    len: usize,
    /// The last version that was begun, and the last one of which all bytes are there.
    begun: AtomicU64,
    done: AtomicU64,
    /// Largest version.
    limit: AtomicU64,
    over: AtomicBool,
}

// SAFETY: the memory is written by one thread, and read by the kernel alone.
unsafe impl Sync for Target {}

fn byte(version: u64) -> u8 {
    u8::try_from(version).expect("fewer than 256")
}

impl Target {
    /// Writes version after version.
    fn write(&self) {
        let source = File::from(tranship_sys::memfd::create("versions").expect("memfd"));
        let (mut version, mut spins) = (0, 0);
        // Ordering: all sequentially consistent; a thread that reads a version's number after a call knows of all
        // writes begun before.
        while !self.over.load(Ordering::SeqCst) {
            if version == self.limit.load(Ordering::SeqCst) {
                spins += 1;
                // A short wait is a busy one, so that the writing begins with the call; on one processor it must not
                // be.
                if spins % 256 == 0 {
                    std::thread::yield_now();
                }
                continue;
            }
            version += 1;
            let by_kernel = version % 3 == 0;
            if by_kernel {
                let bytes = vec![byte(version); self.len];
                source.write_all_at(&bytes, 0).expect("write");
            }
            self.begun.store(version, Ordering::SeqCst);
            if by_kernel {
                // SAFETY: our own, of which only the kernel reads meanwhile.
                let to = unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) };
                source.read_exact_at(to, 0).expect("read");
            } else {
                let word = u64::from_ne_bytes([byte(version); 8]);
                for at in 0..self.len / 8 {
                    // SAFETY: inside, and aligned as all memory of the arena.
                    unsafe { self.at.cast::<u64>().add(at).write_volatile(word) };
                }
            }
            self.done.store(version, Ordering::SeqCst);
        }
    }

    fn wait_for(&self, version: u64) {
        while self.done.load(Ordering::SeqCst) < version {
            std::thread::yield_now();
        }
    }
}

fn race(mut line: Line, way: Way, len: usize) {
    let mut sent = Vec::new();
    let before = line.lens();
    for _ in 0..3 {
        let arena = Arena::new().expect("arena");
        let all: Vec<_> = (0..200_000 / len + 70)
            .map(|_| {
                let at = arena.alloc_raw(len).expect("room");
                // SAFETY: just allocated, as long.
                unsafe { at.write_bytes(0, len) };
                at
            })
            .collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| neighbours(&arena, len, &over));
            for &at in &all[..VALUES] {
                sent.extend(send_while_it_is_written(&mut line, &arena, at, len));
            }
            over.store(true, Ordering::SeqCst);
        });
        for at in all {
            // SAFETY: ours, once.
            unsafe { arena.free_raw(at) };
        }
    }
    assert!(!sent.is_empty(), "{way}, {len} bytes: nothing had room");
    let lens = line.lens();
    let got = line.arrived(&lens);
    for (number, (got, (first, last))) in got[before.len()..].iter().zip(&sent).enumerate() {
        let range = byte(*first)..=byte(*last);
        let other = got.iter().find(|byte| !range.contains(byte));
        assert_eq!(
            other, None,
            "{way}, {len} bytes, send {number}: versions {range:?} were there during the call"
        );
    }
}

/// The versions that were there during the call, if anything of it had room.
fn send_while_it_is_written(
    line: &mut Line,
    arena: &Arena,
    at: NonNull<u8>,
    len: usize,
) -> Option<(u64, u64)> {
    let target = Target {
        at,
        len,
        begun: AtomicU64::new(0),
        done: AtomicU64::new(0),
        limit: AtomicU64::new(1),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| target.write());
        target.wait_for(1);
        let pieces = line.lens().len();
        let first = 1;
        target.limit.store(first + DURING, Ordering::SeqCst);
        // SAFETY: mapped until it is freed.
        let piece = unsafe { Piece::raw(arena, at.as_ptr(), len) };
        line.send(&[piece], &[vec![0; len]]);
        let last = target.begun.load(Ordering::SeqCst);
        // Each byte changes before any reader reads it.
        let limit = first + DURING + AFTER;
        target.limit.store(limit, Ordering::SeqCst);
        target.wait_for(limit);
        target.over.store(true, Ordering::SeqCst);
        (line.lens().len() > pieces).then_some((first, last))
    })
}

/// Values of the same length come and go.
fn neighbours(arena: &Arena, len: usize, over: &AtomicBool) {
    let mut kept = Vec::new();
    while !over.load(Ordering::SeqCst) {
        kept.push(arena.copy(&vec![0xff; len]).expect("room"));
        if kept.len() > 100 {
            kept.drain(..70);
        }
        std::thread::yield_now();
    }
}
