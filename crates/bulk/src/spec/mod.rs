//! The executable specification of bulk channels: all domains at once, no memory, no I/O, no time.
//!
//! It is Algorithms 1 to 10 of "Bulk Transfer over Shared Memory" (ETH Zurich, 2014) with their gaps closed:
//!
//! * **In transit.** A message takes effect where it is sent when it is sent, and where it arrives when it is
//!   taken there ([`Op::Deliver`]). In between nobody may touch a moved buffer ([`Place::Transit`]).
//! * **One queue per direction** carries everything, answers included, so a domain never sees an effect before
//!   its cause.
//! * **Frame rule.** [`Model::step`] changes what the operation names and nothing else; an error changes nothing.
//! * **Access is derived** from place and copies ([`Model::access`]), never stored.
//! * **No move of a copied buffer**, nor pass.
//! * **Copies are counted**, per channel and at each of its ends.
//! * **Reachability** is a least fixed point (every copy hangs on a chain of copies from the owner). What a domain
//!   checks is local: the copy by which it got a buffer first is released last, while copies that it passed on
//!   are out. That this suffices is checked after every step.
//! * **Release** goes through the queue like everything else; the owner writes again when it has arrived.
//! * **Trust** says what the kernel allows whatever the state ([`Model::permitted`]).
//! * **A buffer stays itself**: the receiver's is the sender's under the same name, wherever its bytes lie.
//! * **Aggregates** are lists of pieces, moved and copied as one: all checks come first, then everything changes, and
//!   they arrive as one. A buffer that is shown in a mapping of one goes nowhere ([`Model::mapped`]).
//! * **Removal, teardown, death, writes, destruction** have rules. A pool leaves a channel only when nothing that
//!   travelled over it is out; the channel by which it came to a domain it leaves last.

mod aggregate;
mod check;
mod deliver;
mod op;
mod setup;
mod transfer;
mod types;

use crate::{Access, Direction, Kind, Trust};
pub use op::{Event, Op, Outcome};
use std::collections::BTreeMap;
pub use types::{
    Aggregate, Assignment, Buffer, BufferId, Channel, ChannelId, Copies, Domain, End, Message,
    Piece, Place, Pool, PoolId,
};

/// The state of everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Model {
    pub alive: Vec<bool>,
    pub channels: BTreeMap<ChannelId, Channel>,
    pub pools: BTreeMap<PoolId, Pool>,
    pub buffers: BTreeMap<BufferId, Buffer>,
    /// What each domain has gathered, by numbers of its own; those of no piece are not listed.
    pub aggregates: BTreeMap<(Domain, u8), Aggregate>,
    /// What is mapped of them, oldest first.
    pub mappings: BTreeMap<(Domain, u8), Vec<Aggregate>>,
    next_channel: ChannelId,
    next_pool: PoolId,
}

impl Model {
    /// `domains` domains and nothing else.
    #[must_use]
    pub fn new(domains: u8) -> Model {
        Model {
            alive: vec![true; usize::from(domains)],
            channels: BTreeMap::new(),
            pools: BTreeMap::new(),
            buffers: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            mappings: BTreeMap::new(),
            next_channel: 0,
            next_pool: 0,
        }
    }

    /// Does it. An error changes nothing.
    pub fn step(&mut self, op: &Op) -> Result<Outcome, Kind> {
        if !self
            .alive
            .get(usize::from(op.domain()))
            .is_some_and(|alive| *alive)
        {
            return Err(Kind::BadArgument);
        }
        match *op {
            Op::Create {
                domain,
                direction,
                wish,
            } => self.create(domain, direction, wish),
            Op::Bind {
                domain,
                channel,
                wish,
            } => self.bind(domain, channel, wish),
            Op::NewPool {
                domain,
                buffers,
                buffer_bytes,
                forward,
            } => self.new_pool(domain, buffers, buffer_bytes, forward),
            Op::DestroyPool { domain, pool } => self.destroy_pool(domain, pool),
            Op::Veto {
                domain,
                channel,
                veto,
            } => self.veto(domain, channel, veto),
            Op::Assign {
                domain,
                channel,
                pool,
            } => self.assign(domain, channel, pool),
            Op::Remove {
                domain,
                channel,
                pool,
            } => self.remove(domain, channel, pool),
            Op::Write {
                domain,
                buffer,
                data,
            } => self.write(domain, buffer, data),
            Op::Move {
                domain,
                channel,
                buffer,
                meta,
            } => self.transfer_away(domain, channel, buffer, Direction::Source, meta),
            Op::Pass {
                domain,
                channel,
                buffer,
                meta,
            } => self.transfer_away(domain, channel, buffer, Direction::Sink, meta),
            Op::Copy {
                domain,
                channel,
                buffer,
                meta,
            } => self.copy(domain, channel, buffer, meta),
            Op::Release {
                domain,
                channel,
                buffer,
                meta,
            } => self.release(domain, channel, buffer, meta),
            Op::FullCopy {
                domain,
                channel,
                from,
                to,
                meta,
            } => self.full_copy(domain, channel, from, to, meta),
            Op::Insert {
                domain,
                aggregate,
                at,
                piece,
            } => self.insert((domain, aggregate), at, piece),
            Op::TakeOut {
                domain,
                aggregate,
                at,
            } => self.take_out((domain, aggregate), at),
            Op::SendAll {
                domain,
                aggregate,
                channel,
                copies,
                meta,
            } => self.send_all((domain, aggregate), channel, copies, meta),
            Op::Map { domain, aggregate } => self.map((domain, aggregate)),
            Op::Unmap { domain, aggregate } => self.unmap((domain, aggregate)),
            Op::Close { domain, channel } => self.close(domain, channel),
            Op::Forget { domain, channel } => self.forget(domain, channel),
            Op::Kill { domain } => self.kill(domain),
            Op::Deliver { domain, channel } => self.deliver(domain, channel),
        }
    }

