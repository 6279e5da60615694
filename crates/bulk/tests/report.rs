//! The programs with which the original was measured (its round trips, its throughput with a checksum, the block service's
//! clients, its older benchmarks), as tests: the same shapes, every byte checked, over each backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_bulk::Shm;
use tranship_bulk::raw::{Buffer, Event, Raw};
use tranship_bulk::{Constraints, Direction, Role, Trust, Wish};
use tranship_testkit::Watchdog;
use tranship_transport::{Backend, Copying, Local};

const PAGE: usize = 4096;

/// Two domains of one thread, which lets them turn.
struct Pair {
    a: Raw,
    b: Raw,
}

/// A channel of theirs: its source is `a`, unless it goes `back`.
#[derive(Clone, Copy)]
struct Link {
    source: u64,
    sink: u64,
    back: bool,
}

impl Pair {
    fn new(backend: &Arc<dyn Backend>) -> Pair {
        let domain = || {
            let raw = Raw::new();
            raw.add_backend("test", Arc::clone(backend));
            raw
        };
        Pair {
            a: domain(),
            b: domain(),
        }
    }

    fn sides(&self, link: Link) -> (&Raw, &Raw) {
        match link.back {
            false => (&self.a, &self.b),
            true => (&self.b, &self.a),
        }
    }

    fn link(&self, trust: Trust, back: bool) -> Link {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let address = format!("test:report-{}-{count}", std::process::id());
        let wish = Wish {
            role: Role::Generic,
            trust,
            constraints: Constraints::default(),
        };
        let (from, to) = if back {
            (&self.b, &self.a)
        } else {
            (&self.a, &self.b)
        };
        let source = from
            .create(&address, Direction::Source, wish, 8, None)
            .expect("create");
        let (sink, asked) = to.bind(&address, wish, None).expect("bind");
        while asked.result().is_none() {
            let _ = (from.turn(source), to.turn(sink));
        }
        Link { source, sink, back }
    }

    /// A pool of the link's source, all of its buffers taken.
    fn pool(&self, link: Link, buffers: u32, bytes: usize) -> Vec<Buffer> {
        let (from, to) = self.sides(link);
        let pool = from.new_pool(buffers, bytes as u64, false).expect("pool");
        let asked = from.assign(link.source, pool).expect("assign");
        while asked.result().is_none() {
            let _ = (from.turn(link.source), to.turn(link.sink));
        }
        assert_eq!(asked.result(), Some(Ok(())));
        let take = |_| (pool, from.alloc(pool).expect("alloc"));
        (0..buffers).map(take).collect()
    }

    /// The next buffer at the sink, with what was said with it.
    fn moved(&self, link: Link) -> (Buffer, u64) {
        let (from, to) = self.sides(link);
        next((to, link.sink), (from, link.source))
    }

    /// The next buffer that is back at the source.
    fn passed(&self, link: Link) -> (Buffer, u64) {
        let (from, to) = self.sides(link);
        next((from, link.source), (to, link.sink))
    }
}

/// The other end is turned too: it may have more to send than there was room for.
fn next((raw, channel): (&Raw, u64), other: (&Raw, u64)) -> (Buffer, u64) {
    loop {
        while let Some(event) = raw.poll_event(channel) {
            if let Event::Moved(pool, index, meta) | Event::Passed(pool, index, meta) = event {
                let mut word = [0; 8];
                word[..meta.len()].copy_from_slice(&meta);
                return ((pool, index), u64::from_le_bytes(word));
            }
        }
        raw.turn(channel).expect("turn");
        other.0.turn(other.1).expect("turn");
    }
}

/// The whole number of rounds takes long: `TRANSHIP_TORTURE`.
fn rounds(whole: usize) -> usize {
    match std::env::var_os("TRANSHIP_TORTURE") {
        Some(_) => whole,
        None => (whole / 100).max(2),
    }
}

fn everywhere(test: impl Fn(&Arc<dyn Backend>, Trust)) {
    let _dog = Watchdog::new();
    let manager = tranship_core::Domain::embedded().expect("a manager");
    let shm = Shm::over(&manager).expect("joined");
    let all: [Arc<dyn Backend>; 3] = [Arc::new(Local), Arc::new(shm), Arc::new(Copying)];
    for backend in all {
        for trust in [Trust::Full, Trust::None] {
            test(&backend, trust);
        }
    }
}

/// One buffer of 4 KiB to and fro, out of a pool of 32.
#[test]
fn round_trips() {
    everywhere(|backend, trust| {
        let p = Pair::new(backend);
        let link = p.link(trust, false);
        let buffer = p.pool(link, 32, PAGE)[7];
        for round in 0..rounds(10_000) as u64 {
            p.a.write(buffer, 0, &round.to_le_bytes()).expect("write");
            p.a.move_(link.source, buffer, &[]).expect("move");
            assert_eq!(p.moved(link).0, buffer);
            let mut word = [0; 8];
            p.b.read(buffer, 0, &mut word).expect("read");
            assert_eq!(u64::from_le_bytes(word), round);
            p.b.pass(link.sink, buffer, &word).expect("pass");
            assert_eq!(p.passed(link), (buffer, round));
        }
    });
}

