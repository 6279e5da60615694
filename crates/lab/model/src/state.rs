//! The state of everything, and questions about it.

use crate::types::{
    Access, Buffer, BufferId, Channel, ChannelId, Domain, EndState, Hold, Message, Piece, Pool,
    PoolId, Way,
};
use std::collections::BTreeMap;
use tranship_proto::Trust;

/// The state of everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Model {
    pub way: Way,
    /// Whether pools of level `none` have large buffers only, which are sealed.
    pub seals: bool,
    pub alive: Vec<bool>,
    pub channels: BTreeMap<ChannelId, Channel>,
    pub pools: BTreeMap<PoolId, Pool>,
    /// Buffers that a domain holds, or that are on their way.
    pub buffers: BTreeMap<BufferId, Buffer>,
}

/// Returns the domain's pool for copies.
#[must_use]
pub fn copies_of(domain: Domain) -> PoolId {
    100 + domain
}

/// Returns the domain's pool for the lists of aggregates.
#[must_use]
pub fn lists_of(domain: Domain) -> PoolId {
    200 + domain
}

impl Model {
    /// Creates a model with so many domains, each with a pool for copies and one for lists. Messages between them go
    /// this way.
    #[must_use]
    pub fn new(way: Way, domains: u8) -> Model {
        let own = |pool: fn(Domain) -> PoolId| {
            (0..domains).map(move |writer| (pool(writer), Pool::new(writer, Trust::Producer, 64)))
        };
        Model {
            way,
            seals: false,
            alive: vec![true; usize::from(domains)],
            channels: BTreeMap::new(),
            pools: own(copies_of).chain(own(lists_of)).collect(),
            buffers: BTreeMap::new(),
        }
    }

    /// Returns the model with all buffers of pools of level `none` large: nobody writes them once they are sent, so
    /// nobody copies them.
    #[must_use]
    pub fn sealing(self, seals: bool) -> Model {
        Model { seals, ..self }
    }

    pub(crate) fn is_alive(&self, domain: Domain) -> bool {
        self.alive.get(usize::from(domain)).copied() == Some(true)
    }

    /// Returns whether it is a pool of the domain's own: inside a process there is one domain, whose threads the
    /// model's domains are then.
    #[must_use]
    pub fn is_own(&self, pool: PoolId, domain: Domain) -> bool {
        self.way == Way::Inside || self.pools.get(&pool).is_some_and(|p| p.writer == domain)
    }

    /// Returns the domain's hold on the buffer.
    #[must_use]
    pub fn hold(&self, buffer: BufferId, domain: Domain) -> Option<Hold> {
        self.buffers.get(&buffer)?.holds.get(&domain).copied()
    }

    /// Returns the access that the domain has to the buffer's bytes.
    #[must_use]
    pub fn access(&self, buffer: BufferId, domain: Domain) -> Access {
        match self.hold(buffer, domain) {
            None => Access::None,
            Some(Hold::Sole) => Access::ReadWrite,
            Some(Hold::Shared { .. }) => Access::Read,
        }
    }

    /// Returns whether a domain that is not the pool's writer may write it.
    pub(crate) fn may_all_write(&self, pool: PoolId, domain: Domain) -> bool {
        let trust = self.pools.get(&pool).map(|pool| pool.trust);
        trust.is_some_and(Trust::all_write) && !self.is_own(pool, domain)
    }

    /// Returns the effect of touching the buffer's memory in the domain, whatever the rules say; None: that is not
    /// specified.
    #[must_use]
    pub fn permitted(&self, buffer: BufferId, domain: Domain) -> Option<Access> {
        let pool = self.pools.get(&buffer.pool)?;
        if !self.has_pool(buffer.pool, domain) {
            return None;
        }
        let is_own = self.is_own(buffer.pool, domain);
        match (pool.trust, is_own) {
            (Trust::None, true) if self.is_sealed(buffer) => Some(Access::Read),
            (Trust::Full, _) | (Trust::None | Trust::Producer, true) => Some(Access::ReadWrite),
            (Trust::None | Trust::Producer, false) => Some(Access::Read),
            (Trust::Half, _) => match self.access(buffer, domain) {
                // Its writer loses access to a buffer that it moves. A buffer that it shared, and let go, it goes on
                // reading.
                Access::None if is_own && !self.is_moved(buffer) => None,
                // All of the process has one mapping.
                Access::None if self.way == Way::Inside => None,
                access => Some(access),
            },
        }
    }

