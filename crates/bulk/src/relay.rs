//! Handing on: what arrives on one channel goes out on another, and what comes back goes back.
//!
//! Nothing waits for the answer to anything: all that has arrived is handed on in one turn, so that a chain of domains is a
//! pipeline. A forwarder that waits for each operation's end before it takes the next buffer has one buffer in flight
//! over all hops instead.

use crate::channel::{Channel, Event};
use crate::{Aggregate, Buffer, Completion, Error, Kind, Meta, ReadBuffer, wait_any};
use std::collections::VecDeque;
use std::time::Duration;

/// Where an event came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The channel that data comes by.
    Up,
    /// The one that it goes on by.
    Down,
}

/// Something on its way through.
#[derive(Debug)]
enum Load {
    Move(Buffer, Meta),
    Copy(ReadBuffer, Meta),
    All(Aggregate, Meta),
    Pass(Buffer, Meta),
    Release(ReadBuffer, Meta),
}

/// A forwarder between two channels of one domain. Pools that arrive and may be passed on are assigned on; one that is refused
/// further down is taken off up here, so that a veto goes all the way.
///
/// What finds no room waits here, in order, and nothing more is taken from where it came: the source is held back by its
/// own channel.
#[derive(Debug)]
pub struct Relay {
    up: Channel,
    down: Channel,
    /// Waiting for room, or for their pool to be assigned.
    onward: VecDeque<Load>,
    back: VecDeque<Load>,
    /// Copies that were handed on, until they come back.
    held: Vec<ReadBuffer>,
    assigning: Vec<(u64, Completion)>,
    /// Pools that were refused, and the removal that was asked for.
    refused: Vec<(u64, Option<Completion>)>,
}

/// Events of one side in one turn, at most: then the other has its turn.
const BATCH: usize = 256;

impl Relay {
    /// Between the sink end of one channel and the source end of another. [`Kind::ChannelDirection`] if they are not,
    /// [`Kind::BadArgument`] if they are of two domains.
    pub fn new(up: &Channel, down: &Channel) -> Result<Relay, Error> {
        use crate::Direction::{Sink, Source};
        if !std::sync::Arc::ptr_eq(&up.domain, &down.domain) {
            return Err(Kind::BadArgument.into());
        }
        let direction = |end: &Channel| end.direction_and_role().map(|(direction, _)| direction);
        match (direction(up), direction(down)) {
            (Some(Sink), Some(Source)) => Ok(Relay {
                up: up.clone(),
                down: down.clone(),
                onward: VecDeque::new(),
                back: VecDeque::new(),
                held: Vec::new(),
                assigning: Vec::new(),
                refused: Vec::new(),
            }),
            _ => Err(Kind::ChannelDirection.into()),
        }
    }

    /// Hands on all that has arrived; says how much. Does not block. What is neither a buffer nor a pool is the
    /// program's: it gets it in `other`.
    pub fn turn(&mut self, other: impl FnMut(Side, Event)) -> Result<usize, Error> {
        self.turn_with(|_, _| {}, other)
    }

    /// As [`Relay::turn`], with a look at each buffer that was moved here, and its metadata, on its way.
    pub fn turn_with(
        &mut self,
        mut look: impl FnMut(&mut Buffer, &mut Meta),
        mut other: impl FnMut(Side, Event),
    ) -> Result<usize, Error> {
        let mut handed = self.send()?;
        for _ in 0..BATCH {
            if !self.onward.is_empty() {
                break;
            }
            let load = match self.up.poll_event()? {
                None => break,
                Some(Event::Moved(mut buffer, mut meta)) => {
                    look(&mut buffer, &mut meta);
                    Load::Move(buffer, meta)
                }
                Some(Event::Copied(copy, meta)) => Load::Copy(copy, meta),
                Some(Event::MovedAll(whole, meta)) => Load::All(whole, meta),
                Some(Event::PoolAssigned(info)) if info.forward => {
                    match self.down.assign(info.id) {
                        Ok(asked) => self.assigning.push((info.id, asked)),
                        Err(_) => self.refused.push((info.id, None)),
                    }
                    continue;
                }
                Some(event) => {
                    other(Side::Up, event);
                    continue;
                }
            };
            handed += self.hand_on(load, Side::Down)?;
        }
        for _ in 0..BATCH {
            if !self.back.is_empty() {
                break;
            }
            match self.down.poll_event()? {
                None => break,
                Some(Event::Passed(buffer, meta)) => {
                    handed += self.hand_on(Load::Pass(buffer, meta), Side::Up)?;
                }
                Some(Event::Released(pool, index, meta)) => {
                    let found = |copy: &ReadBuffer| (copy.pool(), copy.index()) == (pool, index);
                    match self.held.iter().position(found) {
                        Some(at) => {
                            let copy = self.held.swap_remove(at);
                            handed += self.hand_on(Load::Release(copy, meta), Side::Up)?;
                        }
                        None => {
                            other(Side::Down, Event::Released(pool, index, meta));
                            handed += 1;
                        }
                    }
                }
                Some(event) => other(Side::Down, event),
            }
        }
        Ok(handed)
    }

