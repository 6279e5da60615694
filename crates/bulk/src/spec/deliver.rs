//! What a message does where it arrives.

use super::{
    Assignment, BufferId, ChannelId, Domain, Event, Message, Model, Outcome, Place, PoolId,
};
use crate::{ChannelState, Direction, Kind, negotiate::negotiate};

impl Model {
    pub(super) fn deliver(&mut self, domain: Domain, channel: ChannelId) -> Result<Outcome, Kind> {
        let (direction, end) = self.own(channel, domain)?;
        let other = self.end(channel, direction.other()).map(|end| end.domain);
        let gone = other.is_some_and(|peer| !self.alive[usize::from(peer)]);
        if end.queue.is_empty() {
            let state = end.state;
            if !gone {
                return Ok(Outcome::Nothing);
            }
            return Ok(match state {
                ChannelState::Closed | ChannelState::Uninitialized => Outcome::Nothing,
                // Whoever connected is gone before it was bound: somebody else may.
                ChannelState::Initialized => {
                    self.forget_end(channel, direction.other());
                    Outcome::Nothing
                }
                ChannelState::Binding => {
                    self.forget_end(channel, direction);
                    Outcome::Took(vec![Event::Bound(Err(Kind::InvalidEndpoint))])
                }
                _ => self.peer_gone(domain, channel, direction),
            });
        }
        let Some(message) = self
            .end_mut(channel, direction)
            .and_then(|end| end.queue.pop_front())
        else {
            return Ok(Outcome::Nothing);
        };
        let told = self.take(domain, channel, direction, message);
        self.finish_where_clean(domain);
        Ok(Outcome::Took(told))
    }

    fn take(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        direction: Direction,
        message: Message,
    ) -> Vec<Event> {
        match message {
            Message::Bind(wish) => {
                let agreed =
                    negotiate(self.channels[&channel].wish, wish).map_err(|why| why.kind());
                self.send(channel, direction, Message::BindAnswer(agreed));
                let binder = self.end(channel, direction.other());
                let binder = binder.map(|end| end.domain);
                if let Some(found) = self.channels.get_mut(&channel)
                    && let (Ok(agreement), Some(end)) =
                        (agreed, found.ends[direction as usize].as_mut())
                {
                    found.agreed = Some(agreement);
                    end.state = ChannelState::Connected;
                    end.peer = binder;
                    return vec![Event::Bound(agreed)];
                }
                Vec::new()
            }
            Message::BindAnswer(agreed) => {
                if let Some(end) = self.end_mut(channel, direction) {
                    end.state = match agreed {
                        Ok(_) => ChannelState::Connected,
                        Err(_) => ChannelState::Uninitialized,
                    };
                }
                if agreed.is_err() {
                    self.forget_end(channel, direction);
                }
                vec![Event::Bound(agreed)]
            }
            Message::Teardown => {
                let mut told = Vec::new();
                if self.is_connected(channel, direction) {
                    told = self.begin_teardown(domain, channel, direction);
                    told.push(Event::TeardownBegun);
                    self.send(channel, direction, Message::Teardown);
                }
                if let Some(end) = self.end_mut(channel, direction) {
                    end.peer_began = true;
                }
                told
            }
            Message::Finished => {
                if let Some(end) = self.end_mut(channel, direction) {
                    end.peer_finished = true;
                }
                Vec::new()
            }
            Message::Move(id, meta) => {
                let data = self.arrive(id, domain);
                vec![Event::Moved(id, meta, data)]
            }
            Message::Pass(id, meta) => {
                self.arrive(id, domain);
                vec![Event::Passed(id, meta)]
            }
            Message::Copy(id, meta) => {
                self.hold(id, domain, channel);
                let data = self.buffers.get(&id).and_then(|buffer| buffer.data);
                vec![Event::Copied(id, meta, data)]
            }
            Message::All(copies, pieces, meta) => {
                self.take_all(domain, channel, copies, &pieces);
                vec![Event::All(copies, pieces, meta)]
            }
            Message::Release(id, meta) => {
                if let Some(buffer) = self.buffers.get_mut(&id)
                    && let Some(copies) = buffer.copies.get_mut(&channel)
                {
                    copies.out -= 1;
                    if copies.out == 0 && copies.held == 0 {
                        buffer.copies.remove(&channel);
                    }
                }
                vec![Event::Released(id, meta)]
            }
            about_pool if self.is_connected(channel, direction) => {
                self.take_about_pool(domain, channel, direction, about_pool)
            }
            _ => Vec::new(),
        }
    }

    fn is_connected(&self, channel: ChannelId, direction: Direction) -> bool {
        self.end(channel, direction).map(|end| end.state) == Some(ChannelState::Connected)
    }

    pub(super) fn forget_end(&mut self, channel: ChannelId, direction: Direction) {
        if let Some(found) = self.channels.get_mut(&channel) {
            found.ends[direction as usize] = None;
        }
    }

    /// One more copy of it is here.
    pub(super) fn hold(&mut self, id: BufferId, domain: Domain, channel: ChannelId) {
        if let Some(buffer) = self.buffers.get_mut(&id) {
            buffer.copies.entry(channel).or_default().held += 1;
            buffer.first.entry(domain).or_insert(channel);
        }
    }

