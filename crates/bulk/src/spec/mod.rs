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
//! * **Removal, teardown, death, writes, destruction** have rules. A pool leaves a channel only when nothing that
//!   travelled over it is out; the channel by which it came to a domain it leaves last.

mod check;
mod deliver;
mod setup;
mod transfer;

use crate::{Access, Agreement, ChannelState, Code, Direction, Trust, negotiate::Wish};
use std::collections::{BTreeMap, VecDeque};

/// A domain.
pub type Domain = u8;
/// A channel.
pub type ChannelId = u8;
/// A pool.
pub type PoolId = u8;

/// A buffer: its pool and its place in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId {
    pub pool: PoolId,
    pub index: u8,
}

/// Where the ownership of a buffer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// This domain owns it.
    At(Domain),
    /// It was moved or passed over the channel and has not been taken.
    Transit(ChannelId),
    /// Its owner died, and nobody can know who else has it. It comes back with the end of its pool.
    Stranded,
}

/// The copies of a buffer over one channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Copies {
    /// Sent and not known to be released, at the source.
    pub out: u8,
    /// Taken and not released, at the sink.
    pub held: u8,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Buffer {
    pub place: Place,
    /// What is in it; None: not specified (after a pass).
    pub data: Option<u8>,
    pub copies: BTreeMap<ChannelId, Copies>,
    /// Over which channel each holder of copies got the first of those that it holds.
    pub first: BTreeMap<Domain, ChannelId>,
    /// To whom the pool's creator gave it last, until it comes back.
    pub lent: Option<Domain>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pool {
    pub creator: Domain,
    /// Fixed by the first assignment that the other end accepts; until then, that of the one under way.
    pub trust: Option<Trust>,
    pub fixed: bool,
    /// May others than the creator assign it?
    pub forward: bool,
    pub buffer_bytes: u64,
    /// By which channel it came to each domain first.
    pub came_by: BTreeMap<Domain, ChannelId>,
}

/// Where the assignment of a pool to a channel stands, at one end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Assignment {
    /// Asked, not answered.
    Asking,
    /// Said yes, memory not shown yet.
    Accepted,
    /// Yes was said, memory shown, not confirmed.
    Showing,
    Assigned,
    /// We want to remove it.
    Removing,
    /// We said yes to its removal.
    Agreed,
}

impl Assignment {
    /// Is the pool's memory there?
    pub(crate) fn has_memory(self) -> bool {
        matches!(self, Self::Assigned | Self::Removing | Self::Agreed)
    }
}

/// One end of a channel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    pub domain: Domain,
    pub state: ChannelState,
    pub pools: BTreeMap<PoolId, Assignment>,
    /// Refuses the pools that the other end assigns.
    pub vetoes: bool,
    /// The other end is in teardown too: nothing new is on its way here.
    pub peer_began: bool,
    /// In teardown: has said that it holds nothing any more.
    pub finished: bool,
    /// In teardown: has heard so.
    pub peer_finished: bool,
    /// What is on its way here.
    pub queue: VecDeque<Message>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel {
    pub creator: Domain,
    pub creator_direction: Direction,
    pub wish: Wish,
    pub agreed: Option<Agreement>,
    /// Source and sink; None: not bound.
    pub ends: [Option<End>; 2],
}

/// What travels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    Bind(Wish),
    BindAnswer(Result<Agreement, Code>),
    Assign(PoolId),
    AssignAnswer(PoolId, Result<(), Code>),
    Show(PoolId),
    Shown(PoolId),
    Remove(PoolId),
    RemoveAnswer(PoolId, Result<(), Code>),
    /// The remover's last word.
    RemoveDecision(PoolId, bool),
    Move(BufferId, u8),
    Copy(BufferId, u8),
    Pass(BufferId, u8),
    Release(BufferId),
    Teardown,
    Finished,
}

