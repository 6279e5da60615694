//! A hunt for corruption: threads write, send, free and allocate at random, while slow readers compare every byte with
//! the bytes that were sent. Children are forked in between. `TRANSHIP_TORTURE=1` hunts through ten million operations.

mod kit;

use kit::{WAYS, pair};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::Duration;
use tranship_testkit::{Random, Watchdog};
use tranship_zcopy::{Arena, Piece, Sender, Socket, Value};

const THREADS: u64 = 3;
/// Bytes on their way before a reader is waited for: more than a socket holds, so that most sent bytes are unread for
/// long.
const UNREAD: usize = 8 << 20;
/// Most things that a thread keeps: several pageblocks of each size. Children write all of them, so more would make a
/// long hunt slow.
const THINGS: usize = 800;

#[test]
fn nothing_that_was_sent_ever_changes() {
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let operations = if torture { 10_000_000 } else { 20_000 } / THREADS;
    let _dog = Watchdog::within(Duration::from_secs(if torture { 6 * 3600 } else { 300 }));
    let seed = Random::printed("hunt").seed();
    let arena = Arena::new().expect("arena");
    let sent: u64 = std::thread::scope(|scope| {
        let hunters: Vec<_> = (0..THREADS)
            .map(|number| {
                let arena = arena.clone();
                scope.spawn(move || hunt(&arena, Random::seeded(seed ^ number << 60), operations))
            })
            .collect();
        hunters
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum()
    });
    assert!(sent > 0);
    let stats = arena.stats();
    assert_eq!(stats.allocations, stats.frees, "{stats:?}");
    assert_eq!(stats.used_bytes, stats.waiting_for_children_bytes);
}

/// Things of a thread: values of Rust's, and memory as C has it.
struct Things<'a> {
    arena: &'a Arena,
    values: Vec<Value>,
    raw: Vec<(NonNull<u8>, usize)>,
}

fn hunt(arena: &Arena, mut random: Random, operations: u64) -> u64 {
    let connection = if random.one_in(2) {
        pair::tcp()
    } else {
        pair::unix()
    };
    let (expect, expected) = mpsc::channel::<Vec<u8>>();
    std::thread::scope(|scope| {
        let connection = &connection;
        let pace = random.next();
        let (took, taken) = mpsc::channel();
        let reader = scope.spawn(move || compare(connection, &expected, pace, &took));
        let mut sender = Sender::new().expect("sender");
        let mut socket = Socket::new(connection.near()).expect("socket");
        let mut things = Things {
            arena,
            values: Vec::new(),
            raw: Vec::new(),
        };
        let (mut sent, mut unread) = (0, 0);
        for _ in 0..operations {
            match random.below(100) {
                0..30 => things.alloc(&mut random),
                30..50 => things.free(&mut random),
                50..60 => things.write(&mut random),
                60..99 => {
                    sender.force(match random.below(5) {
                        way @ 0..3 => Some(WAYS[usize::try_from(way).expect("small")]),
                        _ => None,
                    });
                    while unread > UNREAD {
                        unread -= taken.recv().expect("the reader lives");
                    }
                    let bytes =
                        things.send(&mut random, &mut sender, connection.near(), &mut socket);
                    unread += bytes.len();
                    sent += bytes.len() as u64;
                    expect.send(bytes).expect("the reader lives");
                }
                _ if random.one_in(20) => things.fork(),
                _ => {}
            }
        }
        things.clear();
        drop(expect);
        reader.join().expect("no panic");
        sent
    })
}

