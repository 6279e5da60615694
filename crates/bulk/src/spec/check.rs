//! What holds after every step.

use super::{Assignment, BufferId, ChannelId, Domain, Message, Model, Place};
use crate::{Access, ChannelState, Direction};
use std::collections::BTreeSet;

impl Model {
    /// All invariants; the first that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        for id in self.buffers.keys() {
            self.one_place(*id)?;
            self.counts(*id)?;
            self.exclusive(*id)?;
            self.reachable(*id)?;
            self.closed(*id)?;
            self.shown(*id)?;
        }
        self.both_ends()
    }

    fn domains(&self) -> impl Iterator<Item = Domain> {
        let alive = self.alive.iter().zip(0..).filter(|(alive, _)| **alive);
        alive.map(|(_, domain)| domain)
    }

    fn queued(&self, channel: ChannelId, to: Direction, which: impl Fn(&Message) -> bool) -> usize {
        let end = self.end(channel, to);
        end.map_or(0, |end| end.queue.iter().filter(|m| which(m)).count())
    }

    /// A buffer in transit is in exactly one queue, once; any other is in none.
    fn one_place(&self, id: BufferId) -> Result<(), String> {
        let carries = |m: &Message| match m {
            Message::Move(b, _) | Message::Pass(b, _) => *b == id,
            Message::All(false, pieces, _) => pieces.iter().any(|p| p.buffer == id),
            _ => false,
        };
        for channel in self.channels.keys() {
            let sides = [Direction::Source, Direction::Sink];
            let found: usize = sides
                .iter()
                .map(|d| self.queued(*channel, *d, carries))
                .sum();
            let expected = usize::from(self.buffers[&id].place == Place::Transit(*channel));
            if found != expected {
                return Err(format!(
                    "{id:?} is {found} times on its way over {channel}, not {expected}"
                ));
            }
        }
        Ok(())
    }

    /// What the source counts as out is held by the sink, on its way there, or on its way back.
    fn counts(&self, id: BufferId) -> Result<(), String> {
        for (channel, copies) in &self.buffers[&id].copies {
            let both_live = |d: Direction| {
                self.end(*channel, d).is_some_and(|end| {
                    self.alive[usize::from(end.domain)] && end.state != ChannelState::Closed
                })
            };
            if !both_live(Direction::Source) || !both_live(Direction::Sink) {
                continue;
            }
            let there = self.queued(*channel, Direction::Sink, |m| match m {
                Message::Copy(b, _) => *b == id,
                Message::All(true, pieces, _) => pieces.iter().any(|p| p.buffer == id),
                _ => false,
            });
            let back = self.queued(
                *channel,
                Direction::Source,
                |m| matches!(m, Message::Release(b, _) if *b == id),
            );
            if usize::from(copies.out) != usize::from(copies.held) + there + back {
                return Err(format!(
                    "{id:?} over {channel}: {} copies out, {} held, {there} on their way, {back} coming back",
                    copies.out, copies.held
                ));
            }
        }
        Ok(())
    }

    /// Where one domain may write no other may read.
    fn exclusive(&self, id: BufferId) -> Result<(), String> {
        let all: Vec<Access> = self.domains().map(|d| self.access(id, d)).collect();
        let writers = all.iter().filter(|a| **a == Access::ReadWrite).count();
        let users = all.iter().filter(|a| **a != Access::None).count();
        if writers > 1 || (writers == 1 && users > 1) {
            return Err(format!("{id:?}: {writers} writers, {users} users"));
        }
        Ok(())
    }

    /// I5 as a least fixed point: every copy hangs on a chain of copies from the owner. Deaths break chains.
    fn reachable(&self, id: BufferId) -> Result<(), String> {
        if self.alive.contains(&false) {
            return Ok(());
        }
        let buffer = &self.buffers[&id];
        let out: Vec<ChannelId> = buffer
            .copies
            .iter()
            .filter(|(_, copies)| copies.out > 0)
            .map(|(channel, _)| *channel)
            .collect();
        let Place::At(owner) = buffer.place else {
            return match out.is_empty() {
                true => Ok(()),
                false => Err(format!("{id:?} is on its way while copies are out")),
            };
        };
        let domain_of = |c: ChannelId, d| self.end(c, d).map(|end| end.domain);
        let mut reached = BTreeSet::from([owner]);
        loop {
            let before = reached.len();
            for channel in &out {
                if domain_of(*channel, Direction::Source).is_some_and(|d| reached.contains(&d)) {
                    let held = buffer.copies[channel].held > 0;
                    reached.extend(domain_of(*channel, Direction::Sink).filter(|_| held));
                }
            }
            if reached.len() == before {
                break;
            }
        }
        for channel in out {
            let source = domain_of(channel, Direction::Source);
            if !source.is_some_and(|d| reached.contains(&d)) {
                return Err(format!("{id:?}: the copy over {channel} hangs on nothing"));
            }
        }
        Ok(())
    }

    /// Who owns or holds a buffer has its pool. Deaths leave orphans.
    fn closed(&self, id: BufferId) -> Result<(), String> {
        for domain in self.domains() {
            if self.access(id, domain) != Access::None && !self.has_pool(id.pool, domain) {
                return Err(format!("domain {domain} has {id:?} without its pool"));
            }
        }
        Ok(())
    }

    /// What is shown in a mapping is here.
    fn shown(&self, id: BufferId) -> Result<(), String> {
        for domain in self.domains() {
            if self.mapped(id, domain) && self.access(id, domain) == Access::None {
                return Err(format!("domain {domain} shows {id:?}, which is not here"));
            }
        }
        Ok(())
    }

    /// A pool that one end may send is known to the other end.
    fn both_ends(&self) -> Result<(), String> {
        for (id, channel) in &self.channels {
            let [Some(source), Some(sink)] = &channel.ends else {
                continue;
            };
            for (a, b) in [(source, sink), (sink, source)] {
                let both_alive = [a, b].iter().all(|e| self.alive[usize::from(e.domain)]);
                let sends = |e: &super::End| {
                    e.pools
                        .iter()
                        .filter(|(_, s)| **s == Assignment::Assigned)
                        .map(|(p, _)| *p)
                        .collect::<Vec<_>>()
                };
                let connected = [a, b].iter().all(|e| e.state == ChannelState::Connected);
                let quiet = a.queue.is_empty() && b.queue.is_empty();
                if both_alive && connected && quiet && sends(a) != sends(b) {
                    return Err(format!("the ends of {id} disagree about pools"));
                }
            }
        }
        Ok(())
    }
}
