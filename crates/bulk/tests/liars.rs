//! The other end lies: memory that is not what its level prescribes, frames that say anything. It costs itself the
//! channel, or the pool its place on it, and nothing else. Each liar is a process, and is killed in the end.

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use tranship_bulk::raw::Raw;
use tranship_bulk::{ChannelState, Direction, Error, Kind, Role, Trust};
use tranship_sys::memfd::{self, Seals};

#[path = "liars/bent.rs"]
mod bent;
#[path = "liars/claims.rs"]
mod claims;
#[path = "liars/honest.rs"]
mod honest;
#[path = "liars/lying.rs"]
mod lying;
#[path = "liars/sealed.rs"]
mod sealed;
#[path = "liars/stage.rs"]
mod stage;

use honest::{Honest, wish};
use lying::{Frame, Lying};
use stage::{Stage, liar};

const PAGE: usize = 4096;

/// An honest end in a process of its own, and a liar here.
struct Pair {
    honest: Honest,
    liar: Raw,
    ends: (u64, u64),
}

impl Stage {
    fn pair(&self, trust: Trust, lie: impl FnMut(&mut Frame) + Send + 'static, name: &str) -> Pair {
        self.pair_as(Direction::Sink, trust, lie, name)
    }

    fn pair_as(
        &self,
        honest_is: Direction,
        trust: Trust,
        lie: impl FnMut(&mut Frame) + Send + 'static,
        name: &str,
    ) -> Pair {
        let lying = Lying {
            says: Arc::new(Mutex::new(lie)),
            ..Lying::default()
        };
        let pair = self.meet(honest_is, trust, lying, name);
        while pair.liar.channel_state(pair.ends.1) == Some(ChannelState::Binding) {
            pair.settle();
        }
        pair
    }

    /// They have begun to make their acquaintance.
    fn meet(&self, honest_is: Direction, trust: Trust, lying: Lying, name: &str) -> Pair {
        let met = self.try_to_meet(honest_is, trust, lying, name);
        met.expect("bind")
    }

    fn try_to_meet(
        &self,
        honest_is: Direction,
        trust: Trust,
        lying: Lying,
        name: &str,
    ) -> Result<Pair, Error> {
        let (honest, liar) = (self.honest(), Raw::new());
        liar.add_backend("lie", Arc::new(lying));
        let here = honest.create(&format!("shm:liar-{name}"), honest_is, trust);
        let wish = wish(Role::Generic, trust);
        let (there, _) = liar.bind(&format!("lie:liar-{name}"), wish, None)?;
        let ends = (here, there);
        Ok(Pair { honest, liar, ends })
    }
}

impl Pair {
    fn settle(&self) {
        settle(&self.honest, self.ends.0, &self.liar, self.ends.1);
    }
}

/// Turns both until nothing moves; with a liar that may be never.
fn settle(honest: &Honest, here: u64, liar: &Raw, there: u64) {
    let mut idle = 0;
    for _ in 0..64 {
        let theirs = (0..16).filter(|_| liar.turn(there) == Ok(true)).count();
        idle = if honest.turn(here) || theirs > 0 {
            0
        } else {
            idle + 1
        };
        if idle == 2 {
            return;
        }
    }
}

/// Memory that is not as it should be at this level, each time for one reason; the last is.
fn bad_memory(trust: Trust) -> Vec<(&'static str, OwnedFd)> {
    let one_writer = match trust {
        Trust::Producer | Trust::None => Seals::FUTURE_WRITE,
        Trust::Full | Trust::Half => Seals::empty(),
    };
    let fixed = Seals::SHRINK | Seals::GROW | Seals::SEAL | one_writer;
    let make = |len: u64, backed: bool, seals: Seals| {
        let fd = memfd::create("liar").expect("memfd");
        match backed {
            true => memfd::fallocate(&fd, len).expect("fallocate"),
            false => memfd::set_len(&fd, len).expect("size"),
        }
        memfd::add_seals(&fd, seals).expect("seals");
        fd
    };
    let pages = 2 * PAGE as u64;
    vec![
        ("no seals", make(pages, true, Seals::empty())),
        ("it may shrink", make(pages, true, fixed - Seals::SHRINK)),
        ("more may be sealed", make(pages, true, fixed - Seals::SEAL)),
        ("too short", make(PAGE as u64, true, fixed)),
        ("too long", make(2 * pages, true, fixed)),
        ("nothing behind it", make(pages, false, fixed)),
        ("what is behind it lies beyond its end", {
            let fd = make(pages, false, Seals::empty());
            let beyond = rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&fd, beyond, pages, pages).expect("fallocate");
            memfd::add_seals(&fd, fixed).expect("seals");
            fd
        }),
        (
            "not memory",
            std::fs::File::open("/proc/self/status")
                .expect("a file")
                .into(),
        ),
        ("sealed for all", make(pages, true, fixed | Seals::WRITE)),
        (
            "sealed for others",
            make(pages, true, fixed ^ Seals::FUTURE_WRITE),
        ),
        (GOOD, make(pages, true, fixed)),
    ]
}

