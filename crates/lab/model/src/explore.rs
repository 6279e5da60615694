//! Every reachable state of small configurations, by breadth-first search; the way to the first bad one.

use crate::{BufferId, ChannelId, Domain, EndState, Hold, Model, Op, Outcome, PoolId, Trust, Way};
use std::collections::{HashMap, VecDeque};

/// Limits of an exploration: the operations that may happen, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages on one way.
    pub queue: usize,
    /// Handles of a domain of one buffer.
    pub handles: u8,
    /// Buffers in use.
    pub buffers: usize,
    /// Freezing apart from sharing, clones, exclusive again.
    pub handle_ops: bool,
    /// Allows closing and vetoes.
    pub channel_ops: bool,
    /// Allows removing and assigning pools.
    pub pool_ops: bool,
    pub kills: bool,
}

impl Limits {
    /// Returns the limits that allow everything.
    #[must_use]
    pub fn all() -> Limits {
        Limits {
            queue: usize::MAX,
            handles: u8::MAX,
            buffers: usize::MAX,
            handle_ops: true,
            channel_ops: true,
            pool_ops: true,
            kills: true,
        }
    }
}

/// Returns everything that may be tried, possible or not.
#[must_use]
pub fn choices(model: &Model, limits: &Limits) -> Vec<Op> {
    let mut ops = Vec::new();
    let domains = || (0..).zip(&model.alive).filter(|(_, alive)| **alive);
    for (domain, _) in domains() {
        for (pool, _) in model.pools.iter().filter(|(pool, _)| **pool < 100) {
            let (pool, data) = (*pool, 0);
            ops.push(Op::Alloc { domain, pool, data });
        }
        for buffer in model.buffers.keys().copied() {
            ops.push(Op::Freeze { domain, buffer });
            ops.push(Op::Drop { domain, buffer });
            if limits.handle_ops {
                ops.push(Op::Clone { domain, buffer });
                ops.push(Op::Exclusive { domain, buffer });
                ops.push(Op::Write {
                    domain,
                    buffer,
                    data: 0,
                });
            }
        }
        if limits.kills && !model.alive.contains(&false) {
            ops.push(Op::Kill { domain });
        }
    }
    for (channel, found) in &model.channels {
        let channel = *channel;
        let here = |end: usize, domain: Domain| {
            let alive = model.alive.get(usize::from(domain)).copied();
            found.ends[end] == EndState::Open && alive == Some(true)
        };
        if here(0, found.source) {
            from_source(model, limits, channel, found.source, &mut ops);
        }
        if here(1, found.sink) {
            from_sink(model, limits, channel, found.sink, &mut ops);
        }
    }
    ops
}

