//! The steps that follow when a message has gone out to a client, or cannot go out.

use super::State;
use super::types::{ChunkKey, ClientId, FdToken, Then};
use tranship_proto::{DomainId, Event, PoolId};

impl State {
    /// Queues a chunk to a reader. Returns `false` if there is no connection or no room, or the reader does not read.
    pub(super) fn push_chunk(
        &mut self,
        reader: DomainId,
        pool: PoolId,
        key: ChunkKey,
        fd: FdToken,
    ) -> bool {
        let payer = self.pools.get(&pool).map_or(u32::MAX, |p| p.uid);
        let client = self.cx.client_of(reader);
        let room = |c: &ClientId| self.cx.clients.has_room_for_chunk(*c, payer);
        let Some(client) = client.filter(room) else {
            return false;
        };
        let event = Event::ChunkAdded {
            pool,
            index: key.0,
            serial: key.1,
        };
        let (fds, then) = ([fd], Then::Chunk(pool, key));
        let (message, cause) = ((event, fds.as_slice()), Some(payer));
        let out = &mut self.cx.out;
        self.cx.clients.push(client, message, then, cause, out);
        self.cx.claimed_too(reader, |c| {
            c.chunks.insert((pool, key));
        });
        true
    }

    /// Handles that the oldest queued message went out.
    pub(super) fn sent(&mut self, client: ClientId) {
        let then = self.cx.clients.sent(client);
        let domain = self.cx.clients.domain_of(client);
        if let Some(domain) = domain {
            match then {
                Then::Nothing => {}
                Then::Chunk(pool, key) => self.chunk_reached(pool, key, domain),
                Then::Joined(pool, channel, epoch) => self.writer_told(pool, channel, epoch),
                Then::Left(pool, left) => self.left_told(domain, pool, left),
            }
        }
        if self.cx.clients.has_room(client) {
            if let Some(domain) = domain {
                self.feed_all(domain);
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
    pub(super) fn blocked(&mut self, client: ClientId) {
        let domain = self.cx.clients.domain_of(client);
        let chunks = self.cx.clients.blocked(client);
        if let Some(domain) = domain {
            for (pool, key) in chunks {
                self.chunk_reached(pool, key, domain);
            }
        }
    }
}
