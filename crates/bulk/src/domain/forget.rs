//! Ends of channels that nobody has any more: they are closed, and go when they are over and nothing that came over
//! them is here.
//!
//! What a pool of another domain had here goes with the last channel that had it; and buffers of a dead domain that were
//! let go, which can go back to nobody.

use super::{Channel, Guard, RawEvent, Shared, State};
use crate::message::Message;
use crate::{Access, ChannelState, Error, Kind};

/// Messages of one channel that are taken by the way.
const MOST_AT_ONCE: usize = 64;

impl State {
    /// Forgets an end that is over. [`Kind::ChannelState`] if it is not; [`Kind::PoolInUse`] while copies that went over it are
    /// here, or out of a pool that stays, or buffers are owned whose memory would go with it.
    fn forget(&mut self, channel: u64) -> Result<(), Error> {
        let end = self.channels.get(&channel).ok_or(Kind::InvalidEndpoint)?;
        if end.is_open() {
            return Err(Kind::ChannelState.into());
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
                return Err(Kind::PoolInUse.into());
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

    fn any_to_tend(&self) -> bool {
        let mut all = self.channels.values();
        all.any(|end| end.unwatched && end.is_open())
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
    pub(crate) fn forget(&self, channel: u64) -> Result<(), Error> {
        self.lock().forget(channel)
    }

    /// The last handle of it is gone.
    pub(crate) fn unwatch(&self, channel: u64) {
        let mut state = self.lock();
        let Some(end) = state.channels.get_mut(&channel) else {
            return;
        };
        end.unwatched = true;
        let asked = end.bind.take();
        match end.state {
            // Nobody can take in who would bind, or hear the answer.
            ChannelState::Initialized | ChannelState::Binding => {
                (end.listener, end.transport) = (None, None);
                end.callers.send_away();
                end.state = ChannelState::Closed;
            }
            ChannelState::Connected => {
                end.answer(&Message::Teardown);
                state.begin_teardown(channel);
            }
            _ => {}
        }
        let given_up = asked.map(|asked| (asked, Err(Kind::ChannelState.into())));
        state.finished.extend(given_up);
        state.let_events_go(channel);
        state.finish_where_clean();
        (state.unwatched, state.tends) = (true, true);
        state.forget_unwatched();
        drop(self.tend(state));
    }

    /// Does for ends that nobody has any more what their programs would: takes what still comes, and lets it go. Whoever
    /// uses the domain does it, where it has nothing else to do.
    pub(super) fn tend<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        if !std::mem::take(&mut state.tends) {
            return state;
        }
        let left = |(_, end): &(&u64, &Channel)| end.unwatched && end.is_open();
        let all: Vec<u64> = state
            .channels
            .iter()
            .filter(left)
            .map(|(id, _)| *id)
            .collect();
        for channel in all {
            for _ in 0..MOST_AT_ONCE {
                let took;
                (state, took) = match self.turn_with(state, channel) {
                    Ok(turned) => turned,
                    // For want of something here: later.
                    Err(_) => (self.lock(), false),
                };
                state.let_events_go(channel);
                if !took {
                    break;
                }
            }
        }
        state.unwatched = true;
        state.forget_unwatched();
        state.tends = state.any_to_tend();
        state
    }

    /// A handle of a buffer that this domain owns was let go.
    pub(crate) fn let_go(&self, (pool, index): (u64, u32)) {
        let mut state = self.lock();
        state.let_go(pool, index);
        drop(self.tend(state));
    }

    /// A handle of a copy was let go.
    pub(crate) fn let_copy_go(&self, channel: u64, (pool, index): (u64, u32)) {
        let mut state = self.lock();
        state.let_copy_go(channel, pool, index);
        drop(self.tend(state));
    }
}

/// Is something of the pool here that its program can still use?
pub(super) fn is_here(slot: &super::Slot) -> bool {
    slot.by_state() != Access::None && !(slot.owned && slot.let_go)
}
