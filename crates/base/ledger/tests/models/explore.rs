//! Breadth first over all reachable states.
//!
//! A visited state is remembered by a 128-bit fingerprint (for n states the chance that two share one is below
//! n^2 / 2^129: 10^-23 for a hundred million).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::config::Config;
use crate::state::State;
use crate::{collector, domain, liar, manager, writer};

/// Collects the successors of one state; labels only if somebody will read them.
pub struct Steps {
    pub next: Vec<(&'static str, u8, u8, State)>,
}

impl Steps {
    pub fn push(&mut self, what: &'static str, who: u8, whom: u8, state: State) {
        self.next.push((what, who, whom, state));
    }
}

#[derive(Debug)]
pub struct Outcome {
    pub states: usize,
    pub depth: usize,
    pub violation: Option<(&'static str, Vec<String>)>,
}

/// Two independent lanes over the bytes of a state, eight at a time. All states have the same shape, so lengths of
/// arrays are left out.
struct Two {
    lanes: (u64, u64),
    word: u64,
    bytes: u32,
}

impl Two {
    fn byte(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        self.bytes += 1;
        if self.bytes == 8 {
            self.mix();
        }
    }

    fn mix(&mut self) {
        let (a, b) = self.lanes;
        let a = (a ^ self.word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let b = (b.rotate_left(23) ^ self.word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.lanes = (a ^ a >> 29, b ^ b >> 32);
        (self.word, self.bytes) = (0, 0);
    }
}

impl Hasher for Two {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.byte(byte);
        }
    }
    fn write_usize(&mut self, _length: usize) {}
    fn write_isize(&mut self, discriminant: isize) {
        self.byte(discriminant.to_le_bytes()[0]);
    }
    fn finish(&self) -> u64 {
        self.lanes.0
    }
}

fn fingerprint(state: &State) -> u128 {
    let mut two = Two {
        lanes: (1, 2),
        word: 0,
        bytes: 0,
    };
    state.hash(&mut two);
    two.mix();
    two.mix();
    u128::from(two.lanes.0) << 64 | u128::from(two.lanes.1)
}

/// Fingerprints are random already.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn write(&mut self, _: &[u8]) {}
    fn write_u128(&mut self, n: u128) {
        #[allow(clippy::cast_possible_truncation, reason = "any 64 bits do")]
        let low = n as u64;
        self.0 = low;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type Seen = HashSet<u128, BuildHasherDefault<Plain>>;

fn successors(config: &Config, state: &State, steps: &mut Steps) {
    steps.next.clear();
    domain::steps(config, state, steps);
    writer::steps(config, state, steps);
    liar::steps(config, state, steps);
    collector::steps(config, state, steps);
    manager::steps(config, state, steps);
    for (_, _, _, next) in &mut steps.next {
        next.normalise(config);
        manager::check_quiescence(config, next);
    }
}

pub fn explore(config: &Config) -> Outcome {
    let mut seen = Seen::default();
    let mut steps = Steps { next: Vec::new() };
    let mut frontier = vec![State::initial(config)];
    seen.insert(fingerprint(&frontier[0]));
    let mut depth = 0;
    while !frontier.is_empty() {
        let mut next_frontier = Vec::new();
        for state in &frontier {
            successors(config, state, &mut steps);
            for &(_, _, _, next) in &steps.next {
                if !seen.insert(fingerprint(&next)) {
                    continue;
                }
                if let Some(why) = next.wrong {
                    let trace = trace(config, fingerprint(&next));
                    return Outcome {
                        states: seen.len(),
                        depth,
                        violation: Some((why, trace)),
                    };
                }
                next_frontier.push(next);
            }
        }
        frontier = next_frontier;
        depth += 1;
    }
    Outcome {
        states: seen.len(),
        depth,
        violation: None,
    }
}

/// Goes the way again, this time remembering it.
fn trace(config: &Config, goal: u128) -> Vec<String> {
    let mut came: HashMap<u128, (u128, String)> = HashMap::new();
    let mut steps = Steps { next: Vec::new() };
    let start = State::initial(config);
    let mut frontier = vec![start];
    came.insert(fingerprint(&start), (0, String::new()));
    'search: while !frontier.is_empty() {
        let mut next_frontier = Vec::new();
        for state in &frontier {
            let from = fingerprint(state);
            successors(config, state, &mut steps);
            for &(what, who, whom, next) in &steps.next {
                let print = fingerprint(&next);
                if came.contains_key(&print) {
                    continue;
                }
                came.insert(print, (from, describe(what, who, whom)));
                if print == goal {
                    break 'search;
                }
                next_frontier.push(next);
            }
        }
        frontier = next_frontier;
    }
    let mut path = Vec::new();
    let mut at = goal;
    while let Some((from, label)) = came.get(&at) {
        if label.is_empty() {
            break;
        }
        path.push(label.clone());
        at = *from;
    }
    path.reverse();
    path
}

fn describe(what: &str, who: u8, whom: u8) -> String {
    let name = |d: u8| {
        ["A", "B", "C", "E", "A, second thread"]
            .get(usize::from(d))
            .copied()
            .unwrap_or("-")
    };
    match who {
        100 => format!("collector: {what} {whom}"),
        101 => format!("manager: {what} {whom}"),
        _ => format!("{}: {what} {whom}", name(who)),
    }
}
