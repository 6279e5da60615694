//! Sharing, moving, sending back: the sender's half. The order of the checks is fixed: the end, the held buffer, the
//! other end, the pool, room.

use crate::types::{
    BufferId, Carries, Channel, ChannelId, Domain, EndState, Hold, Message, Piece, PoolId, Way,
};
use crate::{ErrorKind, Model, Outcome, lists_of};

impl Model {
    /// Returns the channel, if this is its source, and open.
    fn source(&self, domain: Domain, channel: ChannelId) -> Result<&Channel, ErrorKind> {
        let found = self.channels.get(&channel);
        let found = found.filter(|c| c.source == domain && c.ends[0] == EndState::Open);
        found.ok_or(ErrorKind::InvalidEndpoint)
    }

    /// Checks that the other end is there.
    fn sink_is_there(&self, channel: ChannelId) -> Result<(), ErrorKind> {
        match self.channels[&channel].ends[1] {
            EndState::Open => Ok(()),
            EndState::Closed | EndState::Died => Err(ErrorKind::PeerGone),
        }
    }

    fn room(&self, channel: ChannelId) -> Result<(), ErrorKind> {
        let found = &self.channels[&channel];
        match self.way != Way::Carried && found.queue.len() >= usize::from(found.lines) {
            true => Err(ErrorKind::Full),
            false => Ok(()),
        }
    }

    /// Makes the sink agree to the pool, once (Algorithm 6).
    fn agree(&mut self, domain: Domain, channel: ChannelId, id: PoolId) -> Result<(), ErrorKind> {
        let (found, pool) = (&self.channels[&channel], &self.pools[&id]);
        let level = match found.levels.contains(&pool.trust) {
            true => Ok(()),
            false => Err(ErrorKind::ChannelTrust),
        };
        match self.way {
            // A carried pool does not come to the other machine.
            Way::Carried => return Ok(()),
            Way::Inside | Way::Shared if found.is_lost(id) || found.removed[0].contains(&id) => {
                return Err(ErrorKind::PoolNotAssigned);
            }
            Way::Inside | Way::Shared if found.assigned.contains(&id) => return Ok(()),
            Way::Inside | Way::Shared => {}
        }
        if self.way == Way::Shared && pool.writer != domain {
            // Nobody is left to be told of the new reader. The manager says so also of a pool that nobody may forward.
            if !self.is_alive(pool.writer) {
                return Err(ErrorKind::Stale);
            }
            if !pool.forward {
                return Err(ErrorKind::Refused);
            }
        }
        level?;
        if found.vetoes {
            return Err(ErrorKind::Refused);
        }
        if let Some(found) = self.channels.get_mut(&channel) {
            found.assigned.insert(id);
        }
        Ok(())
    }

    pub(crate) fn assign(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    ) -> Result<Outcome, ErrorKind> {
        self.source(domain, channel)?;
        let its = |pool: &crate::Pool| pool.writer == domain;
        if !self.pools.get(&pool).is_some_and(its) {
            return Err(ErrorKind::BadArgument);
        }
        self.sink_is_there(channel)?;
        if let Some(found) = self.channels.get_mut(&channel)
            && !found.is_lost(pool)
        {
            found.removed[0].remove(&pool);
        }
        self.agree(domain, channel, pool)?;
        Ok(Outcome::Done)
    }

    /// Removes a pool, at either end. The source may still take a buffer of it that is on its way back.
    pub(crate) fn remove(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    ) -> Result<Outcome, ErrorKind> {
        let shared = self.way == Way::Shared;
        let found = self.channels.get_mut(&channel);
        let found = found.filter(|c| c.source == domain || c.sink == domain);
        let found = found.ok_or(ErrorKind::InvalidEndpoint)?;
        let at = usize::from(found.source != domain);
        if found.ends[at] != EndState::Open {
            return Err(ErrorKind::InvalidEndpoint);
        }
        if found.ends[1 - at] != EndState::Open {
            return Err(ErrorKind::PeerGone);
        }
        let lost = match at {
            0 => found.is_lost(pool),
            _ => false,
        };
        if !found.assigned.contains(&pool) || lost || found.removed[at].contains(&pool) {
            return Err(ErrorKind::PoolNotAssigned);
        }
        if at == 1 && shared {
            if found.back.len() >= usize::from(found.lines) {
                return Err(ErrorKind::Full);
            }
            found.back.push_back(Message {
                carries: Carries::Removed { pool },
                pieces: Vec::new(),
                word: 0,
            });
        }
        found.removed[at].insert(pool);
        Ok(Outcome::Done)
    }

