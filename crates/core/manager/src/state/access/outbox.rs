//! The steps that follow when a message has gone out to a client, or cannot go out.

use crate::state::State;
use crate::state::types::{ClientId, Then};

impl State {
    /// Handles that the oldest queued message went out.
    pub(crate) fn sent(&mut self, client: ClientId) {
        let then = self.cx.clients.sent(client);
        let domain = self.cx.clients.domain_of(client);
        if let Some(domain) = domain {
            match then {
                Then::Nothing => {}
                Then::Chunk(pool, key) => self.pools.chunk_reached(&mut self.cx, pool, key, domain),
                Then::Joined(pool, channel, epoch) => self.writer_told(pool, channel, epoch),
                Then::Left(pool, left) => self.left_told(domain, pool, left),
            }
        }
        if self.cx.clients.has_room(client) {
            if let Some(domain) = domain {
                self.pools.feed_all(&mut self.cx, domain);
                self.come_in(domain);
                self.say_offers(domain);
                let (cx, pools) = (&mut self.cx, &self.pools);
                self.traces.say_levels(cx, pools, domain);
            }
            self.stat_on(client);
        }
    }

    /// Handles a client that does not read. The chunks that wait for room in its socket stay queued, but no writer
    /// waits for them.
    pub(crate) fn blocked(&mut self, client: ClientId) {
        let domain = self.cx.clients.domain_of(client);
        let chunks = self.cx.clients.blocked(client);
        if let Some(domain) = domain {
            for (pool, key) in chunks {
                self.pools.chunk_reached(&mut self.cx, pool, key, domain);
            }
        }
    }
}
