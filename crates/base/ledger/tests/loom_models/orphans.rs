//! The buffers of a topic whose publisher has died, under weak memory. The manager judges them by the counters; no desk is
//! read any more. A subscriber's `rcvd` is 1 from its beginning, the publisher's `sent` 0 for ever. So every buffer counts as
//! on its way to this subscriber until it has emptied the ring and its queue leaves.
//!
//! The manager may be a new one after a restart: it knows of a subscriber by that subscriber's claim alone.
//!
//! The buffer's bytes are a cell that loom watches: memory that the manager gives back early is a data race.

use loom::cell::UnsafeCell;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tranship_ledger::{Queue, Reader, Source, Words, are_alive, raise, release};
use tranship_sync::atomic::{AtomicU32, Ordering};

/// The step that a model takes in another way than the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Right,
    /// The subscriber's `rcvd` is 0, as on a channel of which nothing was received.
    CountsNothing,
    /// The subscriber's queue leaves, then the subscriber takes what the ring still has.
    LeavesFirst,
    /// The manager reads the references, then hears that the queue has left.
    LooksFirst,
    /// A new manager judges before the subscriber has claimed anything.
    JudgesUnclaimed,
    /// A queue never leaves.
    Stays,
}

/// The manager's knowledge of the subscriber: the word of its last message.
const NOTHING: u32 = 0;
const CLAIMED: u32 = 1;
const LEFT: u32 = 2;

/// One buffer, in a line of the dead publisher's ring.
struct World {
    bytes: UnsafeCell<u32>,
    sent: AtomicU32,
    rcvd: AtomicU32,
    refs: AtomicU32,
    said: AtomicU32,
}

struct View<'a>(&'a AtomicU32);

impl Words for View<'_> {
    fn load(&self, _: u32) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

impl World {
    fn new(does: Does, is_new: bool) -> World {
        World {
            bytes: UnsafeCell::new(0),
            sent: AtomicU32::new(0),
            rcvd: AtomicU32::new(u32::from(does != Does::CountsNothing)),
            refs: AtomicU32::new(0),
            said: AtomicU32::new(if is_new { NOTHING } else { CLAIMED }),
        }
    }

    fn look(&self) {
        self.bytes.with(|bytes| {
            // SAFETY: what is tested: loom checks that nobody gives it back meanwhile.
            assert_eq!(unsafe { *bytes }, 0, "its memory was given back");
        });
    }

    /// Takes what the ring has, and leaves. Another thread drops the buffer.
    fn subscribe(world: &Arc<World>, does: Does, is_new: bool) {
        if is_new {
            world.said.store(CLAIMED, Ordering::Release);
        }
        if does == Does::LeavesFirst {
            world.said.store(LEFT, Ordering::Release);
        }
        raise(&world.refs);
        world.look();
        let theirs = Arc::clone(world);
        let other = thread::spawn(move || {
            theirs.look();
            release(&theirs.refs);
        });
        if does != Does::LeavesFirst && does != Does::Stays {
            world.said.store(LEFT, Ordering::Release);
        }
        other.join().unwrap();
    }

    /// One verdict. True: the memory was given back.
    fn judge(&self, does: Does) -> bool {
        let early = self.refs.load(Ordering::Acquire);
        let said = self.said.load(Ordering::Acquire);
        if said == NOTHING && does != Does::JudgesUnclaimed {
            return false;
        }
        let (mut queues, mut readers) = (Vec::new(), Vec::new());
        if said == CLAIMED {
            queues.push(Queue {
                channel: 1,
                source: Source::Writer,
                sent: View(&self.sent),
                rcvd: View(&self.rcvd),
            });
        }
        let early = AtomicU32::new(early);
        if said != NOTHING {
            let refs = match does {
                Does::LooksFirst => View(&early),
                _ => View(&self.refs),
            };
            readers.push(Reader { domain: 1, refs });
        }
        if are_alive(&queues, &readers, &[0]) == [true] {
            return false;
        }
        self.bytes.with_mut(|bytes| {
            // SAFETY: what is tested: loom checks that no subscriber reads it.
            unsafe { *bytes = 1 }
        });
        true
    }
}

/// A manager looks some times while a subscriber receives, and once more when all is over.
fn judged(does: Does, is_new: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || {
        let world = Arc::new(World::new(does, is_new));
        let theirs = Arc::clone(&world);
        let subscriber = thread::spawn(move || World::subscribe(&theirs, does, is_new));
        let is_back = (0..2).any(|_| world.judge(does));
        subscriber.join().unwrap();
        assert!(is_back || world.judge(does), "its memory leaks");
    });
}

fn fails(does: Does, is_new: bool) {
    let run = || judged(does, is_new);
    assert!(
        catch_unwind(AssertUnwindSafe(run)).is_err(),
        "nothing was found"
    );
}

#[test]
fn memory_goes_back_after_the_last_look() {
    judged(Does::Right, false);
}

#[test]
fn a_new_manager_judges_alike() {
    judged(Does::Right, true);
}

#[test]
fn each_rule_is_needed() {
    fails(Does::CountsNothing, false);
    fails(Does::LeavesFirst, false);
    fails(Does::LooksFirst, false);
    fails(Does::JudgesUnclaimed, true);
    fails(Does::Stays, false);
}
