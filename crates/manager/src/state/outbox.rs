//! What is queued to a client, bounded: a client that does not read costs nobody but itself.

use super::types::{Action, ChunkKey, ClientId, FdToken, InFlight, Then};
use super::{State, refusal};
use tranship_proto::{DomainId, Event, PoolId, RefusalCode};

/// Messages queued to one client at which it is given up: it is not read while it has half a thousand to take, and what others
/// cause is bounded, so these are the ends of as many things as it may have.
pub(crate) const MAX_MESSAGES: usize = 1 << 17;
/// Long answers (`stat`, resync), and what others cause, fill a queue up to these only.
pub(crate) const EASY_MESSAGES: usize = 512;
pub(crate) const EASY_FDS: usize = 192;
/// Messages and descriptors that others have caused to be queued to one client.
const CAUSED: usize = 256;

impl State {
    /// Queues an event to a connection.
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
        self.push_caused(client, event, fds, then, None);
    }

    /// The same, at the expense of a user's share in this client's queue.
    fn push_caused(
        &mut self,
        client: ClientId,
        event: Event,
        fds: &[FdToken],
        then: Then,
        cause: Option<u32>,
    ) {
        debug_assert_eq!(event.fds(), fds.len(), "{event:?}");
        let Some(c) = self.clients.get_mut(&client) else {
            return;
        };
        if c.flight.len() >= MAX_MESSAGES {
            let most = MAX_MESSAGES as u64;
            let refusal = refusal(RefusalCode::Limit, most + 1, most);
            self.expel.push((client, Some(refusal)));
            return;
        }
        if let Some(uid) = cause {
            *c.caused.entry(uid).or_default() += 1 + fds.len();
        }
        c.flight.push_back(InFlight {
            fds: fds.len(),
            then,
            cause,
        });
        c.flight_fds += fds.len();
        self.out.push(Action::Send {
            client,
            event,
            fds: fds.to_vec(),
        });
    }

    /// Queues an event that another user has caused.
    pub(super) fn tell_for(&mut self, uid: u32, domain: DomainId, event: Event, fds: &[FdToken]) {
        if let Some(client) = self.client_of(domain) {
            self.push_caused(client, event, fds, Then::Nothing, Some(uid));
        }
    }

    /// Whether a user may cause one more message to a client: what it causes can fail for it, never for the client, and
    /// never for the next one who wants something of that client.
    pub(super) fn has_room_for(&self, client: ClientId, uid: u32) -> bool {
        let (its, share) = self.share_in(client, uid);
        its < share
    }

    /// What a user has caused of a client's queue, and what it may.
    fn share_in(&self, client: ClientId, uid: u32) -> (usize, usize) {
        let Some(c) = self.clients.get(&client).filter(|_| self.has_room(client)) else {
            return (0, 0);
        };
        let its = c.caused.get(&uid).copied().unwrap_or(0);
        let others = c.caused.values().sum::<usize>() - its;
        (its, (CAUSED.saturating_sub(others) / 4 * 3).max(2))
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
        let payer = self.pools.get(&pool).map_or(u32::MAX, |p| p.uid);
        // Half of the share is for what is no chunk.
        let (its, share) = self.share_in(client, payer);
        if c.blocked || its >= share / 2 {
            return false;
        }
        let event = Event::ChunkAdded {
            pool,
            index: key.0,
            serial: key.1,
        };
        let then = Then::Chunk(pool, key);
        self.push_caused(client, event, &[fd], then, Some(payer));
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
        if let Some(uid) = flight.cause
            && let Some(n) = c.caused.get_mut(&uid)
        {
            *n = n.saturating_sub(1 + flight.fds);
            if *n == 0 {
                c.caused.remove(&uid);
            }
        }
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
                self.come_in(domain);
                self.say_offers(domain);
                self.say_levels(domain);
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
