//! What is queued to a client, bounded: a client that does not read costs nobody but itself.

use super::types::{Action, ChunkKey, ClientId, FdToken, InFlight, Then};
use super::{State, refusal};
use tranship_proto::{DomainId, Event, PoolId, RefusalCode};

/// Messages queued to one client at most.
pub(crate) const MAX_MESSAGES: usize = 1024;
/// Descriptors queued to one client at most.
pub(crate) const MAX_FDS: usize = 256;
/// Long answers (`stat`, resync) fill a queue up to these only.
pub(crate) const EASY_MESSAGES: usize = MAX_MESSAGES / 2;
pub(crate) const EASY_FDS: usize = MAX_FDS * 3 / 4;

impl State {
    /// Queues an event to a connection. A client whose queue is full is expelled.
    pub(super) fn push(&mut self, client: ClientId, event: Event, fds: &[FdToken]) {
        self.push_then(client, event, fds, Then::Nothing);
    }

    /// The same, and what is to happen when it has gone out.
    pub(super) fn push_then(
        &mut self,
        client: ClientId,
        event: Event,
        fds: &[FdToken],
        then: Then,
    ) {
        let Some(c) = self.clients.get(&client) else {
            return;
        };
        if c.flight.len() >= MAX_MESSAGES || c.flight_fds + fds.len() > MAX_FDS {
            let refusal = refusal(
                RefusalCode::Limit,
                c.flight.len() as u64,
                MAX_MESSAGES as u64,
            );
            self.expel.push((client, Some(refusal)));
            return;
        }
        self.push_unbounded(client, event, fds, then);
    }

    /// Queues what a returning client has to be told again: bounded by what it holds.
    pub(super) fn push_unbounded(
        &mut self,
        client: ClientId,
        event: Event,
        fds: &[FdToken],
        then: Then,
    ) {
        debug_assert_eq!(event.fds(), fds.len(), "{event:?}");
        let Some(c) = self.clients.get_mut(&client) else {
            return;
        };
        c.flight.push_back(InFlight {
            fds: fds.len(),
            then,
        });
        c.flight_fds += fds.len();
        self.out.push(Action::Send {
            client,
            event,
            fds: fds.to_vec(),
        });
    }

    /// Queues an event to a domain, if it is connected.
    pub(super) fn tell(&mut self, domain: DomainId, event: Event, fds: &[FdToken]) {
        if let Some(client) = self.client_of(domain) {
            self.push(client, event, fds);
        }
    }

    pub(super) fn client_of(&self, domain: DomainId) -> Option<ClientId> {
        self.domains.get(&domain)?.client
    }

    /// Whether long answers may go on.
    pub(super) fn has_room(&self, client: ClientId) -> bool {
        self.clients
            .get(&client)
            .is_some_and(|c| c.flight.len() < EASY_MESSAGES && c.flight_fds < EASY_FDS)
    }

    /// Queues a chunk to a reader; `false` if there is no connection, or no room, or it does not read.
    pub(super) fn push_chunk(
        &mut self,
        reader: DomainId,
        pool: PoolId,
        key: ChunkKey,
        fd: FdToken,
    ) -> bool {
        let Some(client) = self.client_of(reader) else {
            return false;
        };
        let Some(c) = self.clients.get(&client) else {
            return false;
        };
        if c.blocked || c.flight.len() >= MAX_MESSAGES || c.flight_fds >= MAX_FDS {
            return false;
        }
        let event = Event::ChunkAdded {
            pool,
            index: key.0,
            serial: key.1,
        };
        self.push_unbounded(client, event, &[fd], Then::Chunk(pool, key));
        self.claimed_too(reader, |c| {
            c.chunks.insert((pool, key));
        });
        true
    }

    /// The oldest queued message went out.
    pub(super) fn sent(&mut self, client: ClientId) {
        let Some(c) = self.clients.get_mut(&client) else {
            return;
        };
        let Some(flight) = c.flight.pop_front() else {
            debug_assert!(false, "more sent than queued");
            return;
        };
        c.flight_fds -= flight.fds;
        c.blocked = false;
        let domain = c.domain;
        if let Some(domain) = domain {
            match flight.then {
                Then::Nothing => {}
                Then::Chunk(pool, key) => self.chunk_reached(pool, key, domain),
                Then::Joined(pool, channel, epoch) => self.writer_told(pool, channel, epoch),
                Then::Left(pool, left) => self.left_told(domain, pool, left),
            }
        }
        if self.has_room(client) {
            if let Some(domain) = domain {
                self.feed_all(domain);
            }
            self.stat_on(client);
        }
    }

    /// A client does not read. The chunks that wait for room in its socket stay queued, but no writer waits for them.
    pub(super) fn blocked(&mut self, client: ClientId) {
        let Some(c) = self.clients.get_mut(&client) else {
            return;
        };
        let domain = c.domain;
        if std::mem::replace(&mut c.blocked, true) {
            return;
        }
        let chunks = c.flight.iter().filter_map(|flight| match flight.then {
            Then::Chunk(pool, key) => Some((pool, key)),
            _ => None,
        });
        let chunks: Vec<_> = chunks.collect();
        for (pool, key) in chunks {
            if let Some(domain) = domain {
                self.chunk_reached(pool, key, domain);
            }
        }
    }
}
