//! Random programs: what kind of operation, and which of all of that kind, by numbers that shrink.

use crate::explore::{Limits, choices};
use crate::{BufferId, Model, Op};
use proptest::prelude::*;

/// A number for the kind of operation, one for which, and whether it must be possible.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    kind: u8,
    number: u16,
    data: u8,
    possible: bool,
}

/// Kinds of operations, by how often they are wanted.
const KINDS: [(u32, u8); 17] = [
    (6, 0),   // alloc
    (4, 1),   // write
    (5, 2),   // freeze
    (2, 3),   // clone
    (2, 4),   // exclusive
    (4, 5),   // drop
    (1, 6),   // inline
    (8, 7),   // send
    (8, 8),   // move
    (3, 9),   // all
    (5, 10),  // pass
    (16, 11), // deliver
    (5, 12),  // take back
    (1, 13),  // veto
    (1, 14),  // close
    (1, 15),  // kill
    (1, 16),  // new pool
];

/// One of them.
pub fn shot() -> impl Strategy<Value = Shot> {
    let all: u32 = KINDS.iter().map(|(weight, _)| weight).sum();
    let kind = (0..all).prop_map(|mut at| {
        for (weight, kind) in KINDS {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        0
    });
    let possible = prop_oneof![5 => Just(true), 1 => Just(false)];
    (kind, any::<u16>(), 1..250u8, possible).prop_map(|(kind, number, data, possible)| Shot {
        kind,
        number,
        data,
        possible,
    })
}

fn kind(op: &Op) -> u8 {
    match op {
        Op::Alloc { .. } => 0,
        Op::Write { .. } => 1,
        Op::Freeze { .. } => 2,
        Op::Clone { .. } => 3,
        Op::Exclusive { .. } => 4,
        Op::Drop { .. } => 5,
        Op::Inline { .. } => 6,
        Op::Send { .. } => 7,
        Op::Move { .. } => 8,
        Op::SendAll { .. } => 9,
        Op::Pass { .. } => 10,
        Op::Deliver { .. } => 11,
        Op::TakeBack { .. } => 12,
        Op::Veto { .. } => 13,
        Op::Close { .. } => 14,
        Op::Kill { .. } => 15,
        Op::NewPool { .. } | Op::Connect { .. } => 16,
    }
}

/// The operation that is meant, if there is one of its kind.
#[must_use]
pub fn aimed(model: &Model, shot: &Shot) -> Option<Op> {
    let all = choices(model, &Limits::all()).into_iter();
    let mut all: Vec<Op> = all.filter(|op| kind(op) == shot.kind).collect();
    if shot.possible {
        all.retain(|op| model.clone().step(op).is_ok());
    }
    // What is away can come, and what is there can be had: first, if there is something.
    let comes = |op: &Op| match *op {
        Op::Deliver { channel, .. } => !model.channels[&channel].queue.is_empty(),
        Op::TakeBack { channel, .. } => !model.channels[&channel].back.is_empty(),
        _ => false,
    };
    if all.iter().any(comes) {
        all.retain(comes);
    }
    let at = usize::from(shot.number).checked_rem(all.len())?;
    let mut op = all.swap_remove(at);
    fill(&mut op, shot.data);
    Some(op)
}

/// What it says, and what it puts into buffers.
fn fill(op: &mut Op, number: u8) {
    match op {
        Op::Alloc { data, .. } | Op::Write { data, .. } => *data = number,
        Op::Inline { meta, .. }
        | Op::Send { meta, .. }
        | Op::Move { meta, .. }
        | Op::Pass { meta, .. } => *meta = number,
        Op::SendAll { meta, buffers, .. } => {
            *meta = number;
            // Any order.
            let by = usize::from(number) % buffers.len().max(1);
            buffers.rotate_left(by);
        }
        _ => {}
    }
}

/// Whether it is about to be named again: another one takes its place.
#[must_use]
pub fn begins(op: &Op, outcome: &crate::Outcome) -> Vec<BufferId> {
    match (op, outcome) {
        (Op::Alloc { .. }, crate::Outcome::Buffer(id)) => vec![*id],
        (Op::Deliver { .. }, crate::Outcome::Took(event)) => {
            let new = |id: &BufferId| id.pool >= 100;
            event.buffers.iter().copied().filter(new).collect()
        }
        _ => Vec::new(),
    }
}
