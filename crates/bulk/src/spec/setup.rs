//! Channels, pools, assignment, removal, closing, death.

use super::{
    Assignment, Buffer, BufferId, Channel, ChannelId, Domain, End, Message, Model, Outcome, Place,
    Pool, PoolId,
};
use crate::{Access, ChannelState, Direction, Kind, negotiate::Wish};
use std::collections::{BTreeMap, VecDeque};

impl Model {
    pub(super) fn create(
        &mut self,
        domain: Domain,
        direction: Direction,
        wish: Wish,
    ) -> Result<Outcome, Kind> {
        if !wish.constraints.align_bytes.is_power_of_two() {
            return Err(Kind::BadArgument);
        }
        let id = self.next_channel;
        self.next_channel += 1;
        let mut ends = [None, None];
        ends[direction as usize] = Some(End::new(domain, ChannelState::Initialized));
        self.channels.insert(
            id,
            Channel {
                creator: domain,
                creator_direction: direction,
                wish,
                agreed: None,
                ends,
            },
        );
        Ok(Outcome::Channel(id))
    }

    pub(super) fn bind(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        wish: Wish,
    ) -> Result<Outcome, Kind> {
        let Some(found) = self.channels.get_mut(&channel) else {
            return Err(Kind::InvalidEndpoint);
        };
        if !self.alive[usize::from(found.creator)] {
            return Err(Kind::InvalidEndpoint);
        }
        let creator = found.creator_direction;
        let waits = found.ends[creator as usize].as_ref().map(|end| end.state)
            == Some(ChannelState::Initialized);
        let other = &mut found.ends[creator.other() as usize];
        // A domain may bind to its own channel; the model keeps the two ends apart by their domains.
        if !waits || other.is_some() || found.creator == domain {
            return Err(Kind::InvalidEndpoint);
        }
        *other = Some(End {
            peer: Some(found.creator),
            ..End::new(domain, ChannelState::Binding)
        });
        self.send(channel, creator.other(), Message::Bind(wish));
        Ok(Outcome::Done)
    }

    pub(super) fn new_pool(
        &mut self,
        domain: Domain,
        buffers: u8,
        buffer_bytes: u64,
        forward: bool,
    ) -> Result<Outcome, Kind> {
        if buffer_bytes == 0 || !buffer_bytes.is_multiple_of(4096) {
            return Err(Kind::AllocSize);
        }
        if buffers == 0 {
            return Err(Kind::AllocCount);
        }
        let id = self.next_pool;
        self.next_pool += 1;
        self.pools.insert(
            id,
            Pool {
                creator: domain,
                trust: None,
                fixed: false,
                forward,
                buffer_bytes,
                came_by: BTreeMap::new(),
            },
        );
        for index in 0..buffers {
            self.buffers.insert(
                BufferId { pool: id, index },
                Buffer {
                    place: Place::At(domain),
                    data: Some(0),
                    copies: BTreeMap::new(),
                    first: BTreeMap::new(),
                    lent: None,
                },
            );
        }
        Ok(Outcome::Pool(id))
    }

