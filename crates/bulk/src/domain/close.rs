//! Teardown, and the death of the other end.

use super::{Channel, RawEvent, Shared, State};
use crate::message::Message;
use crate::{Access, ChannelState, Completion, Direction, Error, Kind, spec::Assignment};

impl Shared {
    pub(crate) fn close(&self, channel: u64) -> Result<Completion, Error> {
        let mut state = self.lock();
        let state = &mut *state;
        let end = state
            .channels
            .get_mut(&channel)
            .ok_or(Kind::InvalidEndpoint)?;
        if end.state != ChannelState::Connected {
            return Err(Kind::ChannelState.into());
        }
        end.send(&Message::Teardown.frame(Vec::new())?)?;
        let completion = Completion::default();
        end.closing.push(completion.clone());
        state.begin_teardown(channel);
        state.finish_where_clean();
        Ok(completion)
    }
}

impl Shared {
    pub(crate) fn abandon(&self, channel: u64) {
        let mut state = self.lock();
        let Some(end) = state.channels.get_mut(&channel) else {
            return;
        };
        end.listener = None;
        end.callers.send_away();
        match end.state {
            ChannelState::Connected | ChannelState::Teardown => {
                state.peer_gone(channel, Kind::ChannelState.into());
            }
            _ => {
                end.transport = None;
                end.state = ChannelState::Closed;
                let asked = end.bind.take();
                let given_up = asked.map(|asked| (asked, Err(Kind::ChannelState.into())));
                state.finished.extend(given_up);
            }
        }
        state.wake(channel);
    }
}

impl State {
    /// What was being asked about pools is off; what is assigned stays until the end.
    pub(super) fn begin_teardown(&mut self, channel: u64) {
        let Some(end) = self.channels.get_mut(&channel) else {
            return;
        };
        end.state = ChannelState::Teardown;
        self.closing = true;
        let (mut given_up, mut kept) = (Vec::new(), Vec::new());
        for (id, assigned) in &mut end.pools {
            if let Some(asked) = assigned.asked.take() {
                self.finished.push((asked, Err(Kind::ChannelState.into())));
            }
            // What was shown the other end may use until it hears of this.
            if assigned.status.has_memory() || assigned.status == Assignment::Showing {
                assigned.status = Assignment::Assigned;
                kept.push(*id);
            } else {
                given_up.push(*id);
            }
        }
        for id in &given_up {
            end.pools.remove(id);
        }
        for id in given_up {
            self.unfix_trust(id);
            // It may have left its other channels while it was wanted here.
            self.drop_pool_if_unused(id);
        }
        for id in kept {
            self.learn_way(channel, id);
        }
    }

    /// Every channel that is being closed and has nothing of this domain any more hears so; those on which both
    /// ends have said so are over.
    pub(super) fn finish_where_clean(&mut self) {
        if !self.closing {
            return;
        }
        let torn: Vec<u64> = self
            .channels
            .iter()
            .filter(|(_, end)| end.state == ChannelState::Teardown)
            .map(|(id, _)| *id)
            .collect();
        self.closing = !torn.is_empty();
        for channel in torn {
            let Some(end) = self.channels.get(&channel) else {
                continue;
            };
            let pools: Vec<u64> = end.pools.keys().copied().collect();
            let (began, finished) = (end.peer_began, end.finished);
            let clean = began && pools.iter().all(|id| self.is_clean(channel, *id));
            if clean && !finished {
                for id in &pools {
                    self.forget_way(channel, *id);
                }
            }
            let Some(end) = self.channels.get_mut(&channel) else {
                continue;
            };
            if clean && !finished {
                end.finished = true;
                end.answer(&Message::Finished);
            }
            if end.finished && end.peer_finished {
                end.state = ChannelState::Closed;
                // What it said last came after all that was sent to it; and it may forget its end before that is told.
                end.ends.over(Ok(()), &mut self.due);
                end.pools.clear();
                end.tell(RawEvent::Closed);
                let done = std::mem::take(&mut end.closing);
                self.finished.extend(done.into_iter().map(|c| (c, Ok(()))));
                for id in pools {
                    self.drop_pool_if_unused(id);
                }
            }
        }
    }

