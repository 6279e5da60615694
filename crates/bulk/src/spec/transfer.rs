//! Move, pass, copy, release, full copy: Algorithms 7 to 10, the sender's half.
//!
//! The order of the checks is fixed: state, direction, assigned, then the buffer.

use super::{Assignment, BufferId, ChannelId, Domain, Message, Model, Outcome, Place};
use crate::{Access, ChannelState, Direction, Kind};

impl Model {
    /// State, direction and assignment, in this order.
    pub(super) fn check_channel(
        &self,
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        needs: Direction,
        gives_back: bool,
    ) -> Result<(), Kind> {
        let (direction, end) = self.own(channel, domain)?;
        let open = match end.state {
            ChannelState::Connected => true,
            ChannelState::Teardown => {
                gives_back && !end.finished && self.came_by(domain, buffer.pool) == Some(channel)
            }
            _ => false,
        };
        if !open {
            return Err(Kind::ChannelState);
        }
        if direction != needs {
            return Err(Kind::ChannelDirection);
        }
        if end.pools.get(&buffer.pool) != Some(&Assignment::Assigned) {
            return Err(Kind::PoolNotAssigned);
        }
        Ok(())
    }

    /// May the domain give it away?
    pub(super) fn check_owned(&self, domain: Domain, buffer: BufferId) -> Result<(), Kind> {
        if self.buffers.get(&buffer).map(|b| b.place) != Some(Place::At(domain)) {
            return Err(Kind::BufferNotOwned);
        }
        match (self.access(buffer, domain), self.mapped(buffer, domain)) {
            (Access::ReadWrite, false) => Ok(()),
            _ => Err(Kind::BufferState),
        }
    }

    /// May the domain copy it?
    pub(super) fn check_here(&self, domain: Domain, buffer: BufferId) -> Result<(), Kind> {
        match (self.access(buffer, domain), self.mapped(buffer, domain)) {
            (Access::None, _) => Err(Kind::BufferInvalid),
            (_, true) => Err(Kind::BufferState),
            (_, false) => Ok(()),
        }
    }

    /// A move (from the source) or a pass (from the sink).
    pub(super) fn transfer_away(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        from: Direction,
        meta: u8,
    ) -> Result<Outcome, Kind> {
        self.check_channel(domain, channel, buffer, from, true)?;
        self.check_owned(domain, buffer)?;
        let peer = self.end(channel, from.other()).map(|end| end.domain);
        let dead = peer.is_none_or(|peer| !self.alive[usize::from(peer)]);
        let is_creator = self.pools[&buffer.pool].creator == domain;
        if let Some(buffer) = self.buffers.get_mut(&buffer) {
            buffer.place = match dead {
                true => Place::Stranded,
                false => Place::Transit(channel),
            };
            if is_creator {
                buffer.lent = peer;
            }
            if from == Direction::Sink {
                buffer.data = None;
            }
        }
        let message = match from {
            Direction::Source => Message::Move(buffer, meta),
            Direction::Sink => Message::Pass(buffer, meta),
        };
        self.send(channel, from, message);
        self.finish_where_clean(domain);
        Ok(Outcome::Done)
    }

    pub(super) fn copy(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    ) -> Result<Outcome, Kind> {
        self.check_channel(domain, channel, buffer, Direction::Source, false)?;
        self.check_here(domain, buffer)?;
        if let Some(found) = self.buffers.get_mut(&buffer) {
            found.copies.entry(channel).or_default().out += 1;
        }
        self.send(channel, Direction::Source, Message::Copy(buffer, meta));
        Ok(Outcome::Done)
    }

    pub(super) fn release(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    ) -> Result<Outcome, Kind> {
        let (direction, end) = self.own(channel, domain)?;
        let over = end.state == ChannelState::Closed;
        if !over && !matches!(end.state, ChannelState::Connected | ChannelState::Teardown) {
            return Err(Kind::ChannelState);
        }
        if direction != Direction::Sink {
            return Err(Kind::ChannelDirection);
        }
        let status = end.pools.get(&buffer.pool);
        if !status.is_some_and(|status| status.has_memory()) {
            return Err(Kind::PoolNotAssigned);
        }
        let found = self.buffers.get(&buffer).ok_or(Kind::PoolNotAssigned)?;
        let held = found.copies.get(&channel).map_or(0, |copies| copies.held);
        if held == 0 {
            return Err(Kind::BufferNotACopy);
        }
        let owned = found.place == Place::At(domain);
        let first = found.first.get(&domain) == Some(&channel) && held == 1;
        if !owned && first && self.out(buffer, domain) > 0 {
            return Err(Kind::BufferRefcount);
        }
        if self.mapped(buffer, domain) {
            return Err(Kind::BufferState);
        }
        self.drop_copy(domain, channel, buffer);
        if !over {
            self.send(channel, Direction::Sink, Message::Release(buffer, meta));
        }
        self.finish_where_clean(domain);
        Ok(Outcome::Done)
    }

    /// Takes one held copy away; another channel becomes the one that is released last.
    fn drop_copy(&mut self, domain: Domain, channel: ChannelId, id: BufferId) {
        let sinks: Vec<ChannelId> = self
            .channels
            .keys()
            .copied()
            .filter(|c| self.end(*c, Direction::Sink).map(|e| e.domain) == Some(domain))
            .collect();
        let Some(buffer) = self.buffers.get_mut(&id) else {
            return;
        };
        if let Some(copies) = buffer.copies.get_mut(&channel) {
            copies.held -= 1;
            if copies.held > 0 {
                return;
            }
            if copies.out == 0 {
                buffer.copies.remove(&channel);
            }
        }
        if buffer.first.get(&domain) == Some(&channel) {
            buffer.first.remove(&domain);
            let holds = |c: &&ChannelId| buffer.copies.get(*c).is_some_and(|x| x.held > 0);
            if let Some(next) = sinks.iter().find(holds) {
                buffer.first.insert(domain, *next);
            }
        }
    }

    pub(super) fn full_copy(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        from: BufferId,
        to: BufferId,
        meta: u8,
    ) -> Result<Outcome, Kind> {
        self.check_channel(domain, channel, to, Direction::Source, false)?;
        if self.access(from, domain) == Access::None || from == to {
            return Err(Kind::BufferInvalid);
        }
        self.check_owned(domain, to)?;
        self.check_writable(domain, to)?;
        let bytes = |id: BufferId| self.pools.get(&id.pool).map(|pool| pool.buffer_bytes);
        if bytes(from) != bytes(to) {
            return Err(Kind::AllocSize);
        }
        let data = self.buffers.get(&from).and_then(|buffer| buffer.data);
        if let Some(to) = self.buffers.get_mut(&to) {
            to.data = data;
        }
        self.transfer_away(domain, channel, to, Direction::Source, meta)
    }
}