    pub(super) fn destroy_pool(&mut self, domain: Domain, pool: PoolId) -> Result<Outcome, Kind> {
        if self.pools.get(&pool).map(|p| p.creator) != Some(domain) {
            return Err(Kind::PoolInvalid);
        }
        let held = |id: &BufferId| id.pool == pool && self.held(*id, domain) > 0;
        let uses = |end: &End| end.is_open() && end.pools.contains_key(&pool);
        if self.own_ends(domain).any(uses) || self.buffers.keys().any(held) {
            return Err(Kind::PoolInUse);
        }
        self.pools.remove(&pool);
        self.buffers.retain(|id, _| id.pool != pool);
        for end in self
            .channels
            .values_mut()
            .flat_map(|c| &mut c.ends)
            .flatten()
        {
            end.pools.remove(&pool);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn veto(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        veto: bool,
    ) -> Result<Outcome, Kind> {
        let (direction, _) = self.own(channel, domain)?;
        if let Some(end) = self.end_mut(channel, direction) {
            end.vetoes = veto;
        }
        Ok(Outcome::Done)
    }

    pub(super) fn assign(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    ) -> Result<Outcome, Kind> {
        let (direction, end) = self.own(channel, domain)?;
        if end.state != ChannelState::Connected {
            return Err(Kind::ChannelState);
        }
        if !self.has_pool(pool, domain) {
            return Err(Kind::PoolInvalid);
        }
        if end.pools.contains_key(&pool) {
            return Err(Kind::PoolAlreadyAssigned);
        }
        let agreed = self.channels[&channel].agreed.ok_or(Kind::ChannelState)?;
        let way = self.came_by(domain, pool).map(|way| self.own(way, domain));
        let stays = way.is_some_and(|way| {
            way.is_ok_and(|(_, end)| {
                end.state == ChannelState::Connected
                    && end.pools.get(&pool) == Some(&Assignment::Assigned)
            })
        });
        let Some(known) = self.pools.get_mut(&pool) else {
            return Err(Kind::PoolInvalid);
        };
        if known.trust.is_some_and(|trust| trust != agreed.trust) {
            return Err(Kind::ChannelTrust);
        }
        if known.creator != domain && !known.forward {
            return Err(Kind::NotForwardable);
        }
        if known.creator != domain && !stays {
            return Err(Kind::PoolInUse);
        }
        if !agreed.constraints.allow(0, 1, known.buffer_bytes) {
            return Err(Kind::BadArgument);
        }
        known.trust = Some(agreed.trust);
        self.set_assignment(channel, direction, pool, Some(Assignment::Asking));
        self.send(channel, direction, Message::Assign(pool));
        Ok(Outcome::Done)
    }

    pub(super) fn remove(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    ) -> Result<Outcome, Kind> {
        let (direction, end) = self.own(channel, domain)?;
        if end.state != ChannelState::Connected {
            return Err(Kind::ChannelState);
        }
        if end.pools.get(&pool) != Some(&Assignment::Assigned) {
            return Err(Kind::PoolNotAssigned);
        }
        if !self.is_clean(domain, channel, pool) {
            return Err(Kind::PoolInUse);
        }
        self.set_assignment(channel, direction, pool, Some(Assignment::Removing));
        self.send(channel, direction, Message::Remove(pool));
        Ok(Outcome::Done)
    }

    pub(super) fn write(
        &mut self,
        domain: Domain,
        buffer: BufferId,
        data: u8,
    ) -> Result<Outcome, Kind> {
        self.check_writable(domain, buffer)?;
        if let Some(buffer) = self.buffers.get_mut(&buffer) {
            buffer.data = Some(data);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn check_writable(&self, domain: Domain, buffer: BufferId) -> Result<(), Kind> {
        let place = self.buffers.get(&buffer).map(|b| b.place);
        if place != Some(Place::At(domain)) {
            return Err(Kind::BufferNotOwned);
        }
        let both = (self.access(buffer, domain), self.permitted(buffer, domain));
        match both {
            (Access::ReadWrite, Access::ReadWrite) => Ok(()),
            _ => Err(Kind::BufferState),
        }
    }

    pub(super) fn close(&mut self, domain: Domain, channel: ChannelId) -> Result<Outcome, Kind> {
        let (direction, end) = self.own(channel, domain)?;
        if end.state != ChannelState::Connected {
            return Err(Kind::ChannelState);
        }
        self.begin_teardown(domain, channel, direction);
        self.send(channel, direction, Message::Teardown);
        self.finish_where_clean(domain);
        Ok(Outcome::Done)
    }

    /// What was being asked about pools is off; what is assigned stays until the end.
    pub(super) fn begin_teardown(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        direction: Direction,
    ) -> Vec<super::Event> {
        let mut told = Vec::new();
        let Some(end) = self.end_mut(channel, direction) else {
            return told;
        };
        end.state = ChannelState::Teardown;
        let failed = Err(Kind::ChannelState);
        let (mut given_up, mut kept) = (Vec::new(), Vec::new());
        end.pools.retain(|pool, status| match *status {
            Assignment::Asking | Assignment::Accepted => {
                if *status == Assignment::Asking {
                    told.push(super::Event::AssignDone(*pool, failed));
                }
                given_up.push(*pool);
                false
            }
            // The other end may use it until it hears of this.
            Assignment::Showing => {
                told.push(super::Event::AssignDone(*pool, failed));
                *status = Assignment::Assigned;
                kept.push(*pool);
                true
            }
            Assignment::Removing => {
                told.push(super::Event::RemoveDone(*pool, failed));
                *status = Assignment::Assigned;
                true
            }
            Assignment::Assigned | Assignment::Agreed => {
                *status = Assignment::Assigned;
                kept.push(*pool);
                true
            }
        });
        for pool in kept {
            self.learn_way(domain, channel, pool);
        }
        for pool in given_up {
            self.unfix_trust(domain, pool);
        }
        told
    }

    /// Every channel of the domain that is being closed, and has nothing of this domain any more, hears so;
    /// those on which both ends have said so are over.
    pub(super) fn finish_where_clean(&mut self, domain: Domain) {
        let ids: Vec<ChannelId> = self.channels.keys().copied().collect();
        for channel in ids {
            let Ok((direction, end)) = self.own(channel, domain) else {
                continue;
            };
            if end.state != ChannelState::Teardown {
                continue;
            }
            let pools: Vec<PoolId> = end.pools.keys().copied().collect();
            let clean = pools.iter().all(|p| self.is_clean(domain, channel, *p));
            let finished = end.finished;
            let clean = clean && end.peer_began;
            if clean && !finished {
                self.send(channel, direction, Message::Finished);
                for pool in pools {
                    self.forget_way(domain, channel, pool);
                }
            }
            if let Some(end) = self.end_mut(channel, direction) {
                end.finished |= clean;
                if end.finished && end.peer_finished {
                    end.state = ChannelState::Closed;
                    end.pools.clear();
                }
            }
        }
    }

    /// Possible when nothing that went over it is here, or out of a pool that stays; what it alone kept of another's pool
    /// goes with it.
    pub(super) fn forget(&mut self, domain: Domain, channel: ChannelId) -> Result<Outcome, Kind> {
        let (direction, end) = self.own(channel, domain)?;
        if end.is_open() {
            return Err(Kind::ChannelState);
        }
        let pools: Vec<PoolId> = end.pools.keys().copied().collect();
        let others = |id: PoolId| {
            let others = self.channels.keys().filter(|other| **other != channel);
            let mut others = others.filter_map(|other| self.own(*other, domain).ok());
            let leaves = |end: &End| end.state == ChannelState::Teardown && end.finished;
            let assigned = Some(&Assignment::Assigned);
            others.any(|(_, end)| end.pools.get(&id) == assigned && !leaves(end))
        };
        for id in &pools {
            let only = self.pools[id].creator != domain && !others(*id);
            let of_pool = self.buffers.iter().filter(|(b, _)| b.pool == *id);
            let needed = of_pool.into_iter().any(|(_, buffer)| {
                let copies = buffer.copies.get(&channel).copied().unwrap_or_default();
                let bound = match direction {
                    Direction::Source => copies.out > 0 && !only,
                    Direction::Sink => copies.held > 0,
                };
                bound || only && buffer.place == Place::At(domain)
            });
            if needed {
                return Err(Kind::PoolInUse);
            }
        }
        for id in pools {
            self.forget_way(domain, channel, id);
        }
        self.forget_end(channel, direction);
        Ok(Outcome::Done)
    }

    pub(super) fn kill(&mut self, domain: Domain) -> Result<Outcome, Kind> {
        self.alive[usize::from(domain)] = false;
        self.aggregates.retain(|(of, _), _| *of != domain);
        self.mappings.retain(|(of, _), _| *of != domain);
        for channel in self.channels.values_mut() {
            for end in channel.ends.iter_mut().flatten() {
                if end.domain == domain {
                    for message in end.queue.drain(..) {
                        let moved = match message {
                            Message::Move(id, _) | Message::Pass(id, _) => vec![id],
                            Message::All(false, all, _) => all.iter().map(|p| p.buffer).collect(),
                            _ => Vec::new(),
                        };
                        for id in moved {
                            if let Some(buffer) = self.buffers.get_mut(&id) {
                                buffer.place = Place::Stranded;
                            }
                        }
                    }
                }
            }
        }
        for buffer in self.buffers.values_mut() {
            if buffer.place == Place::At(domain) {
                buffer.place = Place::Stranded;
            }
        }
        Ok(Outcome::Done)
    }

    /// Can the pool leave the channel, as far as the domain knows? No copy that went over it may be out or here;
    /// and if it is the one by which the pool came, the domain must own nothing of it and have it on no other.
    pub(super) fn is_clean(&self, domain: Domain, channel: ChannelId, pool: PoolId) -> bool {
        let Some(direction) = self.direction(channel, domain) else {
            return true;
        };
        let leaves = self.came_by(domain, pool) == Some(channel);
        let others = self.channels.keys().filter(|id| **id != channel);
        let mut others = others.filter_map(|id| self.own(*id, domain).ok());
        if leaves && others.any(|(_, end)| end.is_open() && end.pools.contains_key(&pool)) {
            return false;
        }
        let of_pool = self.buffers.iter().filter(|(id, _)| id.pool == pool);
        of_pool.into_iter().all(|(_, buffer)| {
            let copies = buffer.copies.get(&channel).copied().unwrap_or_default();
            let count = match direction {
                Direction::Source => copies.out,
                Direction::Sink => copies.held,
            };
            count == 0 && !(leaves && buffer.place == Place::At(domain))
        })
    }

    /// The channel by which another's pool came to the domain first: the one over which its buffers go back.
    pub(super) fn came_by(&self, domain: Domain, pool: PoolId) -> Option<ChannelId> {
        self.pools.get(&pool)?.came_by.get(&domain).copied()
    }

    pub(super) fn own_ends(&self, domain: Domain) -> impl Iterator<Item = &End> {
        let ends = self.channels.values().flat_map(|channel| &channel.ends);
        ends.flatten().filter(move |end| end.domain == domain)
    }

    pub(super) fn set_assignment(
        &mut self,
        channel: ChannelId,
        direction: Direction,
        pool: PoolId,
        status: Option<Assignment>,
    ) {
        if let Some(end) = self.end_mut(channel, direction) {
            match status {
                Some(status) => end.pools.insert(pool, status),
                None => end.pools.remove(&pool),
            };
        }
    }

    /// The pool is off the channel at this end.
    pub(super) fn unassign(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        direction: Direction,
        pool: PoolId,
    ) {
        self.set_assignment(channel, direction, pool, None);
        self.forget_way(domain, channel, pool);
    }

    /// If the pool is another's and has no way back yet, this is it.
    pub(super) fn learn_way(&mut self, domain: Domain, channel: ChannelId, pool: PoolId) {
        if let Some(pool) = self.pools.get_mut(&pool)
            && pool.creator != domain
        {
            pool.came_by.entry(domain).or_insert(channel);
        }
    }

    /// The pool does not go back by this channel; by another, if it came by one too.
    pub(super) fn forget_way(&mut self, domain: Domain, channel: ChannelId, pool: PoolId) {
        if self.came_by(domain, pool) != Some(channel) {
            return;
        }
        // What we want to take off is on it until that is decided.
        let on = [Some(&Assignment::Assigned), Some(&Assignment::Removing)];
        let on = |end: &End| on.contains(&end.pools.get(&pool));
        let has = |end: &End| end.is_open() && !end.finished && on(end);
        let others = self.channels.keys().filter(|id| **id != channel).copied();
        let mut others = others.filter(|id| self.own(*id, domain).is_ok_and(|(_, e)| has(e)));
        let next = others.next();
        if let Some(pool) = self.pools.get_mut(&pool) {
            match next {
                Some(next) => pool.came_by.insert(domain, next),
                None => pool.came_by.remove(&domain),
            };
        }
    }

    /// An assignment came to nothing: if it was the only one ever, the pool's trust is open again.
    pub(super) fn unfix_trust(&mut self, domain: Domain, pool: PoolId) {
        let others = self.own_ends(domain).any(|e| e.pools.contains_key(&pool));
        if let Some(known) = self.pools.get_mut(&pool)
            && known.creator == domain
            && !known.fixed
            && !others
        {
            known.trust = None;
        }
    }
}

impl End {
    /// Not over yet.
    pub(super) fn is_open(&self) -> bool {
        self.state != ChannelState::Closed
    }

    fn new(domain: Domain, state: ChannelState) -> End {
        End {
            domain,
            peer: None,
            state,
            pools: BTreeMap::new(),
            vetoes: false,
            finished: false,
            peer_finished: false,
            peer_began: false,
            queue: VecDeque::new(),
        }
    }
}