    /// Nothing more comes from the other end: it is dead, or broke the rules.
    ///
    /// Of a pool that only its creator assigns, whatever the dead domain had is back as soon as the last channel to
    /// it has been drained. Of any other pool nobody can know that, and it stays away until the pool ends; nor of a dead
    /// domain's own, which it may have copied on to anybody.
    pub(super) fn peer_gone(&mut self, channel: u64, why: Error) {
        self.half_arrived(channel);
        self.drop_parts(channel);
        self.begin_teardown(channel);
        let Some(end) = self.channels.get_mut(&channel) else {
            return;
        };
        end.state = ChannelState::Closed;
        end.failure = Some(why.clone());
        end.transport = None;
        end.outbox.clear();
        let (peer, source) = (end.peer, end.direction == Direction::Source);
        end.ends.over(Err(why.clone()), &mut self.due);
        let closing = std::mem::take(&mut end.closing);
        let all = closing.into_iter();
        self.finished.extend(all.map(|c| (c, Err(why.clone()))));
        let is_other = |c: &Channel| c.is_open() && c.peer == peer && c.transport.is_some();
        let last = !self.channels.values().any(is_other);
        let mut back = Vec::new();
        for (id, pool) in &mut self.pools {
            if pool.info.forward || !pool.creator {
                continue;
            }
            for index in 0..pool.info.buffers {
                let slot = &mut pool.slots[index as usize];
                if source {
                    slot.out.clear(channel);
                }
                if last && slot.lent == Some(peer) && !slot.owned {
                    slot.lent = None;
                    slot.owned = true;
                    slot.let_go = true;
                    back.push((*id, index));
                }
                // Best effort: if the kernel refuses, the buffer stays as inaccessible as it was.
                let _ = pool.protect(index);
            }
        }
        for (id, index) in &back {
            self.free_if_unused(*id, *index);
        }
        back.sort_unstable();
        if let Some(end) = self.channels.get_mut(&channel) {
            end.tell(RawEvent::Gone(back));
        }
    }

    /// Handles that were let go, on their way back; what cannot go now is tried again.
    pub(super) fn give_back(&mut self) {
        if !std::mem::take(&mut self.let_go) {
            return;
        }
        let mut buffers = Vec::new();
        let mut copies = Vec::new();
        for (id, pool) in &self.pools {
            for (index, slot) in (0..pool.info.buffers).zip(&pool.slots) {
                if slot.let_go && slot.owned && !pool.creator {
                    buffers.push((pool.came_by, (*id, index)));
                }
                let all = slot.copies_let_go.iter();
                copies.extend(all.map(|(channel, n)| (channel, n, (*id, index))));
            }
        }
        for (channel, n, buffer) in copies {
            for _ in 0..n {
                if self.release(channel, buffer, &[]).is_err() {
                    self.let_go = true;
                    break;
                }
                if let Ok((pool, at)) = self.slot_mut(buffer.0, buffer.1) {
                    pool.slots[at].copies_let_go.down(channel);
                }
            }
        }
        for (way, buffer) in buffers {
            let Some(channel) = way else { continue };
            let Some(direction) = self.channels.get(&channel).map(|c| c.direction) else {
                continue;
            };
            let sent = self.transfer_away(channel, buffer, direction, &[]);
            let ours = self.slot_mut(buffer.0, buffer.1);
            match (sent, ours) {
                (Ok(_), Ok((pool, at))) => pool.slots[at].let_go = false,
                _ => self.let_go = true,
            }
        }
    }

    /// A handle of a buffer that this domain owns was let go.
    pub(super) fn let_go(&mut self, id: u64, index: u32) {
        let Ok((pool, at)) = self.slot_mut(id, index) else {
            return;
        };
        let slot = &mut pool.slots[at];
        if !slot.owned {
            return;
        }
        slot.let_go = true;
        self.let_go |= !pool.creator;
        self.free_if_unused(id, index);
        self.give_back();
        self.forget_unwatched();
    }

    /// A handle of a copy was let go.
    pub(super) fn let_copy_go(&mut self, channel: u64, id: u64, index: u32) {
        if let Ok((pool, at)) = self.slot_mut(id, index)
            && pool.slots[at].by_state() != Access::None
        {
            pool.slots[at].copies_let_go.up(channel);
            self.let_go = true;
        }
        self.give_back();
        self.forget_unwatched();
    }
}
