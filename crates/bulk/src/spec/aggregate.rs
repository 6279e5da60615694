//! Several buffers as one operation, and as one range. The report has only the words "aggregate" and "scatter".
//!
//! An aggregate names pieces of buffers and has nothing: whether its domain may send them is asked when it does. It is moved
//! or copied whole: the checks are those of a single move or copy, for each buffer, before anything changes.

use super::{Aggregate, BufferId, ChannelId, Domain, Message, Model, Outcome, Piece, Place};
use crate::{Access, Direction, Kind, MAX_PIECES};
use std::collections::BTreeSet;

/// Pieces that are mapped are whole pages.
const PAGE: u64 = 4096;

/// Whose, and which.
type Key = (Domain, u8);

/// Each buffer of an aggregate once, in the order in which they appear.
fn buffers(pieces: &[Piece]) -> Vec<BufferId> {
    let mut seen = BTreeSet::new();
    let new = pieces.iter().filter(|piece| seen.insert(piece.buffer));
    new.map(|piece| piece.buffer).collect()
}

impl Model {
    pub(super) fn insert(&mut self, key: Key, at: u8, piece: Piece) -> Result<Outcome, Kind> {
        let known =
            self.buffers.contains_key(&piece.buffer) && self.has_pool(piece.buffer.pool, key.0);
        let bytes = match self.pools.get(&piece.buffer.pool) {
            Some(pool) if known => pool.buffer_bytes,
            _ => 0,
        };
        let end = piece.offset.checked_add(piece.len);
        let pieces = self.aggregates.get(&key).map_or(0, Vec::len);
        let inside = end.is_some_and(|end| end <= bytes);
        if !inside || usize::from(at) > pieces || pieces >= MAX_PIECES {
            return Err(Kind::BadArgument);
        }
        let aggregate = self.aggregates.entry(key).or_default();
        aggregate.insert(usize::from(at), piece);
        Ok(Outcome::Done)
    }

    pub(super) fn take_out(&mut self, key: Key, at: u8) -> Result<Outcome, Kind> {
        let aggregate = self.aggregates.get_mut(&key);
        let aggregate = aggregate.ok_or(Kind::BadArgument)?;
        if usize::from(at) >= aggregate.len() {
            return Err(Kind::BadArgument);
        }
        aggregate.remove(usize::from(at));
        if aggregate.is_empty() {
            self.aggregates.remove(&key);
        }
        Ok(Outcome::Done)
    }

    /// What is sent is the aggregate as it is; it stays gathered.
    pub(super) fn send_all(
        &mut self,
        key: Key,
        channel: ChannelId,
        copies: bool,
        meta: u8,
    ) -> Result<Outcome, Kind> {
        let domain = key.0;
        self.own(channel, domain)?;
        let Some(pieces) = self.aggregates.get(&key).cloned() else {
            return Err(Kind::BadArgument);
        };
        let peer = self.end(channel, Direction::Sink).map(|end| end.domain);
        let all = buffers(&pieces);
        for buffer in &all {
            let source = Direction::Source;
            self.check_channel(domain, channel, *buffer, source, !copies)?;
            match copies {
                true => self.check_here(domain, *buffer)?,
                false => self.check_owned(domain, *buffer)?,
            }
        }
        let dead = peer.is_none_or(|peer| !self.alive[usize::from(peer)]);
        for id in all {
            let is_creator = self.pools[&id.pool].creator == domain;
            let Some(buffer) = self.buffers.get_mut(&id) else {
                continue;
            };
            if copies {
                buffer.copies.entry(channel).or_default().out += 1;
                continue;
            }
            buffer.place = match dead {
                true => Place::Stranded,
                false => Place::Transit(channel),
            };
            if is_creator {
                buffer.lent = peer;
            }
        }
        let message = Message::All(copies, pieces, meta);
        self.send(channel, Direction::Source, message);
        self.finish_where_clean(domain);
        Ok(Outcome::Done)
    }

    /// All of it is here, at once.
    pub(super) fn take_all(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        copies: bool,
        pieces: &Aggregate,
    ) {
        for id in buffers(pieces) {
            match copies {
                true => self.hold(id, domain, channel),
                false => {
                    self.arrive(id, domain);
                }
            }
        }
    }

    pub(super) fn map(&mut self, key: Key) -> Result<Outcome, Kind> {
        let whole = |n: u64| n.is_multiple_of(PAGE);
        let fits = |p: &Piece| whole(p.offset) && whole(p.len) && p.len > 0;
        let pieces = self.aggregates.get(&key).cloned().unwrap_or_default();
        if pieces.is_empty() || !pieces.iter().all(fits) {
            return Err(Kind::BadArgument);
        }
        for buffer in buffers(&pieces) {
            if !self.has_pool(buffer.pool, key.0) {
                return Err(Kind::PoolInvalid);
            }
            if self.access(buffer, key.0) == Access::None {
                return Err(Kind::BufferInvalid);
            }
        }
        // A pool's memory may become another one with its level.
        let fixed = |buffer: BufferId| self.pools.get(&buffer.pool).is_some_and(|p| p.fixed);
        if !buffers(&pieces).into_iter().all(fixed) {
            return Err(Kind::PoolNotAssigned);
        }
        self.mappings.entry(key).or_default().push(pieces);
        Ok(Outcome::Done)
    }

    pub(super) fn unmap(&mut self, key: Key) -> Result<Outcome, Kind> {
        let all = self.mappings.get_mut(&key).ok_or(Kind::BadArgument)?;
        all.remove(0);
        if all.is_empty() {
            self.mappings.remove(&key);
        }
        Ok(Outcome::Done)
    }

    /// Is the buffer shown in a mapping of the domain?
    #[must_use]
    pub fn mapped(&self, buffer: BufferId, domain: Domain) -> bool {
        let own = self.mappings.iter().filter(|((of, _), _)| *of == domain);
        let mut pieces = own.flat_map(|(_, all)| all).flatten();
        pieces.any(|piece| piece.buffer == buffer)
    }
}
