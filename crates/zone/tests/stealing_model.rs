//! The theft of a cache, explored exhaustively: every interleaving of an owner's fast path and a thief, on processors that
//! hold stores back (a store buffer each, which may reach memory at any later moment).
//!
//! The steps are those of `Cache::enter` and of `Shut::steal`. What is left out: the lock (who holds it is alone with the
//! thief's half), and what `seen` is compared with. Stronger processors have fewer behaviours; on weaker ones the fence
//! of the barrier and the release and acquire on the busy mark order the rest, as `cache.rs` says.

use std::collections::{HashSet, VecDeque};

/// Places in memory.
const BUSY: usize = 0;
const SEEN: usize = 1;
const ITEMS: usize = 2;

/// Allocations that the owner tries.
const ROUNDS: u8 = 3;
const STOCK: u8 = 5;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: [u8; 3],
    /// What each processor has stored and memory has not seen: owner, thief.
    buffers: [VecDeque<(usize, u8)>; 2],
    steps: [u8; 2],
    /// What a step loaded for a later one.
    loaded: [u8; 2],
    rounds: u8,
    taken: [u8; 2],
}

/// Which part of the protocol is left out, to see that it is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Barrier,
    Busy,
    Waiting,
}

impl State {
    fn new() -> Self {
        Self {
            memory: [0, 1, STOCK],
            buffers: [VecDeque::new(), VecDeque::new()],
            steps: [0, 0],
            loaded: [0, 0],
            rounds: 0,
            taken: [0, 0],
        }
    }

    /// A processor sees its own stores at once.
    fn load(&self, who: usize, place: usize) -> u8 {
        let own = self.buffers[who].iter().rev().find(|(at, _)| *at == place);
        own.map_or(self.memory[place], |(_, value)| *value)
    }

    fn store(&mut self, who: usize, place: usize, value: u8) {
        self.buffers[who].push_back((place, value));
    }

    fn drain_one(&mut self, who: usize) {
        if let Some((place, value)) = self.buffers[who].pop_front() {
            self.memory[place] = value;
        }
    }

    fn owner(&mut self, without: Without) -> bool {
        match self.steps[0] {
            0 if self.rounds == ROUNDS => return false,
            0 if without != Without::Busy => self.store(0, BUSY, 1),
            0 => {}
            // Cleared: to the lock, where the thief is. That is the end here.
            1 if self.load(0, SEEN) == 0 => {
                self.store(0, BUSY, 0);
                self.rounds = ROUNDS;
                self.steps[0] = 0;
                return true;
            }
            1 => {}
            2 => self.loaded[0] = self.load(0, ITEMS),
            3 if self.loaded[0] > 0 => {
                self.store(0, ITEMS, self.loaded[0] - 1);
                self.taken[0] += 1;
            }
            3 => {}
            _ => {
                self.store(0, BUSY, 0);
                self.rounds += 1;
                self.steps[0] = 0;
                return true;
            }
        }
        self.steps[0] += 1;
        true
    }

    fn thief(&mut self, without: Without) -> bool {
        match self.steps[1] {
            0 => self.store(1, SEEN, 0),
            1 => {
                // The barrier: both processors pass a fence.
                while !self.buffers[1].is_empty() {
                    self.drain_one(1);
                }
                while without != Without::Barrier && !self.buffers[0].is_empty() {
                    self.drain_one(0);
                }
            }
            2 if self.load(1, BUSY) == 1 && without != Without::Waiting => return false,
            2 => {}
            3 => self.loaded[1] = self.load(1, ITEMS),
            4 => {
                self.taken[1] += self.loaded[1];
                self.store(1, ITEMS, 0);
            }
            _ => return false,
        }
        self.steps[1] += 1;
        true
    }

    fn is_over(&self) -> bool {
        let empty = self.buffers.iter().all(VecDeque::is_empty);
        empty && self.rounds == ROUNDS && self.steps == [0, 5]
    }
}

/// Explores everything; returns how many states there are and whether items were ever doubled or lost at the end.
fn explore(without: Without) -> (usize, bool) {
    let mut seen = HashSet::from([State::new()]);
    let mut open = vec![State::new()];
    let mut wrong = false;
    let mut ends = 0;
    while let Some(state) = open.pop() {
        if state.is_over() {
            ends += 1;
            wrong |= state.taken[0] + state.taken[1] + state.memory[ITEMS] != STOCK;
        }
        for step in 0..4 {
            let mut next = state.clone();
            let moved = match step {
                0 => next.owner(without),
                1 => next.thief(without),
                who => {
                    next.drain_one(who - 2);
                    next.buffers != state.buffers
                }
            };
            if moved && seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    assert!(ends > 0, "nothing ever ends");
    (seen.len(), wrong)
}

#[test]
fn no_item_is_doubled_or_lost_in_any_interleaving() {
    let (states, wrong) = explore(Without::Nothing);
    assert!(states > 100, "{states}");
    assert!(!wrong);
}

#[test]
fn each_part_of_the_protocol_is_needed() {
    for without in [Without::Barrier, Without::Busy, Without::Waiting] {
        assert!(explore(without).1);
    }
}