fn from_source(
    model: &Model,
    limits: &Limits,
    channel: ChannelId,
    domain: Domain,
    ops: &mut Vec<Op>,
) {
    ops.push(Op::TakeBack { domain, channel });
    let word = 0;
    ops.push(Op::Inline {
        domain,
        channel,
        word,
    });
    for buffer in model.buffers.keys().copied() {
        for keep in [false, true] {
            ops.push(Op::Send {
                domain,
                channel,
                buffer,
                keep,
                word,
            });
        }
        ops.push(Op::Move {
            domain,
            channel,
            buffer,
            word,
        });
    }
    let sole = |id: &BufferId| matches!(model.hold(*id, domain), Some(Hold::Sole));
    let buffers: Vec<BufferId> = model.buffers.keys().copied().filter(sole).collect();
    if buffers.len() > 1 {
        ops.push(Op::MoveAll {
            domain,
            channel,
            buffers,
            word,
        });
    }
    let shared = |id: &BufferId| matches!(model.hold(*id, domain), Some(Hold::Shared { .. }));
    let buffers: Vec<BufferId> = model.buffers.keys().copied().filter(shared).collect();
    if buffers.len() > 1 {
        ops.push(Op::SendAll {
            domain,
            channel,
            buffers,
            word,
        });
    }
    if limits.channel_ops {
        ops.push(Op::Close { domain, channel });
    }
    if limits.pool_ops {
        for pool in model.pools.keys().copied().filter(|pool| *pool < 100) {
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
}

fn from_sink(
    model: &Model,
    limits: &Limits,
    channel: ChannelId,
    domain: Domain,
    ops: &mut Vec<Op>,
) {
    ops.push(Op::Deliver { domain, channel });
    for buffer in model.buffers.keys().copied() {
        ops.push(Op::Pass {
            domain,
            channel,
            buffer,
            word: 0,
        });
        ops.push(Op::Release {
            domain,
            channel,
            buffer,
            word: 0,
        });
    }
    if limits.channel_ops {
        ops.push(Op::Close { domain, channel });
        let veto = !model.channels[&channel].vetoes;
        ops.push(Op::Veto {
            domain,
            channel,
            veto,
        });
    }
    if limits.pool_ops {
        for pool in model.pools.keys().copied().filter(|pool| *pool < 100) {
            ops.push(Op::Remove {
                domain,
                channel,
                pool,
            });
        }
    }
}

fn too_far(model: &Model, limits: &Limits) -> bool {
    let long = |c: &crate::Channel| c.queue.len() > limits.queue || c.back.len() > limits.queue;
    let many =
        |hold: &Hold| matches!(hold, Hold::Shared { handles, .. } if *handles > limits.handles);
    model.channels.values().any(long)
        || model.buffers.len() > limits.buffers
        || model
            .buffers
            .values()
            .flat_map(|b| b.holds.values())
            .any(many)
}

/// Returns whether two models are equal except for agreements: an error changes nothing but what was agreed on the way
/// to it.
#[must_use]
pub fn same_but_agreed(a: &Model, b: &Model) -> bool {
    let mut a = a.clone();
    for (channel, other) in a.channels.values_mut().zip(b.channels.values()) {
        channel.assigned.clone_from(&other.assigned);
    }
    a == *b
}

/// Returns the ways from a state: each operation that changes it within the limits, and the state after it. It is
/// compiled here, with this crate's optimisation.
///
/// # Panics
/// Where an error changes something.
#[must_use]
pub fn ways(model: &Model, limits: &Limits) -> Vec<(Op, Model)> {
    let way = |op: Op| {
        let mut next = model.clone();
        match next.step(&op) {
            Err(_) => assert!(same_but_agreed(&next, model), "{op:?} changed something"),
            Ok(Outcome::Nothing) => return None,
            Ok(_) => {}
        }
        (next != *model && !too_far(&next, limits)).then_some((op, next))
    };
    choices(model, limits).into_iter().filter_map(way).collect()
}

/// Explores, and shows each way from state to state; returns their number. `way` is a trait object so that the search
/// is compiled here, with this crate's optimisation.
///
/// # Panics
/// Where an invariant does not hold, with the way there; and where an error changes something.
pub fn explore(start: Model, limits: &Limits, way: &mut dyn FnMut(usize, &Op, usize)) -> usize {
    start.check().expect("the start is fine");
    let mut ids: HashMap<Model, usize> = HashMap::from([(start.clone(), 0)]);
    let mut from: Vec<Option<(usize, Op)>> = vec![None];
    let mut open = VecDeque::from([(0, start)]);
    while let Some((id, model)) = open.pop_front() {
        for (op, next) in ways(&model, limits) {
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
    ids.len()
}

/// Subject of operations: a model, or a model with the system that is compared with it.
pub trait Does {
    fn model(&self) -> &Model;
    /// Does an operation that must be possible.
    fn must(&mut self, op: &Op) -> Outcome;
}

impl Does for Model {
    fn model(&self) -> &Model {
        self
    }

    fn must(&mut self, op: &Op) -> Outcome {
        let outcome = self.step(op);
        let outcome = outcome.unwrap_or_else(|e| panic!("{op:?} is refused: {e:?}"));
        self.check().unwrap_or_else(|e| panic!("after {op:?}: {e}"));
        outcome
    }
}

/// Makes a channel whose sink takes every level.
pub fn channel(on: &mut dyn Does, source: Domain, sink: Domain) -> ChannelId {
    channel_of(on, source, sink, &Trust::ALL)
}

/// Makes a channel whose sink takes these levels.
///
/// # Panics
/// If there can be none.
pub fn channel_of(on: &mut dyn Does, domain: Domain, sink: Domain, levels: &[Trust]) -> ChannelId {
    let levels = levels.to_vec();
    let connect = Op::Connect {
        domain,
        sink,
        lines: 4,
        levels,
    };
    match on.must(&connect) {
        Outcome::Channel(channel) => channel,
        other => panic!("{other:?}"),
    }
}

/// Makes a pool.
///
/// # Panics
/// If there can be none.
pub fn pool(on: &mut dyn Does, domain: Domain, trust: Trust, slots: u8, forward: bool) -> PoolId {
    let new = Op::NewPool {
        domain,
        trust,
        slots,
        forward,
    };
    match on.must(&new) {
        Outcome::Pool(pool) => pool,
        other => panic!("{other:?}"),
    }
}

/// Makes five channels with a circle among four domains, and a pool of each of two of them: no domain may send on the
/// second pool's buffers.
pub fn circle(on: &mut dyn Does, trust: Trust) {
    for (a, b) in [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0)] {
        channel(on, a, b);
    }
    pool(on, 0, trust, 3, true);
    pool(on, 1, trust, 2, false);
}

/// Makes a channel in each direction between two domains, and a pool of the first: in receive-master mode, the receiver's.
pub fn two_ways(on: &mut dyn Does, trust: Trust) {
    channel(on, 0, 1);
    channel(on, 1, 0);
    pool(on, 0, trust, 3, true);
}

/// A small configuration.
pub struct Case {
    pub name: &'static str,
    pub way: Way,
    /// Whether buffers of level `none` are sealed.
    pub seals: bool,
    pub domains: u8,
    pub start: fn(&mut dyn Does),
    pub limits: Limits,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Case {
    /// Returns the model of its start.
    #[must_use]
    pub fn model(&self) -> Model {
        let mut model = Model::new(self.way, self.domains).sealing(self.seals);
        (self.start)(&mut model);
        model
    }
}

/// Returns whether more is asked for.
#[must_use]
pub fn torture() -> bool {
    std::env::var_os("TRANSHIP_TORTURE").is_some()
}

/// Returns more in torture runs.
fn more(than: usize) -> usize {
    than + usize::from(torture())
}

/// Limits of one thing at a time, of which nothing else happens.
const ONE: Limits = Limits {
    queue: 1,
    handles: 1,
    buffers: 1,
    handle_ops: false,
    channel_ops: false,
    pool_ops: false,
    kills: false,
};

/// Makes a configuration of shared memory without seals.
fn case(name: &'static str, domains: u8, start: fn(&mut dyn Does), limits: Limits) -> Case {
    Case {
        name,
        way: Way::Shared,
        seals: false,
        domains,
        start,
        limits,
    }
}

/// Returns all operations on one buffer on one channel, until either end closes or dies.
#[must_use]
pub fn two_domains_one_channel() -> Case {
    fn start(on: &mut dyn Does) {
        channel(on, 0, 1);
        pool(on, 0, Trust::Half, 1, false);
    }
    let limits = Limits {
        queue: 2,
        handles: 2,
        handle_ops: true,
        channel_ops: true,
        kills: true,
        ..ONE
    };
    case("two domains, one channel", 2, start, limits)
}

/// Returns the report's counterexample to its own reachability (owner to A, A to B, B back to A), and the way back to
/// the owner.
#[must_use]
pub fn three_domains_in_a_circle() -> Case {
    fn start(on: &mut dyn Does) {
        for (a, b) in [(0, 1), (1, 2), (2, 1), (1, 0)] {
            channel(on, a, b);
        }
        pool(on, 0, Trust::Full, 1, true);
    }
    let limits = Limits {
        kills: torture(),
        ..ONE
    };
    case("three domains in a circle", 3, start, limits)
}

/// Returns both directions between the same two, and a death.
#[must_use]
pub fn two_channels_and_a_death() -> Case {
    fn start(on: &mut dyn Does) {
        channel(on, 0, 1);
        channel(on, 1, 0);
        pool(on, 0, Trust::Producer, 2, true);
    }
    let limits = Limits {
        buffers: more(1),
        channel_ops: true,
        kills: true,
        ..ONE
    };
    case("two channels and a death", 2, start, limits)
}

/// Returns three domains: a buffer from the first goes on to the third, or is refused there.
#[must_use]
pub fn three_domains_in_a_row() -> Case {
    fn start(on: &mut dyn Does) {
        channel(on, 0, 1);
        channel_of(on, 1, 2, &[Trust::Producer, Trust::Half]);
        pool(on, 0, Trust::Half, 1, true);
        pool(on, 0, Trust::Full, 1, true);
    }
    let limits = Limits {
        channel_ops: true,
        kills: torture(),
        ..ONE
    };
    case("three domains in a row", 3, start, limits)
}

/// Returns a case in which the receiver gets a copy of its own.
#[must_use]
pub fn copies_at_the_receiver() -> Case {
    fn start(on: &mut dyn Does) {
        channel(on, 0, 1);
        channel(on, 1, 0);
        pool(on, 0, Trust::None, 1, false);
    }
    let limits = Limits {
        buffers: 2,
        handle_ops: true,
        kills: true,
        ..ONE
    };
    case("copies at the receiver", 2, start, limits)
}

/// Returns a case of large buffers, which are not copied at the receiver.
#[must_use]
pub fn sealed_at_the_receiver() -> Case {
    Case {
        name: "sealed at the receiver",
        seals: true,
        ..copies_at_the_receiver()
    }
}

/// Returns all operations on one pool of one channel that either end removes.
#[must_use]
pub fn a_pool_is_removed(way: Way) -> Case {
    fn start(on: &mut dyn Does) {
        channel(on, 0, 1);
        pool(on, 0, Trust::Full, 1, false);
    }
    let limits = Limits {
        channel_ops: true,
        pool_ops: true,
        ..ONE
    };
    Case {
        way,
        ..case("a pool is removed", 2, start, limits)
    }
}

/// Returns receive-master mode: the receiver's pool, its empty buffers over one channel, filled ones back over the other.
#[must_use]
pub fn receive_master(way: Way, trust: Trust) -> Case {
    let start: fn(&mut dyn Does) = match trust {
        Trust::None => |on| two_ways(on, Trust::None),
        Trust::Producer => |on| two_ways(on, Trust::Producer),
        Trust::Half => |on| two_ways(on, Trust::Half),
        Trust::Full => |on| two_ways(on, Trust::Full),
    };
    Case {
        way,
        ..case("receive master", 2, start, ONE)
    }
}