    /// Returns the part of a buffer that goes over.
    fn piece(&mut self, id: BufferId) -> Piece {
        let Some(buffer) = self.buffers.get_mut(&id) else {
            return Piece::Bytes(0);
        };
        match self.way {
            Way::Carried => Piece::Bytes(buffer.data),
            Way::Shared => {
                buffer.sent = true;
                Piece::Buffer(id)
            }
            Way::Inside => Piece::Buffer(id),
        }
    }

    /// Sends buffers in one message: shared, or given away, as `carries` says. Without a buffer it is an inline one.
    pub(crate) fn send(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        all: &[BufferId],
        carries: Carries,
        word: u8,
    ) -> Result<Outcome, ErrorKind> {
        self.source(domain, channel)?;
        for buffer in all {
            match carries.moves() {
                true => self.sole(domain, *buffer)?,
                false => self.shared(domain, *buffer).map(drop)?,
            }
        }
        self.sink_is_there(channel)?;
        for buffer in all {
            self.agree(domain, channel, buffer.pool)?;
        }
        let has_list = matches!(carries, Carries::Aggregate | Carries::MovedAggregate);
        if has_list && self.way == Way::Shared {
            self.agree(domain, channel, lists_of(domain))?;
        }
        self.room(channel)?;
        let pieces = all.iter().map(|id| self.piece(*id)).collect();
        if let Some(found) = self.channels.get_mut(&channel) {
            found.queue.push_back(Message {
                carries,
                pieces,
                word,
            });
        }
        for buffer in all.iter().filter(|_| carries.moves()) {
            self.set_hold(domain, *buffer, None);
        }
        Ok(Outcome::Done)
    }

    /// Returns the channel, if this is its sink, and open.
    pub(crate) fn sink(&self, domain: Domain, channel: ChannelId) -> Result<&Channel, ErrorKind> {
        let found = self.channels.get(&channel);
        let found = found.filter(|c| c.sink == domain && c.ends[1] == EndState::Open);
        found.ok_or(ErrorKind::InvalidEndpoint)
    }

    pub(crate) fn release(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        word: u8,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.sink(domain, channel)?;
        self.held(domain, buffer)?;
        if found.ends[0] != EndState::Open {
            return Err(ErrorKind::PeerGone);
        }
        let named = match self.way {
            Way::Inside => true,
            Way::Carried => false,
            Way::Shared => found.assigned.contains(&buffer.pool),
        };
        if !named && !self.is_own(buffer.pool, domain) {
            return Err(ErrorKind::PoolNotAssigned);
        }
        if self.way != Way::Carried && found.back.len() >= usize::from(found.lines) {
            return Err(ErrorKind::Full);
        }
        if let Some(found) = self.channels.get_mut(&channel) {
            found.back.push_back(Message {
                carries: Carries::Released { named },
                pieces: Vec::new(),
                word,
            });
        }
        self.let_go(domain, buffer)
    }

    pub(crate) fn pass(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        word: u8,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.sink(domain, channel)?;
        let carries = match self.held(domain, buffer)? {
            Hold::Sole => Carries::Moved,
            Hold::Shared { given: true, .. } => Carries::Shared,
            Hold::Shared { given: false, .. } => return Err(ErrorKind::BufferNotOwned),
        };
        if self.way != Way::Inside && self.is_own(buffer.pool, domain) {
            return Err(ErrorKind::BufferNotOwned);
        }
        if found.ends[0] != EndState::Open {
            return Err(ErrorKind::PeerGone);
        }
        let writer = self.pools[&buffer.pool].writer;
        let its_source = writer == found.source && found.assigned.contains(&buffer.pool);
        if self.way == Way::Shared && !its_source {
            return Err(ErrorKind::PoolNotAssigned);
        }
        if found.back.len() >= usize::from(found.lines) {
            return Err(ErrorKind::Full);
        }
        self.let_go(domain, buffer)?;
        if let Some(Hold::Shared { given, .. }) = self.hold_mut(domain, buffer) {
            *given = false;
        }
        if let Some(found) = self.channels.get_mut(&channel) {
            found.back.push_back(Message {
                carries,
                pieces: vec![Piece::Buffer(buffer)],
                word,
            });
        }
        Ok(Outcome::Done)
    }
}