impl Things<'_> {
    fn alloc(&mut self, random: &mut Random) {
        if self.values.len() + self.raw.len() >= THINGS {
            return self.free(random);
        }
        let len = match random.below(4) {
            0 => 1 + random.below(300),
            1 => 1 + random.below(4096),
            2 => 1 + random.below(40_000),
            _ => 1000,
        };
        let len = usize::try_from(len).expect("small");
        let seed = usize::try_from(random.next() >> 32).expect("64 bit");
        if random.one_in(2) {
            self.values
                .push(self.arena.copy(&kit::pattern(seed, len)).expect("room"));
        } else {
            let at = self.arena.alloc_raw(len).expect("room");
            let bytes = kit::pattern(seed, len);
            // SAFETY: as long as that, and ours alone.
            unsafe { kit::fill(at, &bytes) };
            self.raw.push((at, len));
        }
    }

    fn free(&mut self, random: &mut Random) {
        if random.one_in(2) && !self.values.is_empty() {
            let which = random.below(self.values.len() as u64);
            self.values
                .swap_remove(usize::try_from(which).expect("small"));
        } else if !self.raw.is_empty() {
            let which = random.below(self.raw.len() as u64);
            let (at, _) = self.raw.swap_remove(usize::try_from(which).expect("small"));
            // SAFETY: ours, once.
            unsafe { self.arena.free_raw(at) };
        }
    }

    fn clear(&mut self) {
        self.values.clear();
        for (at, _) in self.raw.drain(..) {
            // SAFETY: ours, once.
            unsafe { self.arena.free_raw(at) };
        }
    }

    /// Writes into memory that may have been sent.
    fn write(&mut self, random: &mut Random) {
        if self.raw.is_empty() {
            return;
        }
        let which = usize::try_from(random.below(self.raw.len() as u64)).expect("small");
        let (at, len) = self.raw[which];
        let from = usize::try_from(random.below(len as u64)).expect("small");
        let byte = u8::try_from(random.below(256)).expect("a byte");
        // SAFETY: inside our own memory.
        unsafe { at.add(from).write_bytes(byte, len - from) };
        // SAFETY: as above.
        let seen = unsafe { at.add(len - 1).read() };
        assert_eq!(seen, byte, "the writer sees it");
    }

    /// Sends a list of pieces of all kinds; gives the bytes that went, as they are now.
    fn send(
        &self,
        random: &mut Random,
        sender: &mut Sender,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
    ) -> Vec<u8> {
        static ALWAYS: [u8; 5000] = [0x5a; 5000];
        let header = random.next().to_le_bytes();
        let (mut pieces, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..1 + random.below(6) {
            match random.below(5) {
                0 => {
                    pieces.push(Piece::Bytes(&header));
                    whole.extend_from_slice(&header);
                }
                1 => {
                    pieces.push(Piece::ReadOnly(&ALWAYS));
                    whole.extend_from_slice(&ALWAYS);
                }
                2 if !self.raw.is_empty() => {
                    let which = random.below(self.raw.len() as u64);
                    let (at, len) = self.raw[usize::try_from(which).expect("small")];
                    // SAFETY: allocated, and nobody frees it before the send returns.
                    unsafe {
                        pieces.push(Piece::raw(self.arena, at.as_ptr(), len));
                        whole.extend_from_slice(std::slice::from_raw_parts(at.as_ptr(), len));
                    }
                }
                _ if !self.values.is_empty() => {
                    let which = random.below(self.values.len() as u64);
                    let value = &self.values[usize::try_from(which).expect("small")];
                    let from = usize::try_from(random.below(value.len() as u64)).expect("small");
                    pieces.push(Piece::Part(value, from..value.len()));
                    whole.extend_from_slice(&value[from..]);
                }
                _ => {}
            }
        }
        match sender.send(fd, socket, &pieces) {
            Ok(sent) => whole.truncate(sent),
            Err(error) if error.kind() == ErrorKind::WouldBlock => whole.clear(),
            Err(error) => panic!("{error}"),
        }
        whole
    }

    /// A child checks the values that it inherited, and writes them.
    fn fork(&self) {
        let child = kit::fork(|| {
            let same = self.values.iter().all(|value| {
                let copy = value.to_vec();
                copy.len() == value.len()
            });
            for &(at, len) in &self.raw {
                // SAFETY: inherited memory of this child's own.
                unsafe { at.write_bytes(0xee, len) };
            }
            same
        });
        assert!(child.succeeds());
    }
}

/// Reads the sent bytes, at an uneven pace, and compares them.
fn compare(
    connection: &pair::Pair,
    expected: &mpsc::Receiver<Vec<u8>>,
    pace: u64,
    took: &mpsc::Sender<usize>,
) {
    let mut random = Random::seeded(pace);
    let mut waiting = VecDeque::new();
    let mut far = connection.far();
    while let Ok(bytes) = expected.recv() {
        waiting.push_back(bytes);
        if random.one_in(8) {
            for bytes in waiting.drain(..) {
                same(&mut far, &bytes);
                let _ = took.send(bytes.len());
            }
        }
        // Unread bytes hold up the sender: never more of them than it allows itself.
        while waiting.iter().map(Vec::len).sum::<usize>() > UNREAD / 2 {
            let bytes = waiting.pop_front().expect("not empty");
            same(&mut far, &bytes);
            let _ = took.send(bytes.len());
        }
    }
    for bytes in waiting {
        same(&mut far, &bytes);
    }
}

fn same(far: &mut impl Read, bytes: &[u8]) {
    let mut got = vec![0; bytes.len()];
    far.read_exact(&mut got).expect("read");
    if let Some(at) = got.iter().zip(bytes).position(|(a, b)| a != b) {
        panic!(
            "byte {at} of {} arrived as {} and was sent as {}",
            bytes.len(),
            got[at],
            bytes[at]
        );
    }
}
