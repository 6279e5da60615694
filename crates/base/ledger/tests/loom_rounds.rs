//! Rounds under weak memory: a buffer is filled anew only after the last reader's last access, and a reader accepts only
//! whole lines. Data lie in cells that loom watches: a buffer that is reused early is a data race.
//!
//! Seen failing: the fence of `claim` left out; the fence of `begin` left out; `win` stored, or loaded, relaxed; `kept`
//! stored relaxed by the thread that lets go; `win` stored before `kept`; the drop before the last access; word 7 not
//! compared. Not seen: `kept` loaded relaxed, for which the acquire of `more` after it stands in.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::convert::Infallible;
use tranship_ledger::rounds::{DeskView, Desks, Outcome, Pace, Published, Rounds};
use tranship_ring::broadcast::{
    Desk, Hold, Limits, Message, Reader, Reading, Received, WriterMemory, let_go,
};
use tranship_ring::{Line, Lines};

const SLOTS: usize = 4;

/// What all threads share.
struct World {
    lines: Vec<Line>,
    desk: Desk,
    bytes: Vec<UnsafeCell<u64>>,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            lines: (0..2).map(|_| Line::default()).collect(),
            desk: Desk::default(),
            bytes: (0..SLOTS).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn lines(&self) -> Lines<'_> {
        Lines::new(&self.lines).expect("a power of two")
    }

    fn reading(&self) -> Reading<'_> {
        Reading {
            lines: self.lines(),
            desk: &self.desk,
            table: &[],
        }
    }

    fn fill(&self, slot: u32, n: u64) {
        self.bytes[slot as usize].with_mut(|bytes| {
            // SAFETY: what is tested: loom checks that no reader reads it.
            unsafe { *bytes = n }
        });
    }

    fn check(&self, slot: u32, n: u64) {
        self.bytes[slot as usize].with(|bytes| {
            // SAFETY: what is tested: loom checks that nobody fills it.
            assert_eq!(unsafe { *bytes }, n);
        });
    }
}

/// Of the content only two words are real: all others take loom's time alone.
struct Short<'a>(Lines<'a>);

impl WriterMemory for Short<'_> {
    type Stop = Infallible;
    fn set_first(&self, position: u64, word: u64) -> Result<(), Infallible> {
        self.0.set_first(position, word)
    }
    fn set_word(&self, position: u64, index: usize, word: u64) -> Result<(), Infallible> {
        match index {
            1 | 2 => self.0.set_word(position, index, word),
            _ => Ok(()),
        }
    }
    fn set_last(&self, position: u64, word: u64) -> Result<(), Infallible> {
        self.0.set_last(position, word)
    }
    fn fence_release(&self) -> Result<(), Infallible> {
        self.0.fence_release()
    }
}

#[derive(Default)]
struct Free(Vec<u32>);

impl Outcome for Free {
    fn free(&mut self, slot: u32) {
        self.0.push(slot);
    }
}

/// Publishes so many messages, each in a buffer of its own: with few buffers they are used again.
fn write(world: &World, slots: u32, messages: u64, limits: Limits) {
    let lines = Short(world.lines());
    let views = [Some(DeskView {
        desk: &world.desk,
        table: &[],
    })];
    let desks: &[Option<DeskView<'_>>] = &views;
    let mut rounds = Rounds::new(slots, Pace::PRODUCTION);
    let mut published = Published::new(2, 0, rounds.add_ring(2));
    rounds.join(0, 0, limits);
    let mut free = Free((0..slots).rev().collect());
    for n in 1..=messages {
        if free.0.is_empty() {
            let Ok(_) = collect(&mut rounds, desks, &mut free);
        }
        let Some(slot) = free.0.pop() else { return };
        world.fill(slot, n);
        let message = Message {
            kind: 0,
            content: [slot.into(), n, 0, 0, 0, 0],
        };
        let Ok(_) = published.publish(&lines, &mut rounds, message, slot);
    }
}

fn collect<D: Desks + ?Sized>(
    rounds: &mut Rounds,
    desks: &D,
    free: &mut Free,
) -> Result<u64, D::Stop> {
    rounds.collect(desks, free)
}

/// Looks so many times; each message goes to `use_it`.
fn read(
    world: &World,
    looks: usize,
    limits: Limits,
    mut use_it: impl FnMut(&mut Reader, u32, u64),
) {
    let mut reader = Reader::new(0, limits);
    for _ in 0..looks {
        let Ok(received) = reader.receive(&world.reading());
        match received {
            Received::Message(message) => {
                let [slot, n, ..] = message.content;
                let slot = u32::try_from(slot).expect("a slot");
                use_it(&mut reader, slot, n);
            }
            Received::Nothing => loom::thread::yield_now(),
            Received::Missed(_) => {}
            Received::Unfinished => unreachable!("each is finished"),
        }
    }
}

fn limits(window: u8) -> Limits {
    Limits {
        window,
        entries: 1,
        ..Limits::new(0)
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Claim, receipt and drop against overwriting and a round.
#[test]
fn what_a_window_covers_is_not_reused() {
    explore(|| {
        let world = World::new();
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || write(&theirs, 3, 5, limits(1)));
        read(&world, 3, limits(1), |reader, slot, n| {
            world.check(slot, n);
            let Ok(()) = reader.finish(&world.reading());
        });
        writer.join().unwrap();
    });
}

/// A hold, the window that moves on after it, and another thread that lets go.
#[test]
fn what_is_kept_is_not_reused_until_another_thread_lets_go() {
    explore(|| {
        let world = World::new();
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || write(&theirs, 3, 5, limits(2)));
        let mut other = None;
        read(&world, 2, limits(2), |reader, slot, n| {
            let Ok(held) = reader.hold(&world.reading(), slot, 0);
            let Ok(hold) = held else {
                // The entry is in use: the message is dropped.
                let Ok(()) = reader.finish(&world.reading());
                return;
            };
            let Ok(()) = reader.finish(&world.reading());
            let theirs = Arc::clone(&world);
            other = Some(thread::spawn(move || {
                theirs.check(slot, n);
                let Ok(()) = let_go(&theirs.reading(), hold);
                assert_eq!(hold, Hold::Entry(0));
            }));
        });
        writer.join().unwrap();
        if let Some(other) = other {
            other.join().unwrap();
        }
    });
}
