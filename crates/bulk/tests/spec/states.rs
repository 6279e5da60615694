//! Every reachable state of small configurations, by breadth-first search; the way to the first bad one.

use crate::setup::{Does, channel, does, pool, wish};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use tranship_bulk::spec::{Model, Op, Outcome};
use tranship_bulk::{Direction, Trust};

/// What may happen, and how much of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limits {
    queue: usize,
    copies: u32,
    /// Assign, remove, close, veto.
    channel_ops: bool,
    kills: bool,
}

/// Everything that may be tried, possible or not.
pub fn choices(model: &Model, limits: &Limits) -> Vec<Op> {
    let mut ops = Vec::new();
    for (channel, found) in &model.channels {
        for end in found.ends.iter().flatten() {
            let (domain, channel) = (end.domain, *channel);
            if !model.alive[usize::from(domain)] {
                continue;
            }
            ops.push(Op::Deliver { domain, channel });
            if limits.channel_ops {
                ops.push(Op::Close { domain, channel });
                ops.push(Op::Forget { domain, channel });
                for pool in model.pools.keys() {
                    let pool = *pool;
                    ops.push(Op::Assign {
                        domain,
                        channel,
                        pool,
                    });
                    ops.push(Op::Remove {
                        domain,
                        channel,
                        pool,
                    });
                }
            }
            for buffer in model.buffers.keys() {
                let (buffer, meta) = (*buffer, 0);
                ops.push(Op::Move {
                    domain,
                    channel,
                    buffer,
                    meta,
                });
                ops.push(Op::Pass {
                    domain,
                    channel,
                    buffer,
                    meta,
                });
                ops.push(Op::Copy {
                    domain,
                    channel,
                    buffer,
                    meta,
                });
                ops.push(Op::Release {
                    domain,
                    channel,
                    buffer,
                    meta,
                });
            }
        }
    }
    if limits.kills {
        let first = !model.alive.contains(&false);
        ops.extend(
            (0..)
                .zip(&model.alive)
                .filter(|_| first)
                .map(|(domain, _)| Op::Kill { domain }),
        );
    }
    ops
}

fn too_far(model: &Model, limits: &Limits) -> bool {
    let ends = model
        .channels
        .values()
        .flat_map(|c| c.ends.iter().flatten());
    let long = ends.into_iter().any(|end| end.queue.len() > limits.queue);
    let many = model.buffers.values().any(|buffer| {
        let out = buffer.copies.values().map(|c| u32::from(c.out));
        out.sum::<u32>() > limits.copies
    });
    long || many
}

/// Explores, and shows each way from state to state; returns their numbers.
pub fn explore(
    start: Model,
    limits: &Limits,
    mut way: impl FnMut(usize, &Op, usize),
) -> HashMap<Model, usize> {
    start.check().expect("the start is fine");
    let mut ids: HashMap<Model, usize> = HashMap::from([(start.clone(), 0)]);
    let mut from: Vec<Option<(usize, Op)>> = vec![None];
    let mut open = VecDeque::from([(0, start)]);
    while let Some((id, model)) = open.pop_front() {
        for op in choices(&model, limits) {
            let mut next = model.clone();
            match next.step(&op) {
                Err(_) => {
                    assert_eq!(next, model, "a refused {op:?} changed something");
                    continue;
                }
                Ok(Outcome::Nothing) => continue,
                Ok(_) => {}
            }
            if too_far(&next, limits) {
                continue;
            }
            let new = from.len();
            let known = ids.get(&next).copied();
            way(id, &op, known.unwrap_or(new));
            if known.is_some() {
                continue;
            }
            from.push(Some((id, op)));
            if let Err(what) = next.check() {
                let mut steps = Vec::new();
                let mut at = new;
                while let Some((before, op)) = &from[at] {
                    steps.push(format!("{op:?}"));
                    at = *before;
                }
                steps.reverse();
                panic!("{what}\nafter\n{}", steps.join("\n"));
            }
            ids.insert(next.clone(), new);
            open.push_back((new, next));
        }
    }
    ids
}

/// A small configuration.
pub struct Case {
    pub domains: u8,
    pub start: fn(&mut dyn Does),
    pub limits: Limits,
}

impl Case {
    pub fn model(&self) -> Model {
        let mut model = Model::new(self.domains);
        (self.start)(&mut model);
        model
    }
}

pub fn torture() -> bool {
    std::env::var_os("TRANSHIP_TORTURE").is_some()
}

/// More in torture runs.
fn more(than: usize) -> usize {
    than + usize::from(torture())
}

pub fn two_domains_one_channel_from_nothing() -> Case {
    fn start(on: &mut dyn Does) {
        let (domain, channel, wish) = (0, 0, wish(Trust::Half));
        let direction = Direction::Source;
        let (buffers, buffer_bytes, forward) = (1, 4096, false);
        for op in [
            Op::Create {
                domain,
                direction,
                wish,
            },
            Op::NewPool {
                domain,
                buffers,
                buffer_bytes,
                forward,
            },
            Op::Bind {
                domain: 1,
                channel,
                wish,
            },
        ] {
            does(on, op);
        }
    }
    let limits = Limits {
        queue: more(2),
        copies: 2,
        channel_ops: true,
        kills: true,
    };
    Case {
        domains: 2,
        start,
        limits,
    }
}

/// The report's counterexample to its own reachability (owner to A, A to B, B back to A) and the way back to the
/// owner are in here.
pub fn three_domains_in_a_circle() -> Case {
    fn start(on: &mut dyn Does) {
        let c = [(0, 1), (1, 2), (2, 1), (1, 0)].map(|(a, b)| channel(on, a, b, Trust::None));
        let ways = [(0, c[0]), (1, c[1]), (2, c[2]), (1, c[3])];
        pool(on, 0, 1, true, &ways);
    }
    let limits = Limits {
        queue: 2,
        copies: 4 + u32::from(torture()),
        channel_ops: false,
        kills: torture(),
    };
    Case {
        domains: 3,
        start,
        limits,
    }
}

/// Both directions between the same two, which is where a death has to wait for the other channel.
pub fn two_channels_between_two_domains_and_a_death() -> Case {
    fn start(on: &mut dyn Does) {
        let there = channel(on, 0, 1, Trust::Producer);
        let back = channel(on, 1, 0, Trust::Producer);
        pool(on, 0, 1, false, &[(0, there), (0, back)]);
    }
    let limits = Limits {
        queue: more(1),
        copies: 1 + u32::from(torture()),
        channel_ops: true,
        kills: true,
    };
    Case {
        domains: 2,
        start,
        limits,
    }
}

/// The middle one has the pool from one channel and gives it on over the other: it may leave neither too early.
pub fn three_domains_in_a_row_that_close_and_remove() -> Case {
    fn start(on: &mut dyn Does) {
        let a = channel(on, 0, 1, Trust::Half);
        let b = channel(on, 1, 2, Trust::Half);
        pool(on, 0, 1, true, &[(0, a), (1, b)]);
    }
    let limits = Limits {
        queue: more(1),
        copies: 1 + u32::from(torture()),
        channel_ops: true,
        kills: false,
    };
    Case {
        domains: 3,
        start,
        limits,
    }
}