const GOOD: &str = "as it should be";

liar!(memory_is_checked_before_it_is_believed);
fn memory_is_checked_before_it_is_believed(stage: &Stage) {
    for trust in Trust::ALL {
        for (what, fd) in bad_memory(trust) {
            let fd = Arc::new(fd);
            let shown = Arc::clone(&fd);
            let lie = move |frame: &mut Frame| {
                if !frame.fds.is_empty() {
                    frame.fds = vec![Arc::clone(&shown)];
                }
            };
            let pair = stage.pair(trust, lie, &format!("{trust:?}-{}", what.replace(' ', "-")));
            let pool = pair.liar.new_pool(2, PAGE as u64, false).expect("pool");
            let asked = pair.liar.assign(pair.ends.1, pool).expect("assign");
            pair.settle();
            if what == GOOD {
                assert_eq!(asked.result(), Some(Ok(())), "{trust:?}");
                continue;
            }
            assert_eq!(pair.honest.pool(pool), None);
            // The carrier takes nothing else.
            if what == "not memory" {
                let state = pair.honest.channel_state(pair.ends.0);
                assert_eq!(state, Some(ChannelState::Closed));
                continue;
            }
            assert_eq!(
                asked.result(),
                Some(Err(Kind::PoolMap.into())),
                "{what} in {trust:?}"
            );
            assert_eq!(
                pair.honest.channel_state(pair.ends.0),
                Some(ChannelState::Connected)
            );
            let buffer = (pool, pair.liar.alloc(pool).expect("alloc"));
            assert_eq!(
                pair.liar.move_(pair.ends.1, buffer, &[]).map(|_| ()),
                Err(Kind::PoolNotAssigned.into())
            );
        }
    }
}

liar!(a_known_pool_is_the_same_memory);
/// Memory of nobody, where the pool is known by another way.
fn a_known_pool_is_the_same_memory(stage: &Stage) {
    for trust in [Trust::Full, Trust::Half, Trust::Producer] {
        let lying = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let on = Arc::clone(&lying);
        let fixed = Seals::SHRINK | Seals::GROW | Seals::SEAL;
        let other = memfd::create("liar").expect("memfd");
        memfd::fallocate(&other, 2 * PAGE as u64).expect("fallocate");
        let one_writer = if trust == Trust::Producer {
            Seals::FUTURE_WRITE
        } else {
            Seals::empty()
        };
        memfd::add_seals(&other, fixed | one_writer).expect("seals");
        let other = Arc::new(other);
        let lie = move |frame: &mut Frame| {
            if !frame.fds.is_empty() && on.load(std::sync::atomic::Ordering::Relaxed) {
                frame.fds = vec![Arc::clone(&other)];
            }
        };
        let pair = stage.pair(trust, lie, &format!("known-{trust:?}"));
        let name = format!("liar-second-{trust:?}");
        let address = format!("shm:{name}");
        let here = pair.honest.create(&address, Direction::Sink, trust);
        let wish = wish(Role::Generic, trust);
        let bound = pair.liar.bind(&format!("lie:{name}"), wish, None);
        let (there, _) = bound.expect("bind");
        let settle = || {
            pair.settle();
            settle(&pair.honest, here, &pair.liar, there);
        };
        while pair.liar.channel_state(there) == Some(ChannelState::Binding) {
            settle();
        }
        let pool = pair.liar.new_pool(2, PAGE as u64, false).expect("pool");
        let first = pair.liar.assign(pair.ends.1, pool).expect("assign");
        settle();
        assert_eq!(first.result(), Some(Ok(())));
        lying.store(true, std::sync::atomic::Ordering::Relaxed);
        let second = pair.liar.assign(there, pool).expect("assign");
        settle();
        assert_eq!(second.result(), Some(Err(Kind::PoolMap.into())));
        assert_eq!(
            pair.honest.channel_state(pair.ends.0),
            Some(ChannelState::Connected)
        );
    }
}