/// A hundred moves at a time out of a pool of 500; the sum of all first words says that each came once.
#[test]
fn throughput_with_a_checksum() {
    everywhere(|backend, trust| {
        let p = Pair::new(backend);
        let link = p.link(trust, false);
        let mut free: std::collections::VecDeque<_> = p.pool(link, 500, PAGE).into();
        let (runs, mut sum) = (rounds(100) as u64, 0);
        for _ in 0..runs {
            for word in 1..=100u64 {
                let buffer = free.pop_front().expect("a buffer");
                p.a.write(buffer, 0, &word.to_le_bytes()).expect("write");
                p.a.move_(link.source, buffer, &[]).expect("move");
            }
            for _ in 0..100 {
                let (buffer, _) = p.moved(link);
                let mut word = [0; 8];
                p.b.read(buffer, 0, &mut word).expect("read");
                sum += u64::from_le_bytes(word);
                p.b.pass(link.sink, buffer, &[]).expect("pass");
            }
            for _ in 0..100 {
                free.push_back(p.passed(link).0);
            }
        }
        assert_eq!(sum, (1..=100).sum::<u64>() * runs);
    });
}

/// Blocks are written by move, each with its number, kept by the other domain, and asked for and read back.
fn blocks(p: &Pair, trust: Trust, buffers: u32, (runs, batch): (usize, u64), fill: fn(u64) -> u8) {
    let (out, home) = (p.link(trust, false), p.link(trust, true));
    let mut free = p.pool(out, buffers, PAGE);
    let mut answers = p.pool(home, buffers, PAGE);
    let mut store = vec![0u8; 1024 * PAGE];
    for run in 0..runs as u64 {
        let numbers: Vec<u64> = (0..batch).map(|i| (run * 7 + i) % 1024).collect();
        for number in &numbers {
            let buffer = free.pop().expect("a buffer");
            p.a.write(buffer, 0, &[fill(*number); PAGE]).expect("write");
            let number = number.to_le_bytes();
            p.a.move_(out.source, buffer, &number).expect("move");
        }
        for _ in &numbers {
            let (buffer, number) = p.moved(out);
            let at = usize::try_from(number).expect("small") * PAGE;
            p.b.read(buffer, 0, &mut store[at..at + PAGE])
                .expect("read");
            p.b.pass(out.sink, buffer, &[]).expect("pass");
        }
        for _ in &numbers {
            free.push(p.passed(out).0);
        }
        for number in &numbers {
            let buffer = answers.pop().expect("a buffer");
            let at = usize::try_from(*number).expect("small") * PAGE;
            p.b.write(buffer, 0, &store[at..at + PAGE]).expect("write");
            let number = number.to_le_bytes();
            p.b.move_(home.source, buffer, &number).expect("move");
        }
        for wanted in &numbers {
            let (buffer, number) = p.moved(home);
            let mut bytes = [0; PAGE];
            p.a.read(buffer, 0, &mut bytes).expect("read");
            assert_eq!((number, bytes), (*wanted, [fill(number); PAGE]));
            p.a.pass(home.sink, buffer, &[]).expect("pass");
        }
        for _ in &numbers {
            answers.push(p.passed(home).0);
        }
    }
}

/// The client of the block service: 16 buffers, 10 blocks at a time.
#[test]
fn blocks_are_written_and_read_back() {
    everywhere(|backend, trust| {
        let fill = |number| u8::try_from((number + 5) % 255).unwrap_or(0);
        blocks(&Pair::new(backend), trust, 16, (10, 10), fill);
    });
}

/// Its benchmark: 511 buffers, 250 writes and reads at a time.
#[test]
fn many_blocks_at_a_time() {
    everywhere(|backend, trust| {
        let fill = |number| u8::try_from((number + 1) % 256).unwrap_or(0);
        blocks(&Pair::new(backend), trust, 511, (rounds(40), 250), fill);
    });
}

/// The older benchmark: one region of 64 KiB in pieces, with and without the bytes being copied out.
#[test]
fn one_region_in_pieces() {
    everywhere(|backend, trust| {
        let p = Pair::new(backend);
        let link = p.link(trust, false);
        let all = p.pool(link, 16, PAGE);
        for round in 0..rounds(1000) {
            let byte = |at: usize| u8::try_from((round + at) % 251).unwrap_or(0);
            for (buffer, byte) in all.iter().zip((0..).map(byte)) {
                p.a.write(*buffer, 0, &[byte; PAGE]).expect("write");
                p.a.move_(link.source, *buffer, &[]).expect("move");
            }
            for (wanted, byte) in all.iter().zip((0..).map(byte)) {
                let (buffer, _) = p.moved(link);
                assert_eq!(buffer, *wanted);
                if round % 2 == 0 {
                    let mut bytes = [0; PAGE];
                    p.b.read(buffer, 0, &mut bytes).expect("read");
                    assert_eq!(bytes, [byte; PAGE]);
                }
                p.b.pass(link.sink, buffer, &[]).expect("pass");
            }
            for buffer in &all {
                assert_eq!(p.passed(link).0, *buffer);
            }
        }
    });
}

/// That of the DMA engine: frames of one size after the other, 8 of them, up to 16 MiB.
#[test]
fn frames_of_all_sizes() {
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    everywhere(|backend, trust| {
        let most = if torture { 16 << 20 } else { 256 << 10 };
        let sizes = std::iter::successors(Some(PAGE), |size| Some(4 * size));
        for size in sizes.take_while(|size| *size <= most) {
            let p = Pair::new(backend);
            let link = p.link(trust, false);
            let mut frames = p.pool(link, 8, size);
            for round in 2u8..4 {
                for frame in &frames {
                    p.a.write(*frame, size - 3, &[round; 3]).expect("write");
                    p.a.move_(link.source, *frame, &[]).expect("move");
                    let (got, _) = p.moved(link);
                    let mut end = [0; 3];
                    p.b.read(got, size - 3, &mut end).expect("read");
                    assert_eq!((got, end), (*frame, [round; 3]));
                    p.b.pass(link.sink, got, &[]).expect("pass");
                }
                frames = (0..8).map(|_| p.passed(link).0).collect();
            }
        }
    });
}