    /// It is the domain's.
    pub(super) fn arrive(&mut self, id: BufferId, domain: Domain) -> Option<u8> {
        let is_creator = self.pools.get(&id.pool).map(|p| p.creator) == Some(domain);
        let buffer = self.buffers.get_mut(&id)?;
        buffer.place = Place::At(domain);
        if is_creator {
            buffer.lent = None;
        }
        buffer.data
    }

    fn take_about_pool(
        &mut self,
        domain: Domain,
        channel: ChannelId,
        direction: Direction,
        message: Message,
    ) -> Vec<Event> {
        let status = |model: &Model, pool: PoolId| {
            let end = model.end(channel, direction)?;
            end.pools.get(&pool).copied()
        };
        match message {
            Message::Assign(pool) => {
                let vetoes = self.end(channel, direction).is_some_and(|end| end.vetoes);
                let answer = match (status(self, pool), vetoes) {
                    (Some(_), _) => Err(Kind::PoolAlreadyAssigned),
                    (None, true) => Err(Kind::PoolVeto),
                    (None, false) => Ok(()),
                };
                if answer.is_ok() {
                    self.set_assignment(channel, direction, pool, Some(Assignment::Accepted));
                }
                self.send(channel, direction, Message::AssignAnswer(pool, answer));
                Vec::new()
            }
            Message::AssignAnswer(pool, Ok(())) => {
                self.set_assignment(channel, direction, pool, Some(Assignment::Showing));
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.fixed = true;
                }
                self.send(channel, direction, Message::Show(pool));
                Vec::new()
            }
            Message::AssignAnswer(pool, Err(code)) => {
                self.set_assignment(channel, direction, pool, None);
                self.unfix_trust(domain, pool);
                vec![Event::AssignDone(pool, Err(code))]
            }
            Message::Show(pool) => {
                self.set_assignment(channel, direction, pool, Some(Assignment::Assigned));
                self.learn_way(domain, channel, pool);
                self.send(channel, direction, Message::Shown(pool));
                vec![Event::PoolAssigned(pool)]
            }
            Message::Shown(pool) => {
                self.set_assignment(channel, direction, pool, Some(Assignment::Assigned));
                vec![Event::AssignDone(pool, Ok(()))]
            }
            Message::Remove(pool) => {
                let fine = status(self, pool) == Some(Assignment::Assigned)
                    && self.is_clean(domain, channel, pool);
                if fine {
                    self.set_assignment(channel, direction, pool, Some(Assignment::Agreed));
                    self.forget_way(domain, channel, pool);
                }
                let answer = match fine {
                    true => Ok(()),
                    false => Err(Kind::PoolInUse),
                };
                self.send(channel, direction, Message::RemoveAnswer(pool, answer));
                Vec::new()
            }
            Message::RemoveAnswer(pool, Ok(())) => {
                let commit = self.is_clean(domain, channel, pool);
                match commit {
                    true => self.unassign(domain, channel, direction, pool),
                    false => {
                        let stays = Some(Assignment::Assigned);
                        self.set_assignment(channel, direction, pool, stays);
                    }
                }
                self.send(channel, direction, Message::RemoveDecision(pool, commit));
                let done = match commit {
                    true => Ok(()),
                    false => Err(Kind::PoolInUse),
                };
                vec![Event::RemoveDone(pool, done)]
            }
            Message::RemoveAnswer(pool, Err(code)) => {
                self.set_assignment(channel, direction, pool, Some(Assignment::Assigned));
                vec![Event::RemoveDone(pool, Err(code))]
            }
            Message::RemoveDecision(pool, true) => {
                self.unassign(domain, channel, direction, pool);
                vec![Event::PoolRemoved(pool)]
            }
            Message::RemoveDecision(pool, false) => {
                self.set_assignment(channel, direction, pool, Some(Assignment::Assigned));
                self.learn_way(domain, channel, pool);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// The other end died and all that it had sent has been taken.
    ///
    /// Of a pool that only its creator assigns, whatever the dead domain had is back as soon as the last channel to
    /// it has been drained: it can have given it to nobody else. Of any other pool nobody can know that: what it had
    /// is stranded, and what it had copies of stays read-only, until the pool ends. Nor of one whose creator is the dead
    /// one: it assigned it to whom it liked.
    fn peer_gone(&mut self, domain: Domain, channel: ChannelId, direction: Direction) -> Outcome {
        let peer = self.end(channel, direction.other()).map(|end| end.domain);
        let mut told = self.begin_teardown(domain, channel, direction);
        if let Some(end) = self.end_mut(channel, direction) {
            end.state = ChannelState::Closed;
        }
        // Before it is bound nobody knows whose the other end is.
        let bound = [ChannelState::Connected, ChannelState::Teardown];
        let open = |end: &super::End| end.peer == peer && bound.contains(&end.state);
        let last = !self.own_ends(domain).any(open);
        let mut back = Vec::new();
        for (id, buffer) in &mut self.buffers {
            let pool = &self.pools[&id.pool];
            if pool.forward || pool.creator != domain {
                continue;
            }
            if direction == Direction::Source
                && let Some(copies) = buffer.copies.get_mut(&channel)
            {
                copies.out = 0;
                if copies.held == 0 {
                    buffer.copies.remove(&channel);
                }
            }
            if last && buffer.lent.is_some() && buffer.lent == peer {
                buffer.lent = None;
                buffer.place = Place::At(domain);
                buffer.data = None;
                back.push(*id);
            }
        }
        told.push(Event::Gone(back));
        Outcome::Took(told)
    }
}