liar!(frames_may_say_anything);
/// Whatever arrives, nothing panics; what is not allowed ends the channel, and other channels go on.
fn frames_may_say_anything(stage: &Stage) {
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let config = ProptestConfig {
        cases: if torture { 10_000 } else { 300 },
        rng_seed: RngSeed::Fixed(stage.seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let changes = prop::collection::vec((0..40usize, 0..64usize, any::<u8>(), 0..4u8), 1..6);
    let all = (0..4usize, changes);
    let count = std::cell::Cell::new(0);
    // Many are still there when the liar dies.
    let kept = std::cell::RefCell::new(Vec::new());
    let outcome = TestRunner::new(config).run(&all, |(trust, changes)| {
        count.set(count.get() + 1);
        let mut frames = 0;
        let lie = move |frame: &mut Frame| {
            for (at, byte, value, how) in &changes {
                if *at != frames {
                    continue;
                }
                let len = frame.bytes.len();
                match how {
                    0 if len > 0 => frame.bytes[byte % len] = *value,
                    1 if len > 0 => frame.bytes[byte % len] ^= 1 << (value % 8),
                    2 => frame.bytes.truncate(*byte),
                    _ => frame.fds.clear(),
                }
            }
            frames += 1;
        };
        let lying = Lying {
            says: Arc::new(Mutex::new(lie)),
            ..Lying::default()
        };
        let (trust, name) = (Trust::ALL[trust], format!("any-{}", count.get()));
        // Who has connected too often without a word is kept out for a while.
        let pair = match stage.try_to_meet(Direction::Sink, trust, lying, &name) {
            Err(error) if matches!(error.kind(), Kind::Full | Kind::Limit) => return Ok(()),
            met => met.expect("bind"),
        };
        let (here, there) = pair.ends;
        // What it said first may be nothing that is ever answered.
        for _ in 0..100 {
            if pair.liar.channel_state(there) == Some(ChannelState::Binding) {
                pair.settle();
            }
        }
        if let Ok(pool) = pair.liar.new_pool(2, PAGE as u64, false) {
            let _ = pair.liar.assign(there, pool);
            pair.settle();
            for round in 0..8 {
                if let Ok(index) = pair.liar.alloc(pool) {
                    let _ = pair.liar.move_(there, (pool, index), &[round]);
                }
                let _ = pair.liar.copy(there, (pool, 0), &[round]);
                pair.settle();
                pair.honest.serve(here);
                while pair.liar.poll_event(there).is_some() {}
            }
        }
        if pair.liar.channel_state(there) == Some(ChannelState::Binding) {
            drop(pair.liar);
            pair.honest.turn(here);
            return Ok(());
        }
        let mut kept = kept.borrow_mut();
        kept.push(pair);
        if kept.len() > 100 {
            kept.remove(0);
        }
        Ok(())
    });
    if let Err(what) = outcome {
        panic!("{what}");
    }
}

/// Where the number of a transfer's kind is, and that of its buffer's index (`message.rs`).
fn transfer(frame: &mut Frame) -> Option<(&mut u8, usize)> {
    const TRANSFER: u8 = 0xf0;
    if frame.bytes.first() != Some(&TRANSFER) {
        return None;
    }
    Some((&mut frame.bytes[1], 4))
}

const MOVE: u8 = 0;
const PASS: u8 = 1;
const RELEASE: u8 = 3;

liar!(what_cannot_be_ends_the_channel);
/// Each of these is a message that could be right at another moment.
fn what_cannot_be_ends_the_channel(stage: &Stage) {
    // What the liar says instead, to an honest sink or source: the kind, the index, from its nth transfer on.
    let lies = [
        (Direction::Sink, "a pass to the sink", Some(PASS), None, 0),
        (
            Direction::Sink,
            "a release to the sink",
            Some(RELEASE),
            None,
            0,
        ),
        (Direction::Sink, "no such buffer", None, Some(77), 0),
        (
            Direction::Sink,
            "what the sink owns",
            Some(MOVE),
            Some(1),
            1,
        ),
        (
            Direction::Source,
            "what it was never given",
            None,
            Some(0),
            0,
        ),
        (
            Direction::Source,
            "a release of what was not copied",
            Some(RELEASE),
            None,
            0,
        ),
        (
            Direction::Source,
            "a move to the source",
            Some(MOVE),
            None,
            0,
        ),
    ];
    for trust in Trust::ALL {
        for (number, (honest_is, what, kind, index, from)) in lies.into_iter().enumerate() {
            let mut seen = 0;
            let lie = move |frame: &mut Frame| {
                let Some((how, at)) = transfer(frame) else {
                    return;
                };
                *how = kind.filter(|_| seen >= from).unwrap_or(*how);
                if let (Some(index), true) = (index, seen >= from) {
                    frame.bytes[at] = index;
                }
                seen += 1;
            };
            let pair = stage.pair_as(honest_is, trust, lie, &format!("cannot-{trust:?}-{number}"));
            let Pair { honest, liar, ends } = &pair;
            // The last one first: buffer 1 goes, buffer 0 stays (or follows).
            match honest_is {
                Direction::Sink => {
                    let pool = liar.new_pool(2, PAGE as u64, false).expect("pool");
                    liar.assign(ends.1, pool).expect("assign");
                    pair.settle();
                    assert_eq!((liar.alloc(pool), liar.alloc(pool)), (Ok(0), Ok(1)));
                    liar.move_(ends.1, (pool, 1), &[]).expect("move");
                    let _ = liar.move_(ends.1, (pool, 0), &[]);
                }
                Direction::Source => {
                    let pool = honest.new_pool(2, PAGE as u64);
                    honest.assign(ends.0, pool);
                    pair.settle();
                    assert_eq!((honest.alloc(pool), honest.alloc(pool)), (0, 1));
                    honest.move_(ends.0, (pool, 1));
                    pair.settle();
                    liar.pass(ends.1, (pool, 1), &[]).expect("pass");
                }
            }
            pair.settle();
            let state = honest.channel_state(ends.0);
            assert_eq!(state, Some(ChannelState::Closed), "{what} with {trust:?}");
        }
    }
}

/// Where this process has mapped a memfd so that it can write it.
fn writable_mapping(inode: u64) -> usize {
    let all = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let ours = all.lines().find(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|allows| allows.starts_with("rw"))
            && words.nth(2) == Some(&inode.to_string())
    });
    let begin = ours
        .and_then(|line| line.split('-').next())
        .expect("a mapping");
    usize::from_str_radix(begin, 16).expect("hexadecimal")
}

