//! Makes what was drawn at random likely to be possible: blind shots hit too rarely what takes several steps. It counts from the
//! numbers that were drawn, so that failures still shrink.

use crate::ops::op;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tranship_bulk::spec::{BufferId, ChannelId, Domain, Model, Op, Piece};
use tranship_bulk::{Access, ChannelState, Direction};

/// An operation, and whether to aim it.
pub type Shot = (Op, bool);

pub fn shot() -> impl Strategy<Value = Shot> {
    (op(), prop_oneof![2 => Just(true), 1 => Just(false)])
}

/// The one of `all` that the number stands for; `else_` if there is none.
fn pick<T: Copy>(all: &[T], number: u8, else_: T) -> T {
    match all.len() {
        0 => else_,
        len => all[usize::from(number) % len],
    }
}

/// Channels of which the domain has this end.
fn channels(model: &Model, domain: Domain, direction: Direction, open: bool) -> Vec<ChannelId> {
    let fits = |id: &ChannelId| {
        let end = model.channels[id].ends[direction as usize].as_ref();
        end.is_some_and(|end| {
            let closed = end.state == ChannelState::Closed;
            end.domain == domain && (end.state == ChannelState::Connected || !open && closed)
        })
    };
    model.channels.keys().copied().filter(fits).collect()
}

fn buffers(model: &Model, with: impl Fn(BufferId) -> bool) -> Vec<BufferId> {
    model
        .buffers
        .keys()
        .copied()
        .filter(|id| with(*id))
        .collect()
}

fn number(buffer: BufferId) -> u8 {
    buffer.pool * 2 + buffer.index
}

/// The operation that was meant.
pub fn aimed(model: &Model, (op, aim): &Shot) -> Op {
    let mut op = op.clone();
    if !aim {
        return op;
    }
    if let Some(possible) = possible(model, &op) {
        return possible;
    }
    let has = |domain, least| move |id| model.access(id, domain) >= least;
    match &mut op {
        Op::Deliver { domain, channel } => {
            let waits = |id: &ChannelId| {
                let ends = || model.channels[id].ends.iter().flatten();
                // A death is there to be learned too.
                let dead = ends().any(|end| !model.alive[usize::from(end.domain)]);
                ends().any(|end| {
                    let learns = dead && end.state != ChannelState::Closed;
                    end.domain == *domain && (learns || !end.queue.is_empty())
                })
            };
            let all: Vec<_> = model.channels.keys().copied().filter(waits).collect();
            *channel = pick(&all, *channel, *channel);
        }
        Op::Move {
            domain,
            channel,
            buffer,
            ..
        } => {
            let sources = channels(model, *domain, Direction::Source, true);
            *channel = pick(&sources, *channel, *channel);
            let all = buffers(model, has(*domain, Access::ReadWrite));
            *buffer = pick(&all, number(*buffer), *buffer);
        }
        Op::Pass {
            domain,
            channel,
            buffer,
            ..
        } => {
            let sinks = channels(model, *domain, Direction::Sink, true);
            *channel = pick(&sinks, *channel, *channel);
            let all = buffers(model, has(*domain, Access::ReadWrite));
            *buffer = pick(&all, number(*buffer), *buffer);
        }
        Op::Copy {
            domain,
            channel,
            buffer,
            ..
        } => {
            let sources = channels(model, *domain, Direction::Source, true);
            *channel = pick(&sources, *channel, *channel);
            let all = buffers(model, has(*domain, Access::Read));
            *buffer = pick(&all, number(*buffer), *buffer);
        }
        Op::Release {
            domain,
            channel,
            buffer,
            ..
        } => {
            let all = buffers(model, |id| model.held(id, *domain) > 0);
            *buffer = pick(&all, number(*buffer), *buffer);
            let sinks = channels(model, *domain, Direction::Sink, false);
            let copies = model.buffers.get(buffer).map(|found| &found.copies);
            let holds = |id: &&ChannelId| copies.is_some_and(|copies| copies.contains_key(id));
            let all: Vec<_> = sinks.iter().filter(holds).copied().collect();
            *channel = pick(&all, *channel, *channel);
        }
        Op::Insert {
            domain,
            aggregate,
            at,
            piece,
        } => {
            let pieces = model.aggregates.get(&(*domain, *aggregate));
            *at %= u8::try_from(pieces.map_or(0, Vec::len)).unwrap_or(0) + 1;
            let all = buffers(model, has(*domain, Access::Read));
            let buffer = pick(&all, number(piece.buffer), piece.buffer);
            *piece = Piece { buffer, ..*piece };
        }
        Op::TakeOut {
            domain,
            aggregate,
            at,
        } => {
            *aggregate = gathered(model, *domain, *aggregate);
            let Some(pieces) = model.aggregates.get(&(*domain, *aggregate)) else {
                return op;
            };
            // What is not here any more goes first.
            let here = |piece: &Piece| model.access(piece.buffer, *domain) != Access::None;
            let gone = pieces.iter().position(|piece| !here(piece));
            let len = u8::try_from(pieces.len()).unwrap_or(1);
            *at = gone.map_or(*at % len, |gone| u8::try_from(gone).unwrap_or(0));
        }
        Op::SendAll {
            domain,
            aggregate,
            channel,
            ..
        } => {
            *aggregate = gathered(model, *domain, *aggregate);
            let sources = channels(model, *domain, Direction::Source, true);
            *channel = pick(&sources, *channel, *channel);
        }
        Op::Map { domain, aggregate } => *aggregate = gathered(model, *domain, *aggregate),
        Op::Unmap { domain, aggregate } => {
            let own = model.mappings.keys().filter(|(of, _)| of == domain);
            let own: Vec<u8> = own.map(|(_, number)| *number).collect();
            *aggregate = pick(&own, *aggregate, *aggregate);
        }
        Op::Forget { domain, channel } => {
            let over = |id: &ChannelId| {
                let mut ends = model.channels[id].ends.iter().flatten();
                ends.any(|end| end.domain == *domain && end.state == ChannelState::Closed)
            };
            let all: Vec<_> = model.channels.keys().copied().filter(over).collect();
            *channel = pick(&all, *channel, *channel);
        }
        _ => {}
    }
    op
}

