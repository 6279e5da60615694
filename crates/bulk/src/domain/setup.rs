//! Channels, pools, assignment and removal: the asking side.

use super::turn::MOST_POOLS;
use super::{Acceptor, Assigned, BTreeMap, Channel, Pool, Shared, Slot, State, VecDeque};
use crate::message::{MAX_META_BYTES, Message, PoolInfo, VERSION};
use crate::{
    ChannelState, Completion, Constraints, Direction, Error, Kind, Wish, memory::Memory,
    spec::Assignment,
};
use std::sync::{Arc, PoisonError};
use tranship_transport::{Backend, Bytes};

impl Shared {
    fn backend<'a>(&self, address: &'a str) -> Result<(Arc<dyn Backend>, &'a str), Error> {
        let (scheme, name) = address.split_once(':').ok_or(Kind::InvalidEndpoint)?;
        let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        match (backends.get(scheme), name.is_empty()) {
            (Some(backend), false) => Ok((Arc::clone(backend), name)),
            _ => Err(Kind::InvalidEndpoint.into()),
        }
    }

    pub(crate) fn create(
        &self,
        address: &str,
        direction: Direction,
        wish: Wish,
        meta_bytes: u32,
        acceptor: Option<Acceptor>,
    ) -> Result<u64, Error> {
        let fine = wish.constraints.align_bytes.is_power_of_two() && meta_bytes <= MAX_META_BYTES;
        if !fine {
            return Err(Kind::BadArgument.into());
        }
        let (backend, name) = self.backend(address)?;
        let mut channel = Channel::new(backend, direction, wish, true);
        channel.meta_bytes = meta_bytes;
        channel.acceptor = acceptor;
        let listener = channel
            .backend
            .listen(name)
            .map_err(|error| match error.kind() {
                Kind::System => Error::of(Kind::ChannelCreate)(error),
                _ => error,
            });
        channel.listener = Some(listener?);
        Ok(self.lock().add_channel(channel))
    }

    pub(crate) fn bind(
        &self,
        address: &str,
        wish: Wish,
        acceptor: Option<Acceptor>,
    ) -> Result<(u64, Completion), Error> {
        if !wish.constraints.align_bytes.is_power_of_two() {
            return Err(Kind::BadArgument.into());
        }
        let (backend, name) = self.backend(address)?;
        let transport = backend.connect(name)?;
        // The direction is the opposite of the creator's, and comes with the answer.
        let mut channel = Channel::new(backend, Direction::Sink, wish, false);
        channel.acceptor = acceptor;
        channel.transport = Some(transport);
        let ask = Message::Bind {
            version: VERSION,
            domain: self.id,
            wish,
        };
        channel.send(&ask.frame(Vec::new())?)?;
        let completion = Completion::default();
        channel.bind = Some(completion.clone());
        Ok((self.lock().add_channel(channel), completion))
    }

    pub(crate) fn new_pool(
        &self,
        buffers: u32,
        buffer_bytes: u64,
        forward: bool,
        within: &Constraints,
    ) -> Result<u64, Error> {
        let info = PoolInfo {
            id: self.new_pool_id(),
            buffers,
            buffer_bytes,
            forward,
        };
        let account = Arc::clone(&self.lock().account);
        if !within.align_bytes.is_power_of_two() {
            return Err(Kind::BadArgument.into());
        }
        let memory = Memory::make(&info, &account, within.within())?;
        if !within.allow(memory.base(), u64::from(buffers), buffer_bytes) {
            return Err(Kind::BadArgument.into());
        }
        let mut pool = Pool::new(info, memory, true, true);
        pool.free = (0..buffers).rev().collect();
        self.lock().pools.insert(info.id, pool);
        Ok(info.id)
    }

    pub(crate) fn destroy_pool(&self, id: u64) -> Result<(), Error> {
        let mut state = self.tend(self.lock());
        let pool = state.pools.get(&id).ok_or(Kind::PoolInvalid)?;
        if !pool.creator {
            return Err(Kind::PoolInvalid.into());
        }
        let uses = |c: &Channel| c.is_open() && c.pools.contains_key(&id);
        let used = state.channels.values().any(uses);
        if used || pool.slots.iter().any(|slot| slot.held() > 0) {
            return Err(Kind::PoolInUse.into());
        }
        state.pools.remove(&id);
        for channel in state.channels.values_mut() {
            channel.pools.remove(&id);
        }
        state.forget_unwatched();
        Ok(())
    }

    pub(crate) fn assign(&self, channel: u64, id: u64) -> Result<Completion, Error> {
        let mut state = self.lock();
        let state = &mut *state;
        let (has, stays) = (state.has_memory(id), state.stays(id));
        let end = state
            .channels
            .get_mut(&channel)
            .ok_or(Kind::InvalidEndpoint)?;
        if end.state != ChannelState::Connected {
            return Err(Kind::ChannelState.into());
        }
        let pool = state.pools.get_mut(&id).filter(|_| has);
        let pool = pool.ok_or(Kind::PoolInvalid)?;
        if end.pools.contains_key(&id) {
            return Err(Kind::PoolAlreadyAssigned.into());
        }
        if end.pools.len() >= MOST_POOLS {
            return Err(Kind::Limit.into());
        }
        let agreed = end.agreed.ok_or(Kind::ChannelState)?;
        if pool.trust.is_some_and(|trust| trust != agreed.trust) {
            return Err(Kind::ChannelTrust.into());
        }
        if !pool.creator && !pool.info.forward {
            return Err(Kind::NotForwardable.into());
        }
        if !pool.creator && !stays {
            return Err(Kind::PoolInUse.into());
        }
        let (buffers, bytes) = (u64::from(pool.info.buffers), pool.info.buffer_bytes);
        if !agreed.constraints.allow(pool.memory.base(), buffers, bytes) {
            return Err(Kind::BadArgument.into());
        }
        let shared = end.backend.bytes() == Bytes::Shared;
        pool.choose(agreed.trust, state.seal_from, shared)?;
        end.send(&Message::Assign(pool.info, pool.sealed).frame(Vec::new())?)?;
        pool.trust = Some(agreed.trust);
        let completion = Completion::default();
        end.pools.insert(
            id,
            Assigned {
                asked: Some(completion.clone()),
                ..Assigned::new(Assignment::Asking, pool.info, pool.sealed)
            },
        );
        Ok(completion)
    }

    pub(crate) fn remove(&self, channel: u64, id: u64) -> Result<Completion, Error> {
        let mut state = self.lock();
        let state = &mut *state;
        let clean = state.is_clean(channel, id);
        let end = state
            .channels
            .get_mut(&channel)
            .ok_or(Kind::InvalidEndpoint)?;
        if end.state != ChannelState::Connected {
            return Err(Kind::ChannelState.into());
        }
        if !end.is_assigned(id) {
            return Err(Kind::PoolNotAssigned.into());
        }
        if !clean {
            return Err(Kind::PoolInUse.into());
        }
        end.send(&Message::Remove(id).frame(Vec::new())?)?;
        let completion = Completion::default();
        if let Some(assigned) = end.pools.get_mut(&id) {
            assigned.status = Assignment::Removing;
            assigned.asked = Some(completion.clone());
        }
        Ok(completion)
    }

    /// A free buffer of a pool that this domain created.
    pub(crate) fn alloc(&self, id: u64) -> Result<(u32, Arc<Memory>), Error> {
        let mut state = self.lock();
        if state
            .pools
            .get(&id)
            .is_some_and(|pool| pool.free.is_empty())
        {
            state = self.tend(state);
        }
        let pool = state.pools.get_mut(&id).ok_or(Kind::PoolInvalid)?;
        let index = pool.free.pop().ok_or(Kind::AllocCount)?;
        pool.loosen(index);
        Ok((index, Arc::clone(&pool.memory)))
    }

    /// A certain buffer, if it is free.
    pub(crate) fn alloc_at(&self, id: u64, index: u32) -> Result<Arc<Memory>, Error> {
        let mut state = self.lock();
        let pool = state.pools.get_mut(&id).ok_or(Kind::PoolInvalid)?;
        let place = pool.free.iter().position(|free| *free == index);
        pool.free.remove(place.ok_or(Kind::AllocCount)?);
        Ok(Arc::clone(&pool.memory))
    }
}

