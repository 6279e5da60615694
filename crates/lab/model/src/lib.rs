//! The executable model of domains, pools, buffers and channels: all domains at once, no memory, no I/O, no time. Tests
//! compare the implementation with it, and nothing that runs imports it.
//!
//! It is Algorithms 1 to 10 of "Bulk Transfer over Shared Memory" (ETH Zurich, 2014), with the reference counts of
//! "Buffer sharing in CSP-like programs" (Rollins), over one pool. The gaps of both are closed:
//!
//! * **In transit.** A message takes effect where it is sent when it is sent, and where it arrives when it is taken
//!   there ([`Op::Deliver`], [`Op::TakeBack`]). In between no domain may touch a moved buffer.
//! * **Frame rule.** [`Model::step`] changes what the operation names and nothing else. An error changes nothing,
//!   except that a channel has agreed to pools that were asked about before the error was found.
//! * **Access is derived** from the holders ([`Model::access`]), never stored.
//! * **Exclusive** is a handle, of which there is one: [`Hold::Sole`]. Only that one is moved. It arrives as one where
//!   the receiver can write, else as a shared one. Both can be handed back, and arrive as shared ones. A buffer that was
//!   sent is exclusive again only as another buffer, when its pool gives the memory out anew. The pool does so
//!   when no domain holds it and no message carries it.
//! * **Copies are counted**: each domain has as many handles as it got and cloned. So no chain of copies has to be
//!   kept: a domain that passes a copy on may release its own first.
//! * **Trust is a pool's**, fixed at its creation, and says what the kernel allows whatever the state
//!   ([`Model::permitted`]). A channel takes the levels that its receiver names, and a receiver may refuse each pool.
//! * **Identity.** Where memory is shared a buffer stays itself. A buffer that is copied (level `none`) or carried
//!   (another machine) becomes a new buffer of the receiver's; then there is nothing to send back.
//! * **A release may be told.** [`Op::Release`] lets a handle go. The source gets a message about it, after all that
//!   came back before.
//! * **Closing is letting go.** Messages that were sent before can still be taken, and so can those that the other end
//!   sent back before it went. Held buffers stay.
//! * **Death** is closing everything and letting everything go at once, and the receiver is told so. A pool whose
//!   writer is dead gives nothing out any more; buffers that others hold stay theirs.
//!
//! [`explore`] has all states of small configurations, [`draw`] random programs.
//!
//! NOT here: bytes and addresses, sleeping, the manager, liars.

#![deny(unsafe_code)]

mod check;
mod deliver;
pub mod draw;
pub mod explore;
mod op;
mod setup;
mod transfer;
mod types;

pub use op::{Event, Op, Outcome};
use std::collections::BTreeMap;
pub use tranship_error::ErrorKind;
pub use tranship_proto::Trust;
pub use types::{
    Access, Buffer, BufferId, Carries, Channel, ChannelId, Domain, EndState, Hold, Message, Piece,
    Pool, PoolId, Way,
};

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

    /// Does an operation.
    pub fn step(&mut self, op: &Op) -> Result<Outcome, ErrorKind> {
        if !self.is_alive(op.domain()) {
            return Err(ErrorKind::BadArgument);
        }
        let done = match op.clone() {
            Op::Connect {
                domain,
                sink,
                lines,
                levels,
            } => self.connect(domain, sink, lines, levels),
            Op::NewPool {
                domain,
                trust,
                slots,
                forward,
            } => self.new_pool(domain, trust, slots, forward),
            Op::Veto {
                domain,
                channel,
                veto,
            } => self.veto(domain, channel, veto),
            Op::Alloc { domain, pool, data } => self.alloc(domain, pool, data),
            Op::Write {
                domain,
                buffer,
                data,
            } => self.write(domain, buffer, data),
            Op::Freeze { domain, buffer } => self.freeze(domain, buffer),
            Op::Clone { domain, buffer } => self.clone_handle(domain, buffer),
            Op::Exclusive { domain, buffer } => self.exclusive(domain, buffer),
            Op::Drop { domain, buffer } => self.let_go(domain, buffer),
            Op::Inline {
                domain,
                channel,
                word,
            } => self.inline(domain, channel, word),
            Op::Send {
                domain,
                channel,
                buffer,
                keep,
                word,
            } => self.share(domain, channel, buffer, keep, word),
            Op::Move {
                domain,
                channel,
                buffer,
                word,
            } => self.move_away(domain, channel, buffer, word),
            Op::SendAll {
                domain,
                channel,
                buffers,
                word,
            } => self.share_all(domain, channel, &buffers, word),
            Op::MoveAll {
                domain,
                channel,
                buffers,
                word,
            } => self.move_all(domain, channel, &buffers, word),
            Op::Release {
                domain,
                channel,
                buffer,
                word,
            } => self.release(domain, channel, buffer, word),
            Op::Pass {
                domain,
                channel,
                buffer,
                word,
            } => self.pass(domain, channel, buffer, word),
            Op::Deliver { domain, channel } => self.deliver(domain, channel),
            Op::TakeBack { domain, channel } => self.take_back(domain, channel),
            Op::Close { domain, channel } => self.close(domain, channel),
            Op::Kill { domain } => self.kill(domain),
        };
        self.collect();
        done
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
    fn collect(&mut self) {
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
}