liar!(what_was_copied_out_stays_as_it_is);
/// At level none small buffers are copied out of the sender's staging memory, which it goes on writing: what the receiver has
/// does not change.
fn what_was_copied_out_stays_as_it_is(stage: &Stage) {
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    const LEN: usize = 4 * PAGE;
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    // What is shown, and where the liar can write it, once both are known.
    let shown = Arc::new(AtomicU64::new(0));
    let staging = Arc::new(AtomicUsize::new(0));
    let (seen, at) = (Arc::clone(&shown), Arc::clone(&staging));
    let lie = move |frame: &mut Frame| {
        if let Some(fd) = frame.fds.first() {
            let file = std::fs::File::from(fd.try_clone().expect("a descriptor"));
            seen.store(file.metadata().expect("its inode").ino(), Ordering::Relaxed);
        }
        // So it is these words that the receiver finds.
        if transfer(frame).is_some() {
            let word = std::ptr::with_exposed_provenance_mut::<u64>(at.load(Ordering::Relaxed));
            // SAFETY: the staging memory, which is mapped as long as its channel.
            unsafe { word.write_volatile(1) };
        }
    };
    let pair = stage.pair(Trust::None, lie, "copied-out");
    pair.liar.seal_from(u64::MAX);
    let pool = pair.liar.new_pool(1, LEN as u64, false).expect("pool");
    let asked = pair.liar.assign(pair.ends.1, pool).expect("assign");
    pair.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    let kept = writable_mapping(shown.load(Ordering::Relaxed));
    staging.store(kept, Ordering::Relaxed);
    assert_eq!(pair.liar.alloc(pool), Ok(0));
    for round in 0..100u64 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let words = std::ptr::with_exposed_provenance_mut::<u64>(kept);
                let mut value = 0;
                loop {
                    value += 1;
                    for at in (0..LEN / 8).step_by(8) {
                        // SAFETY: inside the staging memory, which is mapped as long as its channel.
                        unsafe { words.add(at).write_volatile(value) };
                    }
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let _end = Stop(&stop);
            let buffer = (pool, 0);
            pair.liar.move_(pair.ends.1, buffer, &[]).expect("move");
            pair.settle();
            let first = pair.honest.read(buffer, 50).expect("the same bytes");
            assert!(
                first.iter().any(|byte| *byte != 0),
                "round {round}: that memory"
            );
            pair.honest.pass(pair.ends.0, buffer);
            pair.settle();
            while pair.liar.poll_event(pair.ends.1).is_some() {}
        });
    }
    assert_eq!(pair.honest.snapshots(), 100);
}
