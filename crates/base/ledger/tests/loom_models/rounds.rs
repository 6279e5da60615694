//! Rounds under weak memory: a buffer is filled anew only after the last reader's last access, and a reader accepts only
//! whole lines. Data lie in cells that loom watches: a buffer that is reused early is a data race.
//!
//! Seen failing: the fence of `claim` left out; the fence of `begin` left out; `win` stored, or loaded, relaxed; `kept`
//! stored relaxed by the thread that lets go; `win` stored before `kept`; the drop before the last access; word 7 not
//! compared. Not seen: `kept` loaded relaxed, for which the acquire of `more` after it stands in.
//!
//! The last tests have holds as a topic's subscriber has them (`Holds` in `crates/core/core`): each handle counts itself,
//! any thread drops it, and the receiving thread clears the desk's entry later. Not seen: that thread reads the count
//! relaxed, for loom lets the writer's acquire fence stand in.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tranship_ledger::rounds::{DeskView, Desks, Outcome, Pace, Published, Rounds};
use tranship_ledger::{raise, release};
use tranship_ring::broadcast::ReaderMemory;
use tranship_ring::broadcast::{
    Desk, Hold, Limits, Message, Reader, Reading, Received, WriterMemory, let_go,
};
use tranship_ring::{Line, Lines};
use tranship_sync::atomic::{AtomicU32, Ordering};

const SLOTS: usize = 4;

/// Memory that all threads share.
struct World {
    lines: Vec<Line>,
    desk: Desk,
    /// The reader's references, in which handles count themselves: the table.
    refs: Vec<AtomicU32>,
    bytes: Vec<UnsafeCell<u64>>,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            lines: (0..2).map(|_| Line::default()).collect(),
            desk: Desk::default(),
            refs: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
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
        table: &world.refs,
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

/// How a topic's subscriber holds, and what it may do in another way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Right,
    /// The entry is cleared, or the table said to be empty, while a handle is there.
    TidiesAtOnce,
    /// The desk says that the table has the buffer, the window goes, then the handle is counted.
    CountsLate,
}

/// A subscriber that holds one buffer at a time, in an entry or in the table, and another thread that drops it.
fn subscribes(entries: u8, does: Does) {
    let limits = Limits {
        window: 2,
        entries,
        ..Limits::new(1)
    };
    let world = World::new();
    let theirs = Arc::clone(&world);
    let subscriber = thread::spawn(move || take_and_hold(&theirs, limits, does));
    write(&world, 3, 5, limits);
    subscriber.join().unwrap();
}

fn take_and_hold(world: &Arc<World>, limits: Limits, does: Does) {
    let mut held: Option<(Hold, u32)> = None;
    let mut others = Vec::new();
    read(world, 2, limits, |reader, slot, n| {
        let memory = world.reading();
        if let Some((hold, slot)) = held {
            let is_gone = world.refs[slot as usize].load(Ordering::Acquire) == 0;
            if is_gone || does == Does::TidiesAtOnce {
                let Ok(()) = match hold {
                    Hold::Entry(entry) => memory.set_kept(entry, 0),
                    Hold::Table(_) => reader.empty_table(&memory, 0),
                };
                held = None;
            }
        }
        if held.is_none() {
            let count = || raise(&world.refs[slot as usize]);
            if does != Does::CountsLate {
                count();
            }
            let Ok(hold) = reader.hold(&memory, slot, 0);
            let Ok(hold) = hold else {
                unreachable!("there is room")
            };
            held = Some((hold, slot));
            let Ok(()) = reader.finish(&memory);
            if does == Does::CountsLate {
                count();
            }
            let theirs = Arc::clone(world);
            others.push(thread::spawn(move || {
                theirs.check(slot, n);
                release(&theirs.refs[slot as usize]);
            }));
        } else {
            let Ok(()) = reader.finish(&memory);
        }
    });
    for other in others {
        other.join().unwrap();
    }
}

fn fails(entries: u8, does: Does) {
    let run = || explore(move || subscribes(entries, does));
    assert!(
        catch_unwind(AssertUnwindSafe(run)).is_err(),
        "nothing was found"
    );
}

#[test]
fn an_entry_goes_after_the_last_handle() {
    explore(|| subscribes(1, Does::Right));
}

#[test]
fn a_table_of_handles_is_read_after_the_window() {
    explore(|| subscribes(0, Does::Right));
}

#[test]
fn an_entry_that_goes_before_its_handle_is_found() {
    fails(1, Does::TidiesAtOnce);
}

#[test]
fn a_handle_that_is_counted_late_is_found() {
    fails(0, Does::CountsLate);
}
