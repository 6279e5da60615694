//! Getting the model to where the interesting things begin.

#![allow(dead_code, reason = "each test uses a part of it")]

use tranship_bulk::spec::{ChannelId, Domain, Model, Op, Outcome, PoolId};
use tranship_bulk::{Constraints, Direction, Role, Trust, Wish};

pub fn wish(trust: Trust) -> Wish {
    Wish {
        role: Role::Generic,
        trust,
        constraints: Constraints::default(),
    }
}

/// What operations are done on: a model, or one with what it is compared with.
pub trait Does {
    fn model(&self) -> &Model;
    /// What must be possible.
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

pub fn does(on: &mut dyn Does, op: Op) -> Outcome {
    on.must(&op)
}

/// Takes every message that waits anywhere.
pub fn settle(on: &mut dyn Does) {
    loop {
        let mut quiet = true;
        for (channel, found) in on.model().channels.clone() {
            for domain in found.ends.iter().flatten().map(|end| end.domain) {
                if on.model().alive[usize::from(domain)] {
                    let op = Op::Deliver { domain, channel };
                    quiet &= does(on, op) == Outcome::Nothing;
                }
            }
        }
        if quiet {
            return;
        }
    }
}

/// A connected channel.
pub fn channel(on: &mut dyn Does, source: Domain, sink: Domain, trust: Trust) -> ChannelId {
    let create = Op::Create {
        domain: source,
        direction: Direction::Source,
        wish: wish(trust),
    };
    let Outcome::Channel(channel) = does(on, create) else {
        panic!("no channel");
    };
    let bind = Op::Bind {
        domain: sink,
        channel,
        wish: wish(trust),
    };
    does(on, bind);
    settle(on);
    channel
}

/// A pool, assigned by its creator to these channels and passed on by others in their order.
pub fn pool(
    on: &mut dyn Does,
    domain: Domain,
    buffers: u8,
    forward: bool,
    channels: &[(Domain, ChannelId)],
) -> PoolId {
    let new = Op::NewPool {
        domain,
        buffers,
        buffer_bytes: 4096,
        forward,
    };
    let Outcome::Pool(pool) = does(on, new) else {
        panic!("no pool");
    };
    for (domain, channel) in channels {
        let assign = Op::Assign {
            domain: *domain,
            channel: *channel,
            pool,
        };
        does(on, assign);
        settle(on);
    }
    pool
}

/// Five channels with a circle, two pools on most of them.
pub fn circle(on: &mut dyn Does, trust: Trust) {
    let ways = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0)];
    let c = ways.map(|(a, b)| channel(on, a, b, trust));
    let all = [(0, c[0]), (1, c[1]), (2, c[2]), (3, c[3]), (1, c[4])];
    pool(on, 0, 2, true, &all);
    pool(on, 1, 2, false, &[(1, c[0]), (1, c[1])]);
}