    /// Waits until there may be something to hand on, at most `limit`. Blocks.
    pub fn wait(&self, limit: Duration) -> bool {
        wait_any(&[&self.up, &self.down], limit)
    }

    /// How many buffers wait here for room.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.onward.len() + self.back.len()
    }

    /// Sends what waits, both ways.
    fn send(&mut self) -> Result<usize, Error> {
        let mut sent = 0;
        self.take_off_refused();
        while let Some(load) = self.onward.pop_front() {
            match self.hand_on(load, Side::Down)? {
                0 => break,
                n => sent += n,
            }
        }
        while let Some(load) = self.back.pop_front() {
            match self.hand_on(load, Side::Up)? {
                0 => break,
                n => sent += n,
            }
        }
        Ok(sent)
    }

    /// Pools that do not go on are taken off the channel that they came by, as soon as nothing of them is here.
    fn take_off_refused(&mut self) {
        let refused = &mut self.refused;
        self.assigning.retain(|(id, asked)| match asked.result() {
            None => true,
            Some(Ok(())) => false,
            Some(Err(_)) => {
                refused.push((*id, None));
                false
            }
        });
        let up = &self.up;
        refused.retain_mut(|(id, asked)| {
            match asked.as_ref().map(Completion::result) {
                Some(None) => return true,
                Some(Some(Ok(()))) => return false,
                Some(Some(Err(_))) | None => {}
            }
            *asked = match up.remove(*id) {
                Ok(asked) => Some(asked),
                Err(error) if matches!(error.kind(), Kind::PoolInUse | Kind::Full) => None,
                Err(_) => return false,
            };
            true
        });
    }

    fn is_refused(&self, id: u64) -> bool {
        self.refused.iter().any(|(refused, _)| *refused == id)
    }

    /// Sends one, or keeps it as the next one of its side: 0.
    fn hand_on(&mut self, load: Load, to: Side) -> Result<usize, Error> {
        let (error, load) = match load {
            Load::Move(buffer, meta) => match self.down.move_(buffer, &meta) {
                Ok(_) => return Ok(1),
                Err(failed) => (failed.error, Load::Move(failed.unsent, meta)),
            },
            Load::Pass(buffer, meta) => match self.up.pass(buffer, &meta) {
                Ok(_) => return Ok(1),
                Err(failed) => (failed.error, Load::Pass(failed.unsent, meta)),
            },
            Load::Release(copy, meta) => match self.up.release_with(copy, &meta) {
                Ok(_) => return Ok(1),
                // Other copies of it are out: let go, it follows the last of them.
                Err(failed) if failed.kind() == Kind::BufferRefcount => return Ok(1),
                Err(failed) => (failed.error, Load::Release(failed.unsent, meta)),
            },
            Load::All(whole, meta) => match self.down.move_aggregate(whole, &meta) {
                Ok(_) => return Ok(1),
                Err(failed) => (failed.error, Load::All(failed.unsent, meta)),
            },
            Load::Copy(copy, meta) => match self.down.copy(&copy, &meta) {
                Ok(_) => {
                    self.held.push(copy);
                    return Ok(1);
                }
                Err(error) => (error, Load::Copy(copy, meta)),
            },
        };
        let id = match &load {
            Load::Move(buffer, _) | Load::Pass(buffer, _) => buffer.pool(),
            Load::Copy(copy, _) | Load::Release(copy, _) => copy.pool(),
            Load::All(whole, _) => whole.buffers().first().map_or(0, Buffer::pool),
        };
        // Let go, it goes back.
        if error == Kind::PoolNotAssigned && to == Side::Down && self.is_refused(id) {
            return Ok(1);
        }
        // A pool that arrived just now is not known further down yet.
        let soon = error == Kind::PoolNotAssigned && !self.assigning.is_empty();
        if error != Kind::Full && !soon {
            return Err(error);
        }
        match to {
            Side::Down => self.onward.push_front(load),
            Side::Up => self.back.push_front(load),
        }
        Ok(0)
    }
}
