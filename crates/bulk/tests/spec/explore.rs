//! Every reachable state of small configurations, by breadth-first search; the way to the first bad one.

use crate::setup::{channel, pool, wish};
use std::collections::{HashMap, VecDeque};
use tranship_bulk::spec::{Model, Op, Outcome};
use tranship_bulk::{Direction, Trust};

/// What may happen, and how much of it.
struct Limits {
    queue: usize,
    copies: u32,
    /// Assign, remove, close, veto.
    channel_ops: bool,
    kills: bool,
}

fn choices(model: &Model, limits: &Limits) -> Vec<Op> {
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

/// Explores; returns how many states there are.
fn explore(start: Model, limits: &Limits) -> usize {
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
            if too_far(&next, limits) || ids.contains_key(&next) {
                continue;
            }
            let new = from.len();
            from.push(Some((id, op)));
            if let Err(what) = next.check() {
                let mut way = Vec::new();
                let mut at = new;
                while let Some((before, op)) = &from[at] {
                    way.push(format!("{op:?}"));
                    at = *before;
                }
                way.reverse();
                panic!("{what}\nafter\n{}", way.join("\n"));
            }
            ids.insert(next.clone(), new);
            open.push_back((new, next));
        }
    }
    from.len()
}

fn torture() -> bool {
    std::env::var_os("TRANSHIP_TORTURE").is_some()
}

#[test]
fn two_domains_one_channel_from_nothing() {
    let mut model = Model::new(2);
    let create = Op::Create {
        domain: 0,
        direction: Direction::Source,
        wish: wish(Trust::Half),
    };
    model.step(&create).expect("create");
    let new = Op::NewPool {
        domain: 0,
        buffers: 1,
        buffer_bytes: 4096,
        forward: false,
    };
    model.step(&new).expect("pool");
    let bind = Op::Bind {
        domain: 1,
        channel: 0,
        wish: wish(Trust::Half),
    };
    model.step(&bind).expect("bind");
    let limits = Limits {
        queue: 2 + usize::from(torture()),
        copies: 2,
        channel_ops: true,
        kills: true,
    };
    let states = explore(model, &limits);
    println!("{states} states");
    assert!(states > 1000, "only {states} states: the search is broken");
}

/// The report's counterexample to its own reachability (owner to A, A to B, B back to A) and the way back to the
/// owner are in here.
#[test]
fn three_domains_in_a_circle() {
    let mut model = Model::new(3);
    let t = Trust::None;
    let c = [(0, 1), (1, 2), (2, 1), (1, 0)].map(|(a, b)| channel(&mut model, a, b, t));
    let ways = [(0, c[0]), (1, c[1]), (2, c[2]), (1, c[3])];
    pool(&mut model, 0, 1, true, &ways);
    let limits = Limits {
        queue: 2,
        copies: 4 + u32::from(torture()),
        channel_ops: false,
        kills: torture(),
    };
    let states = explore(model, &limits);
    println!("{states} states");
    assert!(states > 1000, "only {states} states: the search is broken");
}

/// Both directions between the same two, which is where a death has to wait for the other channel.
#[test]
fn two_channels_between_two_domains_and_a_death() {
    let mut model = Model::new(2);
    let there = channel(&mut model, 0, 1, Trust::Producer);
    let back = channel(&mut model, 1, 0, Trust::Producer);
    pool(&mut model, 0, 1, false, &[(0, there), (0, back)]);
    let limits = Limits {
        queue: 1 + usize::from(torture()),
        copies: 1 + u32::from(torture()),
        channel_ops: true,
        kills: true,
    };
    let states = explore(model, &limits);
    println!("{states} states");
    assert!(states > 1000, "only {states} states: the search is broken");
}

/// The middle one has the pool from one channel and gives it on over the other: it may leave neither too early.
#[test]
fn three_domains_in_a_row_that_close_and_remove() {
    let mut model = Model::new(3);
    let a = channel(&mut model, 0, 1, Trust::Half);
    let b = channel(&mut model, 1, 2, Trust::Half);
    pool(&mut model, 0, 1, true, &[(0, a), (1, b)]);
    let limits = Limits {
        queue: 1 + usize::from(torture()),
        copies: 1 + u32::from(torture()),
        channel_ops: true,
        kills: false,
    };
    let states = explore(model, &limits);
    println!("{states} states");
    assert!(states > 1000, "only {states} states: the search is broken");
}