    /// Returns whether it is one of level `none` that nobody can write any more.
    fn is_sealed(&self, buffer: BufferId) -> bool {
        let sent = self.buffers.get(&buffer).is_some_and(|b| b.sent);
        self.seals && self.way == Way::Shared && sent
    }

    /// Returns whether it is another one's alone, or on its way to be.
    fn is_moved(&self, buffer: BufferId) -> bool {
        let moves = |m: &Message| m.carries.moves() && m.pieces.contains(&Piece::Buffer(buffer));
        // Its writer may look early at a buffer that comes back.
        let mut all = self.channels.values().flat_map(|c| &c.queue);
        let sole = |hold: &Hold| matches!(hold, Hold::Sole);
        all.any(moves)
            || self
                .buffers
                .get(&buffer)
                .is_some_and(|b| b.holds.values().any(sole))
    }

    /// Returns whether the pool's memory is mapped in the domain, for later messages.
    #[must_use]
    pub fn has_pool(&self, pool: PoolId, domain: Domain) -> bool {
        let comes = |c: &Channel| {
            c.sink == domain && c.ends == [EndState::Open; 2] && c.assigned.contains(&pool)
        };
        let held = |(id, b): (&BufferId, &Buffer)| id.pool == pool && b.holds.contains_key(&domain);
        self.is_alive(domain)
            && (self.is_own(pool, domain)
                || self.channels.values().any(comes)
                || self.buffers.iter().any(held))
    }

    /// Returns whether something of it is on its way.
    #[must_use]
    pub fn is_under_way(&self, buffer: BufferId) -> bool {
        let names = |message: &Message| message.pieces.contains(&Piece::Buffer(buffer));
        let mut all = self
            .channels
            .values()
            .flat_map(|c| c.queue.iter().chain(&c.back));
        all.any(names)
    }

    /// Returns to the pool the buffers that no domain holds and no message carries.
    pub(crate) fn collect(&mut self) {
        let dead = |model: &Model, id: &BufferId| {
            model.buffers[id].holds.is_empty() && !model.is_under_way(*id)
        };
        let all: Vec<_> = self.buffers.keys().copied().collect();
        for id in all
            .into_iter()
            .filter(|id| dead(self, id))
            .collect::<Vec<_>>()
        {
            self.buffers.remove(&id);
        }
    }

    /// Returns how many buffers of it are in use.
    #[must_use]
    pub fn in_use(&self, pool: PoolId) -> usize {
        self.buffers.keys().filter(|id| id.pool == pool).count()
    }

    /// Returns whether an arriving buffer is a copy of the receiver's own.
    pub(crate) fn is_copied(&self, pool: PoolId, domain: Domain) -> bool {
        let sealed = self.seals && self.way == Way::Shared;
        self.pools[&pool].trust == Trust::None && !self.is_own(pool, domain) && !sealed
    }

    /// Gives the domain a handle more of a buffer.
    pub(crate) fn share_with(&mut self, domain: Domain, buffer: BufferId) {
        let (before, given) = match self.hold(buffer, domain) {
            Some(Hold::Shared { handles, given }) => (handles, given),
            _ => (0, false),
        };
        let handles = before + 1;
        self.set_hold(domain, buffer, Some(Hold::Shared { handles, given }));
    }

    pub(crate) fn hold_mut(&mut self, domain: Domain, buffer: BufferId) -> Option<&mut Hold> {
        self.buffers.get_mut(&buffer)?.holds.get_mut(&domain)
    }

    pub(crate) fn set_hold(&mut self, domain: Domain, buffer: BufferId, hold: Option<Hold>) {
        if let Some(found) = self.buffers.get_mut(&buffer) {
            match hold {
                Some(hold) => found.holds.insert(domain, hold),
                None => found.holds.remove(&domain),
            };
        }
    }
}
