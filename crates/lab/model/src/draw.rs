//! Random programs: the kind of an operation, and the choice among all of that kind, by numbers that shrink.

use crate::explore::{Limits, choices};
use crate::{ErrorKind, Hold, Model, Op, Outcome};
use proptest::prelude::*;

/// A number for the kind of operation, one for which, and whether it is to be possible.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    kind: u8,
    number: u16,
    data: u8,
    possible: bool,
}

/// Kinds of operations, by how often they are wanted.
const KINDS: [(u32, u8); 21] = [
    (20, 0),  // alloc
    (10, 1),  // write
    (16, 2),  // freeze
    (6, 3),   // clone
    (8, 4),   // exclusive
    (12, 5),  // drop
    (3, 6),   // inline
    (26, 7),  // send
    (24, 8),  // move
    (24, 9),  // all
    (16, 10), // pass
    (44, 11), // deliver
    (14, 12), // take back
    (2, 13),  // veto
    (2, 14),  // close
    (1, 15),  // kill
    (1, 16),  // new pool
    (24, 17), // move all
    (8, 18),  // release
    (1, 19),  // remove
    (2, 20),  // assign
];

/// Returns a strategy for one of them.
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
        Op::MoveAll { .. } => 17,
        Op::Release { .. } => 18,
        Op::Remove { .. } => 19,
        Op::Assign { .. } => 20,
    }
}

/// Returns the operation that is meant, if there is one of its kind.
#[must_use]
pub fn aimed(model: &Model, shot: &Shot) -> Option<Op> {
    let all = choices(model, &Limits::all()).into_iter();
    let mut all: Vec<Op> = all.filter(|op| kind(op) == shot.kind).collect();
    let says = |op: &Op| model.clone().step(op);
    match shot.possible {
        true => all.retain(|op| says(op).is_ok()),
        false => all.retain(|op| says(op).is_err_and(|kind| !is_unsaid(model, op, kind))),
    }
    // Looking where nothing is, now and then.
    let nothing = |op: &Op| says(op) == Ok(Outcome::Nothing);
    if !shot.data.is_multiple_of(10) {
        all.retain(|op| !nothing(op));
    }
    let at = usize::from(shot.number).checked_rem(all.len())?;
    let mut op = all.swap_remove(at);
    fill(&mut op, shot.data);
    Some(op)
}

/// Fills in the words of an operation, and the bytes that it puts into buffers.
fn fill(op: &mut Op, number: u8) {
    match op {
        Op::Alloc { data, .. } | Op::Write { data, .. } => *data = number,
        Op::Inline { word, .. }
        | Op::Send { word, .. }
        | Op::Move { word, .. }
        | Op::Pass { word, .. }
        | Op::Release { word, .. } => *word = number,
        Op::SendAll { word, buffers, .. } | Op::MoveAll { word, buffers, .. } => {
            *word = number;
            // Any order.
            let by = usize::from(number) % buffers.len().max(1);
            buffers.rotate_left(by);
        }
        _ => {}
    }
}

/// Returns whether an error cannot occur: types, or missing handles, prevent the attempt.
#[must_use]
pub fn is_unsaid(model: &Model, op: &Op, kind: ErrorKind) -> bool {
    let sole = |buffer, domain| matches!(model.hold(buffer, domain), Some(Hold::Sole));
    match (kind, op) {
        (ErrorKind::BufferState, Op::Exclusive { domain, buffer }) => sole(*buffer, *domain),
        (ErrorKind::OutOfMemory, Op::Alloc { .. }) => false,
        _ => matches!(
            kind,
            ErrorKind::BufferState
                | ErrorKind::InvalidEndpoint
                | ErrorKind::BufferInvalid
                | ErrorKind::BadArgument
                | ErrorKind::Limit
                | ErrorKind::OutOfMemory
        ),
    }
}
