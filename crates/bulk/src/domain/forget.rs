//! Ends of channels that are over go, when nobody has them any more and nothing that came over them is here.
//!
//! What a pool of another domain had here goes with the last channel that had it; and buffers of a dead domain that were
//! let go, which can go back to nobody.

use super::{Channel, RawEvent, Shared, State};
use crate::{Access, ChannelState, Code};

impl State {
    /// Forgets an end that is over. [`Code::ChannelState`] if it is not; [`Code::PoolInUse`] while copies that went over it are
    /// here, or out of a pool that stays, or buffers are owned whose memory would go with it.
    fn forget(&mut self, channel: u64) -> Result<(), Code> {
        let end = self.channels.get(&channel).ok_or(Code::InvalidEndpoint)?;
        if end.is_open() {
            return Err(Code::ChannelState);
        }
        let pools: Vec<u64> = end.pools.keys().copied().collect();
        for id in &pools {
            let Some(pool) = self.pools.get(id) else {
                continue;
            };
            let mut others = self.channels.iter().filter(|(other, _)| **other != channel);
            // From one that it is being taken off, or that is all but closed, it may be gone the next moment.
            let leaves = |end: &Channel| end.state == ChannelState::Teardown && end.finished;
            let keeps = |end: &Channel| end.is_assigned(*id) && !leaves(end);
            let only = !pool.creator && !others.any(|(_, other)| keeps(other));
            let needed = pool.slots.iter().any(|slot| {
                let here = slot.owned && !slot.let_go;
                // Copies that are out bind only what can still be used or go back.
                let bound = !only && slot.out.of(channel) > 0;
                bound || slot.held.of(channel) > 0 || only && here
            });
            if needed {
                return Err(Code::PoolInUse);
            }
        }
        for id in &pools {
            self.forget_way(channel, *id);
        }
        if let Some(end) = self.channels.remove(channel) {
            // Both ends have said that they have nothing more to say: what was not heard yet is on its way.
            end.ends.over(Ok(()), &mut self.due);
            // What its program left there, an acceptor or wakers, goes with no lock held.
            self.buried.push(*end);
        }
        for id in pools {
            self.drop_pool_if_unused(id);
        }
        Ok(())
    }

    /// Forgets what can be of the ends whose handles are gone.
    pub(super) fn forget_unwatched(&mut self) {
        if !std::mem::take(&mut self.unwatched) {
            return;
        }
        let over = |(_, end): &(&u64, &Channel)| end.unwatched && !end.is_open();
        let all: Vec<u64> = self
            .channels
            .iter()
            .filter(over)
            .map(|(id, _)| *id)
            .collect();
        for channel in all {
            self.let_events_go(channel);
            self.unwatched |= self.forget(channel).is_err();
        }
    }

    /// What nobody will be told any more is let go.
    fn let_events_go(&mut self, channel: u64) {
        let Some(end) = self.channels.get_mut(&channel) else {
            return;
        };
        for event in std::mem::take(&mut end.events) {
            let (copies, buffers) = match event {
                RawEvent::Moved(id, index, _) | RawEvent::Passed(id, index, _) => {
                    (false, vec![(id, index)])
                }
                RawEvent::Copied(id, index, _) => (true, vec![(id, index)]),
                RawEvent::Aggregate {
                    copies, buffers, ..
                } => (copies, buffers),
                _ => continue,
            };
            for (id, index) in buffers {
                match copies {
                    true => self.let_copy_go(channel, id, index),
                    false => self.let_go(id, index),
                }
            }
        }
    }
}

impl Shared {
    pub(crate) fn forget(&self, channel: u64) -> Result<(), Code> {
        self.lock().forget(channel)
    }

    /// The last handle of it is gone.
    pub(crate) fn unwatch(&self, channel: u64) {
        let mut state = self.lock();
        let Some(end) = state.channels.get_mut(&channel) else {
            return;
        };
        end.unwatched = true;
        // Nobody can take in who would bind.
        if end.state == ChannelState::Initialized {
            (end.listener, end.transport) = (None, None);
            end.state = ChannelState::Closed;
        }
        state.unwatched = true;
        state.forget_unwatched();
    }
}

/// Is something of the pool here that its program can still use?
pub(super) fn is_here(slot: &super::Slot) -> bool {
    slot.by_state() != Access::None && !(slot.owned && slot.let_go)
}