/// The same by whichever domain, over whichever channel, so that it can be done; half of those that are rarely possible.
fn possible(model: &Model, op: &Op) -> Option<Op> {
    let domains = 0..u8::try_from(model.alive.len()).unwrap_or(0);
    let numbers = |domain| (0..2).map(move |aggregate| (domain, aggregate));
    let keys = || domains.clone().flat_map(numbers);
    let ends = || {
        let all = |id: ChannelId| domains.clone().map(move |domain| (domain, id));
        model.channels.keys().copied().flat_map(all)
    };
    let (number, all): (u8, Vec<Op>) = match *op {
        Op::SendAll {
            domain,
            aggregate,
            channel,
            copies,
            meta,
        } => {
            let over = |(domain, aggregate)| {
                model.channels.keys().map(move |channel| Op::SendAll {
                    domain,
                    aggregate,
                    channel: *channel,
                    copies,
                    meta,
                })
            };
            (
                domain + aggregate + channel,
                keys().flat_map(over).collect(),
            )
        }
        Op::Forget { domain, channel } if domain % 2 == 0 => {
            let of = |(domain, channel)| Op::Forget { domain, channel };
            (domain / 2 + channel, ends().map(of).collect())
        }
        Op::Map { domain, aggregate } if domain % 2 == 0 => {
            let of = |(domain, aggregate)| Op::Map { domain, aggregate };
            (domain / 2 + aggregate, keys().map(of).collect())
        }
        Op::Unmap { domain, aggregate } => {
            let of = |(domain, aggregate)| Op::Unmap { domain, aggregate };
            (domain + aggregate, keys().map(of).collect())
        }
        _ => return None,
    };
    let fine = |op: &Op| model.clone().step(op).is_ok();
    let mut all: Vec<Op> = all.into_iter().filter(fine).collect();
    // Those of several buffers first.
    let buffers = |op: &Op| match op {
        Op::SendAll {
            domain, aggregate, ..
        } => {
            let pieces = model.aggregates.get(&(*domain, *aggregate));
            let ids = pieces.into_iter().flatten().map(|piece| piece.buffer);
            ids.collect::<BTreeSet<_>>().len()
        }
        _ => 0,
    };
    let most = all.iter().map(buffers).max()?;
    all.retain(|op| buffers(op) == most);
    let at = usize::from(number) % all.len();
    Some(all.swap_remove(at))
}

/// An aggregate of the domain that has pieces.
fn gathered(model: &Model, domain: Domain, aggregate: u8) -> u8 {
    let own = model.aggregates.keys().filter(|(of, _)| *of == domain);
    let own: Vec<u8> = own.map(|(_, number)| *number).collect();
    pick(&own, aggregate, aggregate)
}
