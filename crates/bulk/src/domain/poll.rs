//! Taking what a channel has to tell.

use super::{RawEvent, Shared};
use crate::{Error, Kind, memory::Memory};
use std::sync::Arc;

/// An event, and the memory of the buffer that it brings.
pub(crate) type Told = (RawEvent, Option<Arc<Memory>>);

impl Shared {
    /// The oldest event, after turning until there is one or nothing is left to take.
    pub(crate) fn next_event(&self, channel: u64) -> Result<Option<Told>, Error> {
        let mut state = self.lock();
        loop {
            let end = state.channels.get_mut(&channel);
            let event = end.ok_or(Kind::InvalidEndpoint)?.events.pop_front();
            if let Some(event) = event {
                let pool = match event {
                    RawEvent::Moved(pool, ..)
                    | RawEvent::Passed(pool, ..)
                    | RawEvent::Copied(pool, ..) => state.pools.get(&pool),
                    _ => None,
                };
                let memory = pool.map(|pool| Arc::clone(&pool.memory));
                return Ok(Some((event, memory)));
            }
            let took;
            (state, took) = self.turn_with(state, channel)?;
            if !took {
                drop(self.tend(state));
                return Ok(None);
            }
        }
    }
}
