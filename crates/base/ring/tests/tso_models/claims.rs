//! The claims of a queue under total store order: every interleaving of the product's own functions, with store buffers.
//!
//! * An item is taken by one reader, and the writer takes none for done that is not.
//! * No wake-up is lost: as many readers as there are items sleep, each takes one, and a sleep without end is seen. One
//!   system call wakes one of them.
//!
//! Seen failing, besides the cases kept as tests: `arm` with the bell read after the flag; `wake_one` without the look
//! whether a waiter was found.

use tranship_ring::broadcast::{Claim, Claims, Front, Open, Opens};
use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tranship_sync::full_fence;
use tranship_tso::{self as tso, Model};

/// Items that wait from the beginning.
const ITEMS: u64 = 2;

/// A queue whose lines are all published.
#[derive(Default)]
struct Queue {
    front: Front,
    words: [AtomicU64; 2],
    opens: [Opens; 2],
    /// How often each item was taken, and its work done.
    taken: [AtomicU32; 2],
    done: [AtomicU32; 2],
}

/// Broken variants, which a model has to find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Right,
    /// The entry follows the claim.
    EntersLate,
    /// The claim is a load and a store.
    Stores,
}

impl Queue {
    fn claims(&self) -> Claims<'_> {
        Claims::new(&self.front, &self.words)
    }

    fn take(&self, reader: u16, position: u64, does: Does) {
        let (claims, opens) = (self.claims(), &self.opens[usize::from(reader - 1)]);
        let Claim::Free(seen) = claims.of(position) else {
            return;
        };
        let enter = || opens.enter(position, 1).expect("it is free");
        let early = (does != Does::EntersLate).then(enter);
        let took = match does {
            Does::Stores => {
                let mine = tranship_ring::broadcast::taken(position, reader);
                self.words[position as usize].store(mine, Ordering::Release);
                true
            }
            _ => claims.take(position, seen, reader),
        };
        let entry = early.unwrap_or_else(enter);
        let at = position as usize;
        if took {
            self.taken[at].fetch_add(1, Ordering::Relaxed);
            self.done[at].store(1, Ordering::Relaxed);
        }
        opens.clear(entry);
    }

    /// The writer takes an item for done that was taken and that no entry names.
    fn settle(&self) {
        for position in 0..ITEMS {
            if let Claim::Taken(reader) = self.claims().of(position) {
                let open = self.opens[usize::from(reader - 1)].of(position);
                assert!(matches!(open, None | Some(Open::Held)));
                let done = self.done[position as usize].load(Ordering::Relaxed);
                assert!(open.is_some() || done == 1, "it is not done");
            }
        }
    }
}

fn taking(does: Does) -> Model<Queue> {
    let reader = move |queue: &Queue, number| {
        for position in 0..ITEMS {
            queue.take(number, position, does);
        }
    };
    Model::new(Queue::default)
        .thread("reader 1", move |queue| reader(queue, 1))
        .thread("reader 2", move |queue| reader(queue, 2))
        .thread("writer", Queue::settle)
        .at_end(|queue: &Queue| {
            for taken in &queue.taken {
                assert_eq!(taken.load(Ordering::Relaxed), 1, "each item is taken once");
            }
        })
}

#[test]
fn an_item_is_taken_once_and_done_when_it_is() {
    taking(Does::Right).holds("taking");
}

#[test]
fn an_entry_that_follows_the_claim_is_too_late() {
    let why = taking(Does::EntersLate).breaks("an entry that is late");
    assert!(why.contains("it is not done"), "{why}");
}

#[test]
fn a_claim_is_one_instruction() {
    let why = taking(Does::Stores).breaks("a claim that is a store");
    assert!(why.contains("once") || why.contains("done"), "{why}");
}

/// Two producers' claims, and the items that each has published.
#[derive(Default)]
struct Bells {
    fronts: [Front; 2],
    words: [AtomicU64; 1],
    published: [AtomicU32; 2],
    taken: [AtomicU32; 2],
}

/// Step that a waker leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    WakersFence,
    SleepersFence,
}

impl Bells {
    fn claims(&self, at: usize) -> Claims<'_> {
        Claims::new(&self.fronts[at], &self.words)
    }

    fn publish(&self, at: usize, without: Without) {
        let before = self.published[at].load(Ordering::Relaxed);
        self.published[at].store(before + 1, Ordering::Release);
        if without != Without::WakersFence {
            full_fence();
        }
        let wake = |word: &AtomicU32| tso::wake_one(word).unwrap_or(0);
        self.claims(at).wake_one(wake);
    }

    /// Takes an item of any producer, if there is one.
    fn take(&self) -> bool {
        (0..2).any(|at| {
            let taken = self.taken[at].load(Ordering::Acquire);
            let waits = taken < self.published[at].load(Ordering::Acquire);
            let (to, seq) = (taken + 1, Ordering::SeqCst);
            waits
                && self.taken[at]
                    .compare_exchange(taken, to, seq, Ordering::Relaxed)
                    .is_ok()
        })
    }

    fn waits(&self) -> bool {
        (0..2).any(|at| {
            let taken = self.taken[at].load(Ordering::Acquire);
            taken < self.published[at].load(Ordering::Acquire)
        })
    }

    /// Takes one item; sleeps until it has one.
    fn consume(&self, producers: usize, without: Without) {
        while !self.take() {
            let seen: Vec<u32> = (0..producers).map(|at| self.claims(at).arm()).collect();
            if without != Without::SleepersFence {
                full_fence();
            }
            if !self.waits() {
                let words = seen.iter().enumerate();
                tso::sleep_on(words.map(|(at, seen)| (self.claims(at).bell(), *seen)));
            }
        }
    }
}

fn sleeping(producers: [u32; 2], consumers: usize, without: Without) -> Model<Bells> {
    let of = producers.iter().filter(|items| **items > 0).count();
    let mut model = Model::new(Bells::default);
    for (at, items) in producers.into_iter().enumerate().take(of) {
        model = model.thread("producer", move |bells: &Bells| {
            for _ in 0..items {
                bells.publish(at, without);
            }
        });
    }
    for _ in 0..consumers {
        model = model.thread("consumer", move |bells: &Bells| bells.consume(of, without));
    }
    model
}

#[test]
fn each_item_wakes_a_sleeper() {
    sleeping([1, 0], 1, Without::Nothing).holds("1 item, 1 sleeper");
    sleeping([2, 0], 2, Without::Nothing).holds("2 items, 2 sleepers");
}

#[test]
fn items_of_two_producers_wake_two_sleepers() {
    // 600,000 states.
    if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        sleeping([1, 1], 2, Without::Nothing).holds("2 producers, 2 sleepers");
    }
    sleeping([1, 1], 1, Without::Nothing).holds("2 producers, 1 sleeper");
}

#[test]
fn without_a_fence_a_wake_up_is_lost() {
    sleeping([1, 0], 1, Without::WakersFence).breaks("no fence of the waker");
    sleeping([1, 0], 1, Without::SleepersFence).breaks("no fence of the sleeper");
}