impl State {
    fn add_channel(&mut self, channel: Channel) -> u64 {
        self.channels.push(channel)
    }
}

impl Pool {
    pub(super) fn new(info: PoolInfo, memory: Memory, creator: bool, own_memory: bool) -> Pool {
        Pool {
            info,
            memory: Arc::new(memory),
            own_memory,
            sealed: false,
            pieces: None,
            creator,
            trust: None,
            fixed: false,
            came_by: None,
            slots: (0..info.buffers).map(|_| Slot::new(creator)).collect(),
            free: Vec::new(),
        }
    }
}

impl Assigned {
    pub(super) fn new(status: Assignment, info: PoolInfo, sealed: bool) -> Assigned {
        Assigned {
            status,
            info,
            staging: None,
            mirror: None,
            sealed,
            made: None,
            asked: None,
        }
    }
}

impl Channel {
    fn new(backend: Arc<dyn Backend>, direction: Direction, wish: Wish, creator: bool) -> Channel {
        Channel {
            state: match creator {
                true => ChannelState::Initialized,
                false => ChannelState::Binding,
            },
            direction,
            wish,
            creator,
            agreed: None,
            meta_bytes: 0,
            backend,
            listener: None,
            callers: Default::default(),
            transport: None,
            peer: (0, 0),
            pools: BTreeMap::new(),
            peer_began: false,
            finished: false,
            peer_finished: false,
            held_back: None,
            arriving: None,
            parts: Vec::new(),
            outbox: VecDeque::new(),
            sent: 0,
            taken: Vec::new(),
            ends: Default::default(),
            bind: None,
            closing: Vec::new(),
            events: VecDeque::new(),
            wakers: Vec::new(),
            acceptor: None,
            unwatched: false,
            failure: None,
            why: None,
        }
    }
}
