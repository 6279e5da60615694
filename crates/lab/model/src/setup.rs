//! Channels, pools, buffers, closing, death.

use crate::types::{Buffer, BufferId, Channel, ChannelId, Domain, EndState, Hold, Pool, PoolId};
use crate::{ErrorKind, Model, Outcome, Trust};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Handles that a domain has of one buffer.
const MOST_HANDLES: u8 = 200;

impl Model {
    pub(crate) fn connect(
        &mut self,
        source: Domain,
        sink: Domain,
        lines: u8,
        levels: Vec<Trust>,
    ) -> Result<Outcome, ErrorKind> {
        if !self.is_alive(sink) || sink == source {
            return Err(ErrorKind::BadArgument);
        }
        let id = u8::try_from(self.channels.len())
            .map_err(|_: std::num::TryFromIntError| ErrorKind::Limit)?;
        let channel = Channel {
            source,
            sink,
            ends: [EndState::Open; 2],
            lines,
            levels: levels.into_iter().collect(),
            vetoes: false,
            assigned: BTreeSet::new(),
            removed: [BTreeSet::new(), BTreeSet::new()],
            queue: VecDeque::new(),
            back: VecDeque::new(),
        };
        self.channels.insert(id, channel);
        Ok(Outcome::Channel(id))
    }

    pub(crate) fn new_pool(
        &mut self,
        domain: Domain,
        trust: Trust,
        slots: u8,
        forward: bool,
    ) -> Result<Outcome, ErrorKind> {
        if slots == 0 {
            return Err(ErrorKind::BadArgument);
        }
        let next = (0..100).find(|id| !self.pools.contains_key(id));
        let id = next.ok_or(ErrorKind::Limit)?;
        let pool = Pool {
            forward,
            ..Pool::new(domain, trust, slots)
        };
        self.pools.insert(id, pool);
        Ok(Outcome::Pool(id))
    }

    pub(crate) fn veto(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        veto: bool,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.channels.get_mut(&channel);
        let found = found.filter(|c| c.sink == domain && c.ends[1] == EndState::Open);
        found.ok_or(ErrorKind::InvalidEndpoint)?.vetoes = veto;
        Ok(Outcome::Done)
    }

    pub(crate) fn alloc(
        &mut self,
        domain: Domain,
        pool: PoolId,
        data: u8,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.pools.get(&pool);
        found
            .filter(|found| found.writer == domain)
            .ok_or(ErrorKind::BadArgument)?;
        let id = self.place_in(pool)?;
        self.put(id, data, domain, Hold::Sole);
        Ok(Outcome::Buffer(id))
    }

    /// Returns a place that no domain has.
    pub(crate) fn place_in(&self, pool: PoolId) -> Result<BufferId, ErrorKind> {
        let slots = self.pools.get(&pool).map_or(0, |pool| pool.slots);
        let mut all = (0..slots).map(|index| BufferId { pool, index });
        let free = all.find(|id| !self.buffers.contains_key(id));
        free.ok_or(ErrorKind::OutOfMemory)
    }

    pub(crate) fn put(&mut self, id: BufferId, data: u8, domain: Domain, hold: Hold) {
        let buffer = Buffer {
            data,
            sent: false,
            holds: BTreeMap::from([(domain, hold)]),
        };
        self.buffers.insert(id, buffer);
    }

    pub(crate) fn held(&self, domain: Domain, buffer: BufferId) -> Result<Hold, ErrorKind> {
        self.hold(buffer, domain).ok_or(ErrorKind::BufferInvalid)
    }

    pub(crate) fn sole(&self, domain: Domain, buffer: BufferId) -> Result<(), ErrorKind> {
        match self.held(domain, buffer)? {
            Hold::Sole => Ok(()),
            Hold::Shared { .. } => Err(ErrorKind::BufferState),
        }
    }

    pub(crate) fn shared(&self, domain: Domain, buffer: BufferId) -> Result<u8, ErrorKind> {
        match self.held(domain, buffer)? {
            Hold::Sole => Err(ErrorKind::BufferState),
            Hold::Shared { handles, .. } => Ok(handles),
        }
    }

    pub(crate) fn write(
        &mut self,
        domain: Domain,
        buffer: BufferId,
        data: u8,
    ) -> Result<Outcome, ErrorKind> {
        self.sole(domain, buffer)?;
        if let Some(found) = self.buffers.get_mut(&buffer) {
            found.data = data;
        }
        Ok(Outcome::Done)
    }

    pub(crate) fn freeze(
        &mut self,
        domain: Domain,
        buffer: BufferId,
    ) -> Result<Outcome, ErrorKind> {
        self.sole(domain, buffer)?;
        self.share_with(domain, buffer);
        Ok(Outcome::Done)
    }

    pub(crate) fn clone_handle(
        &mut self,
        domain: Domain,
        buffer: BufferId,
    ) -> Result<Outcome, ErrorKind> {
        let handles = self.shared(domain, buffer)?;
        if handles >= MOST_HANDLES {
            return Err(ErrorKind::Limit);
        }
        self.share_with(domain, buffer);
        Ok(Outcome::Done)
    }

    /// Makes a buffer the writer's alone, if it was never sent and there is one handle.
    pub(crate) fn exclusive(
        &mut self,
        domain: Domain,
        buffer: BufferId,
    ) -> Result<Outcome, ErrorKind> {
        let handles = self.shared(domain, buffer)?;
        let found = &self.buffers[&buffer];
        let only = handles == 1 && found.holds.len() == 1 && !self.is_under_way(buffer);
        if !only || found.sent || !self.is_own(buffer.pool, domain) {
            return Err(ErrorKind::BufferState);
        }
        self.set_hold(domain, buffer, Some(Hold::Sole));
        Ok(Outcome::Done)
    }

    pub(crate) fn let_go(
        &mut self,
        domain: Domain,
        buffer: BufferId,
    ) -> Result<Outcome, ErrorKind> {
        let left = match self.held(domain, buffer)? {
            Hold::Shared { handles, given } if handles > 1 => Some(Hold::Shared {
                handles: handles - 1,
                given,
            }),
            Hold::Sole | Hold::Shared { .. } => None,
        };
        self.set_hold(domain, buffer, left);
        Ok(Outcome::Done)
    }

    pub(crate) fn close(
        &mut self,
        domain: Domain,
        channel: ChannelId,
    ) -> Result<Outcome, ErrorKind> {
        let found = self.channels.get_mut(&channel);
        let found = found.ok_or(ErrorKind::InvalidEndpoint)?;
        let at = usize::from(found.source != domain);
        let is_end = found.source == domain || found.sink == domain;
        if !is_end || found.ends[at] != EndState::Open {
            return Err(ErrorKind::InvalidEndpoint);
        }
        found.end(at, EndState::Closed);
        Ok(Outcome::Done)
    }

    pub(crate) fn kill(&mut self, domain: Domain) -> Result<Outcome, ErrorKind> {
        self.alive[usize::from(domain)] = false;
        for channel in self.channels.values_mut() {
            for (at, end) in [channel.source, channel.sink].into_iter().enumerate() {
                if end == domain && channel.ends[at] == EndState::Open {
                    channel.end(at, EndState::Died);
                }
            }
        }
        for buffer in self.buffers.values_mut() {
            buffer.holds.remove(&domain);
        }
        Ok(Outcome::Done)
    }
}

impl Channel {
    /// Ends one end; messages on their way to it are nobody's.
    fn end(&mut self, at: usize, how: EndState) {
        self.ends[at] = how;
        match at {
            0 => self.back.clear(),
            _ => self.queue.clear(),
        }
    }
}