/// Everything that a domain can do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Op {
    /// Algorithm 3.
    Create {
        domain: Domain,
        direction: Direction,
        wish: Wish,
    },
    /// Algorithm 4.
    Bind {
        domain: Domain,
        channel: ChannelId,
        wish: Wish,
    },
    /// Algorithm 5.
    NewPool {
        domain: Domain,
        buffers: u8,
        buffer_bytes: u64,
        forward: bool,
    },
    DestroyPool {
        domain: Domain,
        pool: PoolId,
    },
    /// From here on this end refuses (or accepts) pools.
    Veto {
        domain: Domain,
        channel: ChannelId,
        veto: bool,
    },
    /// Algorithm 6.
    Assign {
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    },
    Remove {
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    },
    Write {
        domain: Domain,
        buffer: BufferId,
        data: u8,
    },
    /// Algorithm 7.
    Move {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    },
    /// Algorithm 8.
    Pass {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    },
    /// Algorithm 9.
    Copy {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    },
    /// Algorithm 10.
    Release {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
    },
    /// Section 5.1.11: the bytes of `from` into `to`, which is then moved.
    FullCopy {
        domain: Domain,
        channel: ChannelId,
        from: BufferId,
        to: BufferId,
        meta: u8,
    },
    Close {
        domain: Domain,
        channel: ChannelId,
    },
    /// The domain ends, whatever it is doing.
    Kill {
        domain: Domain,
    },
    /// The domain takes the next message of the channel, or learns that the other end is gone.
    Deliver {
        domain: Domain,
        channel: ChannelId,
    },
}

impl Op {
    /// Who does it.
    #[must_use]
    pub fn domain(&self) -> Domain {
        match *self {
            Op::Create { domain, .. }
            | Op::Bind { domain, .. }
            | Op::NewPool { domain, .. }
            | Op::DestroyPool { domain, .. }
            | Op::Veto { domain, .. }
            | Op::Assign { domain, .. }
            | Op::Remove { domain, .. }
            | Op::Write { domain, .. }
            | Op::Move { domain, .. }
            | Op::Pass { domain, .. }
            | Op::Copy { domain, .. }
            | Op::Release { domain, .. }
            | Op::FullCopy { domain, .. }
            | Op::Close { domain, .. }
            | Op::Kill { domain }
            | Op::Deliver { domain, .. } => domain,
        }
    }
}

/// What a domain learns from a message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    Bound(Result<Agreement, Code>),
    /// The other end's pool is here.
    PoolAssigned(PoolId),
    /// What became of our own assignment.
    AssignDone(PoolId, Result<(), Code>),
    PoolRemoved(PoolId),
    RemoveDone(PoolId, Result<(), Code>),
    Moved(BufferId, u8, Option<u8>),
    Copied(BufferId, u8, Option<u8>),
    Passed(BufferId, u8),
    Released(BufferId),
    /// The other end wants to close.
    TeardownBegun,
    /// The other end is dead; these of our buffers came back.
    Gone(Vec<BufferId>),
}

/// What a step gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Channel(ChannelId),
    Pool(PoolId),
    /// Deliver: nothing waits.
    Nothing,
    /// Deliver: a message was taken, and the domain learned this from it.
    Took(Vec<Event>),
}

/// The state of everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Model {
    pub alive: Vec<bool>,
    pub channels: BTreeMap<ChannelId, Channel>,
    pub pools: BTreeMap<PoolId, Pool>,
    pub buffers: BTreeMap<BufferId, Buffer>,
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
            next_channel: 0,
            next_pool: 0,
        }
    }

    /// Does it. An error changes nothing.
    pub fn step(&mut self, op: &Op) -> Result<Outcome, Code> {
        if !self
            .alive
            .get(usize::from(op.domain()))
            .is_some_and(|alive| *alive)
        {
            return Err(Code::InvalidArgument);
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
            } => self.release(domain, channel, buffer),
            Op::FullCopy {
                domain,
                channel,
                from,
                to,
                meta,
            } => self.full_copy(domain, channel, from, to, meta),
            Op::Close { domain, channel } => self.close(domain, channel),
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
    fn own(&self, channel: ChannelId, domain: Domain) -> Result<(Direction, &End), Code> {
        let direction = self
            .direction(channel, domain)
            .ok_or(Code::InvalidEndpoint)?;
        let end = self.end(channel, direction).ok_or(Code::InvalidEndpoint)?;
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
