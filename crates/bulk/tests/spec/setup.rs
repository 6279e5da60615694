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

#[track_caller]
pub fn does(model: &mut Model, op: Op) -> Outcome {
    let outcome = model
        .step(&op)
        .unwrap_or_else(|e| panic!("{op:?} is refused: {e:?}"));
    model
        .check()
        .unwrap_or_else(|e| panic!("after {op:?}: {e}"));
    outcome
}

/// Takes every message that waits anywhere.
pub fn settle(model: &mut Model) {
    loop {
        let mut quiet = true;
        for (channel, found) in model.channels.clone() {
            for domain in found.ends.iter().flatten().map(|end| end.domain) {
                if model.alive[usize::from(domain)] {
                    let op = Op::Deliver { domain, channel };
                    quiet &= does(model, op) == Outcome::Nothing;
                }
            }
        }
        if quiet {
            return;
        }
    }
}

/// A connected channel.
pub fn channel(model: &mut Model, source: Domain, sink: Domain, trust: Trust) -> ChannelId {
    let create = Op::Create {
        domain: source,
        direction: Direction::Source,
        wish: wish(trust),
    };
    let Outcome::Channel(channel) = does(model, create) else {
        panic!("no channel");
    };
    let bind = Op::Bind {
        domain: sink,
        channel,
        wish: wish(trust),
    };
    does(model, bind);
    settle(model);
    channel
}

/// A pool, assigned by its creator to these channels and passed on by others in their order.
pub fn pool(
    model: &mut Model,
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
    let Outcome::Pool(pool) = does(model, new) else {
        panic!("no pool");
    };
    for (domain, channel) in channels {
        let assign = Op::Assign {
            domain: *domain,
            channel: *channel,
            pool,
        };
        does(model, assign);
        settle(model);
    }
    pool
}