    /// Sum of the copies that the domain sent on and that have not come back, as it knows it.
    #[must_use]
    pub fn out(&self, buffer: BufferId, domain: Domain) -> u32 {
        self.copies_of(buffer, Direction::Source, domain, |copies| copies.out)
    }

    /// Sum of the copies that the domain holds.
    #[must_use]
    pub fn held(&self, buffer: BufferId, domain: Domain) -> u32 {
        self.copies_of(buffer, Direction::Sink, domain, |copies| copies.held)
    }

    fn copies_of(
        &self,
        buffer: BufferId,
        end: Direction,
        domain: Domain,
        count: impl Fn(&Copies) -> u8,
    ) -> u32 {
        let Some(buffer) = self.buffers.get(&buffer) else {
            return 0;
        };
        let at_end = |channel| self.end(channel, end).is_some_and(|e| e.domain == domain);
        let here = buffer.copies.iter().filter(|(c, _)| at_end(**c));
        here.map(|(_, copies)| u32::from(count(copies))).sum()
    }

    /// What the domain may do to the buffer's bytes by the rules of ownership (invariants I2 to I4).
    #[must_use]
    pub fn access(&self, buffer: BufferId, domain: Domain) -> Access {
        let owned = self.buffers.get(&buffer).map(|b| b.place) == Some(Place::At(domain));
        let (out, held) = (self.out(buffer, domain), self.held(buffer, domain));
        match (owned, out, held) {
            (true, 0, 0) => Access::ReadWrite,
            (true, _, _) => Access::Read,
            (false, _, 1..) => Access::Read,
            (false, _, 0) => Access::None,
        }
    }

    /// What touching the buffer's memory in the domain does, whatever the rules say.
    #[must_use]
    pub fn permitted(&self, buffer: BufferId, domain: Domain) -> Access {
        let Some(pool) = self.pools.get(&buffer.pool) else {
            return Access::None;
        };
        let by_state = self.access(buffer, domain);
        match (pool.trust, self.has_pool(buffer.pool, domain)) {
            (_, false) => Access::None,
            (None | Some(Trust::Full), true) => Access::ReadWrite,
            (Some(Trust::Producer), true) if domain == pool.creator => Access::ReadWrite,
            (Some(Trust::Producer), true) => Access::Read,
            (Some(Trust::Half | Trust::None), true) => by_state,
        }
    }

    /// Is the pool's memory mapped in the domain?
    #[must_use]
    pub fn has_pool(&self, pool: PoolId, domain: Domain) -> bool {
        let assigned = |channel: &Channel| {
            let mut own = channel.ends.iter().flatten();
            own.any(|end| {
                end.domain == domain
                    && end
                        .pools
                        .get(&pool)
                        .is_some_and(|status| status.has_memory())
            })
        };
        self.alive[usize::from(domain)]
            && self
                .pools
                .get(&pool)
                .is_some_and(|p| p.creator == domain || self.channels.values().any(assigned))
    }

    /// Which end of the channel a domain has.
    #[must_use]
    pub fn direction(&self, channel: ChannelId, domain: Domain) -> Option<Direction> {
        [Direction::Source, Direction::Sink]
            .into_iter()
            .find(|direction| {
                self.end(channel, *direction)
                    .is_some_and(|end| end.domain == domain)
            })
    }

    pub(crate) fn end(&self, channel: ChannelId, direction: Direction) -> Option<&End> {
        self.channels.get(&channel)?.ends[direction as usize].as_ref()
    }

    fn end_mut(&mut self, channel: ChannelId, direction: Direction) -> Option<&mut End> {
        self.channels.get_mut(&channel)?.ends[direction as usize].as_mut()
    }

    /// The domain's own end.
    fn own(&self, channel: ChannelId, domain: Domain) -> Result<(Direction, &End), Kind> {
        let direction = self
            .direction(channel, domain)
            .ok_or(Kind::InvalidEndpoint)?;
        let end = self.end(channel, direction).ok_or(Kind::InvalidEndpoint)?;
        Ok((direction, end))
    }

    /// Puts a message on its way from the end to the other one; into nothing if that one is dead.
    fn send(&mut self, channel: ChannelId, from: Direction, message: Message) {
        let alive = self.alive.clone();
        if let Some(to) = self.end_mut(channel, from.other())
            && alive[usize::from(to.domain)]
        {
            to.queue.push_back(message);
        }
    }
}
