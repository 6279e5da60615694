//! What a domain can derive from what it knows: the same rules as the model's, seen from one place.

use super::forget::is_here;
use super::{Channel, Pool, Slot, State};
use crate::{Access, BufferState, ChannelState, Direction, Error, Kind, Trust, spec::Assignment};

impl Slot {
    pub(crate) fn new(owned: bool) -> Slot {
        Slot {
            owned,
            lent: None,
            held: Default::default(),
            out: Default::default(),
            first: None,
            access: Access::ReadWrite,
            mapped: 0,
            arriving: None,
            let_go: false,
            copies_let_go: Default::default(),
        }
    }

    pub(crate) fn held(&self) -> u32 {
        self.held.total()
    }

    pub(crate) fn out(&self) -> u32 {
        self.out.total()
    }

    pub(crate) fn state(&self) -> BufferState {
        match (self.owned, self.held() + self.out(), self.held()) {
            (true, 0, _) => BufferState::ReadWrite,
            (true, _, _) => BufferState::ReadOnlyOwned,
            (false, _, 0) => BufferState::Invalid,
            (false, _, _) => BufferState::ReadOnly,
        }
    }

    /// By the rules of ownership alone.
    pub(crate) fn by_state(&self) -> Access {
        match self.state() {
            BufferState::ReadWrite => Access::ReadWrite,
            BufferState::ReadOnlyOwned | BufferState::ReadOnly => Access::Read,
            BufferState::Invalid => Access::None,
        }
    }
}

impl Pool {
    /// What the memory of a buffer in this state is to allow.
    pub(crate) fn permitted(&self, slot: &Slot) -> Access {
        match self.trust {
            None | Some(Trust::Full) => Access::ReadWrite,
            Some(Trust::Producer) if self.creator => Access::ReadWrite,
            Some(Trust::Producer) => Access::Read,
            Some(Trust::Half | Trust::None) => slot.by_state(),
        }
    }

    /// Makes a buffer's memory what its state wants. Whoever calls it has just changed the state, and takes that
    /// back if this fails.
    pub(crate) fn protect(&mut self, index: u32) -> Result<(), Error> {
        let slot = &self.slots[index as usize];
        let access = self.permitted(slot);
        if slot.access != access {
            match &mut self.pieces {
                Some(pieces) => pieces.protect(&self.memory, index, access)?,
                None => self.memory.protect(index, access)?,
            }
            self.slots[index as usize].access = access;
        }
        Ok(())
    }

    pub(crate) fn is_writable(&self, slot: &Slot) -> Result<(), Error> {
        if !slot.owned {
            return Err(Kind::BufferNotOwned.into());
        }
        let both = (slot.by_state(), self.permitted(slot));
        match both {
            (Access::ReadWrite, Access::ReadWrite) => Ok(()),
            _ => Err(Kind::BufferState.into()),
        }
    }
}

impl State {
    pub(crate) fn slot(&self, pool: u64, index: u32) -> Result<(&Pool, &Slot), Error> {
        let pool = self.pools.get(&pool).ok_or(Kind::PoolInvalid)?;
        let slot = pool.slots.get(index as usize);
        let slot = slot.ok_or(Kind::BufferInvalid)?;
        Ok((pool, slot))
    }

    pub(crate) fn slot_mut(&mut self, pool: u64, index: u32) -> Result<(&mut Pool, usize), Error> {
        let pool = self.pools.get_mut(&pool).ok_or(Kind::PoolInvalid)?;
        match (index as usize) < pool.slots.len() {
            true => Ok((pool, index as usize)),
            false => Err(Kind::BufferInvalid.into()),
        }
    }

    /// Can the pool leave the channel, as far as this domain knows?
    pub(crate) fn is_clean(&self, channel: u64, id: u64) -> bool {
        let Some(pool) = self.pools.get(&id) else {
            return true;
        };
        let leaves = pool.came_by == Some(channel);
        let mut others = self.channels.iter().filter(|(other, _)| **other != channel);
        if leaves && others.any(|(_, other)| other.is_open() && other.pools.contains_key(&id)) {
            return false;
        }
        let source = self.channels.get(&channel).map(|c| c.direction) == Some(Direction::Source);
        pool.slots.iter().all(|slot| {
            let counted = match source {
                true => slot.out.of(channel) > 0,
                false => slot.held.of(channel) > 0,
            };
            !(counted || leaves && slot.owned)
        })
    }

    /// If the pool is another's and has no way back yet, this is it.
    pub(crate) fn learn_way(&mut self, channel: u64, id: u64) {
        if let Some(pool) = self.pools.get_mut(&id)
            && !pool.creator
        {
            pool.came_by.get_or_insert(channel);
        }
    }

    /// The pool does not go back by this channel; by another, if it came by one too.
    pub(crate) fn forget_way(&mut self, channel: u64, id: u64) {
        if self.pools.get(&id).and_then(|pool| pool.came_by) != Some(channel) {
            return;
        }
        let mut others = self.channels.iter().filter(|(other, _)| **other != channel);
        // What we want to take off is on it until that is decided.
        let on = [Some(Assignment::Assigned), Some(Assignment::Removing)];
        let status = |c: &Channel| c.pools.get(&id).map(|assigned| assigned.status);
        let next = others.find(|(_, c)| c.is_open() && !c.finished && on.contains(&status(c)));
        let next = next.map(|(other, _)| *other);
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.came_by = next;
        }
    }

    /// The pool is off the channel here; if it is another's and on no other, it is forgotten.
    pub(crate) fn unassign(&mut self, channel: u64, id: u64) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.pools.remove(&id);
        }
        self.forget_way(channel, id);
        self.drop_pool_if_unused(id);
    }

    pub(crate) fn drop_pool_if_unused(&mut self, id: u64) {
        let used = self.channels.values().any(|c| c.pools.contains_key(&id));
        let Some(pool) = self.pools.get(&id) else {
            return;
        };
        if !used && !pool.creator && !pool.slots.iter().any(is_here) {
            self.pools.remove(&id);
        }
    }

    /// An assignment came to nothing: if it was the only one ever, the pool's trust is open again.
    pub(crate) fn unfix_trust(&mut self, id: u64) {
        let used = self.channels.values().any(|c| c.pools.contains_key(&id));
        if let Some(pool) = self.pools.get_mut(&id)
            && pool.creator
            && !pool.fixed
            && !used
        {
            pool.trust = None;
        }
    }

    /// Is the pool this domain's to use? Memory may outlive that for a moment: while the pool comes again, and is not shown yet.
    pub(crate) fn has_memory(&self, id: u64) -> bool {
        let on = [
            Assignment::Assigned,
            Assignment::Removing,
            Assignment::Agreed,
        ];
        let mut all = self.channels.values();
        self.pools.get(&id).is_some_and(|pool| pool.creator)
            || all.any(|c| c.pools.get(&id).is_some_and(|a| on.contains(&a.status)))
    }

    /// Is the pool's memory firmly here, so that it can be shown on?
    pub(crate) fn stays(&self, id: u64) -> bool {
        let way = self.pools.get(&id).and_then(|pool| pool.came_by);
        let channel = way.and_then(|way| self.channels.get(&way));
        channel.is_some_and(|c| c.state == ChannelState::Connected && c.is_assigned(id))
    }

    pub(crate) fn status(&self, channel: u64, pool: u64) -> Option<Assignment> {
        let channel = self.channels.get(&channel)?;
        channel.pools.get(&pool).map(|assigned| assigned.status)
    }
}
