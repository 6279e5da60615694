//! The theft of a cache, explored exhaustively: every interleaving of an owner's fast path and a thief, on processors
//! that hold stores back (a store buffer each, which may reach memory at any later moment).
//!
//! The steps are those of `Front::pop`, of `Shut::steal` and of `Front::take_top`. Three parts are left out: the lock
//! (its holder is alone with the thief's half), the word to which `seen` is compared, and the count of frees. The owner
//! and the thief treat the latter like the count of allocations. Stronger processors have fewer behaviours; on weaker
//! ones the fence of the barrier and the release and acquire on the busy mark order the rest, as `cache.rs` says.

use std::collections::{HashSet, VecDeque};

/// Positions in memory. The first holds twice the items handed out, odd while the owner is busy. The second says
/// whether the cache is open. The third holds twice the items that there would be if none had been handed out.
const COUNT: usize = 0;
const SEEN: usize = 1;
const ORIGIN: usize = 2;

/// Allocations that the owner tries.
const ROUNDS: u8 = 3;
/// Twice the items.
const STOCK: u8 = 10;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: [u8; 3],
    /// Each processor's stores that memory has not seen: owner, thief.
    buffers: [VecDeque<(usize, u8)>; 2],
    steps: [u8; 2],
    /// The count that the owner loaded.
    before: u8,
    rounds: u8,
    /// Twice the items.
    taken: [u8; 2],
}

/// The part of the protocol that is left out, to see that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    Barrier,
    Busy,
    Waiting,
    /// Without the care for the count of an owner that finds its cache shut.
    Settling,
}

impl State {
    fn new() -> Self {
        Self {
            memory: [0, 1, STOCK],
            buffers: [VecDeque::new(), VecDeque::new()],
            steps: [0, 0],
            before: 0,
            rounds: 0,
            taken: [0, 0],
        }
    }

    /// Loads a word: a processor sees its own stores at once.
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
        let before = self.before;
        match self.steps[0] {
            0 if self.rounds == ROUNDS => return false,
            0 => {
                self.before = self.load(0, COUNT);
                if without != Without::Busy {
                    self.store(0, COUNT, self.before + 1);
                }
            }
            // The owner finds `seen` cleared, and takes the lock, where the thief is. That is the end here.
            1 if self.load(0, SEEN) == 0 => {
                if without != Without::Busy {
                    self.store(0, COUNT, before);
                }
                self.rounds = ROUNDS;
                self.steps[0] = 0;
                return true;
            }
            1 => {}
            _ => {
                let is_empty = self.load(0, ORIGIN) == before;
                self.taken[0] += 2 * u8::from(!is_empty);
                self.store(0, COUNT, if is_empty { before } else { before + 2 });
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
            2 if self.load(1, COUNT) % 2 == 1 && without != Without::Waiting => return false,
            2 => {}
            3 => self.taken[1] = self.load(1, ORIGIN) - self.settled(without),
            4 => self.store(1, ORIGIN, self.settled(without)),
            _ => return false,
        }
        self.steps[1] += 1;
        true
    }

    /// Returns the count as the thief reads it.
    fn settled(&self, without: Without) -> u8 {
        match without {
            Without::Settling => self.load(1, COUNT),
            _ => self.load(1, COUNT) & !1,
        }
    }

    fn is_over(&self) -> bool {
        let empty = self.buffers.iter().all(VecDeque::is_empty);
        empty && self.rounds == ROUNDS && self.steps == [0, 5]
    }
}

/// Explores everything; returns the number of states, and whether items were ever doubled or lost at the end.
fn explore(without: Without) -> (usize, bool) {
    let mut seen = HashSet::from([State::new()]);
    let mut open = vec![State::new()];
    let mut wrong = false;
    let mut ends = 0;
    while let Some(state) = open.pop() {
        if state.is_over() {
            ends += 1;
            let left = i32::from(state.memory[ORIGIN]) - i32::from(state.memory[COUNT]);
            wrong |= left < 0 || left + i32::from(state.taken[0] + state.taken[1]) != STOCK.into();
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
    use Without::{Barrier, Busy, Settling, Waiting};
    for without in [Barrier, Busy, Waiting, Settling] {
        assert!(explore(without).1, "{without:?}");
    }
}
