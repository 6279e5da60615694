//! A domain with a pool in a `House`, and a domain that reads it.
#![allow(dead_code)] // each test file uses a part of it

use super::ask::*;
use super::house::House;
use tranship_manager::state::{ClientId, Header};
use tranship_manager::{Config, Limits};
use tranship_proto::{ChannelId, DomainId, Event, PoolId, RefusalCode, Req, Request, Role, Trust};

/// The manager's own user, which may have all of the total.
pub const OWNER: u32 = 1;
pub const OTHER: u32 = 2;

/// The total of a house with rules, in chunks.
pub const TOTAL: u64 = 64;

pub fn house(chunks: u64, limits: Limits) -> House {
    let mut house = House::new(limits, chunks * CHUNK);
    house.state.set_owner(OWNER);
    house
}

/// Makes a house with a configuration.
pub fn ruled(rules: &str) -> House {
    let config = Config::parse(rules).expect("a configuration");
    let mut house = House::with(config, TOTAL * CHUNK);
    house.state.set_owner(OWNER);
    house
}

/// Finds the answer to chunks that were shown.
pub fn ready(events: &[Event]) -> Option<Result<u32, RefusalCode>> {
    events.iter().find_map(|e| match e {
        Event::ChunksReady { chunks, .. } => Some(Ok(*chunks)),
        Event::Refused { refusal, .. } => Some(Err(refusal.code)),
        _ => None,
    })
}

/// A domain with a pool.
pub struct Writer {
    pub client: ClientId,
    pub pool: PoolId,
}

impl Writer {
    pub fn join(house: &mut House, uid: u32, chunks: u64) -> Writer {
        let (client, _) = house.join(uid, None);
        Writer::with_pool(house, client, chunks)
    }

    pub fn with_pool(house: &mut House, client: ClientId, chunks: u64) -> Writer {
        Writer::with_pool_of(house, client, chunks, Trust::Producer)
    }

    pub fn with_pool_of(house: &mut House, client: ClientId, chunks: u64, trust: Trust) -> Writer {
        let shape = shape(chunks, trust);
        let events = house.ask(client, create_pool(shape), table(shape));
        let pool = events.iter().find_map(|e| match e {
            Event::PoolCreated { pool, .. } => Some(*pool),
            _ => None,
        });
        let pool = pool.unwrap_or_else(|| panic!("{events:?}"));
        Writer { client, pool }
    }

    /// Returns the answer, and the size to which a pool is asked to shrink meanwhile.
    pub fn grant(&self, house: &mut House, chunks: u32) -> (Result<u32, RefusalCode>, Option<u64>) {
        let (req, pool) = (Req(2), self.pool);
        let events = house.ask(self.client, Request::Grant { req, pool, chunks }, None);
        let answer = events.iter().find_map(|e| match e {
            Event::Granted { chunks, .. } => Some(Ok(*chunks)),
            Event::Refused { refusal, .. } => Some(Err(refusal.code)),
            _ => None,
        });
        let shrink = events.iter().find_map(|e| match e {
            Event::Shrink { target_bytes, .. } => Some(target_bytes / CHUNK),
            _ => None,
        });
        (answer.unwrap_or_else(|| panic!("{events:?}")), shrink)
    }

    /// Shows a chunk; returns the result.
    pub fn show(&self, house: &mut House, index: u32, serial: u32) -> Result<(), RefusalCode> {
        let (answer, events) = self.try_show(house, index, serial);
        answer.unwrap_or_else(|| panic!("no answer: {events:?}"))
    }

    /// Returns the answer, if there is one yet, and the events for all clients.
    pub fn try_show(
        &self,
        house: &mut House,
        index: u32,
        serial: u32,
    ) -> (Option<Result<(), RefusalCode>>, Vec<Event>) {
        let (answer, events) = self.try_show_all(house, &[(index, serial)], 1);
        (answer.map(|a| a.map(drop)), events)
    }

    /// Shows all chunks; returns how many are taken.
    pub fn show_all(
        &self,
        house: &mut House,
        keys: &[(u32, u32)],
        least: u32,
    ) -> Result<u32, RefusalCode> {
        let (answer, events) = self.try_show_all(house, keys, least);
        answer.unwrap_or_else(|| panic!("no answer: {events:?}"))
    }

    /// Shows several chunks; returns the answer, if there is one yet, and the events for all clients.
    pub fn try_show_all(
        &self,
        house: &mut House,
        keys: &[(u32, u32)],
        least: u32,
    ) -> (Option<Result<u32, RefusalCode>>, Vec<Event>) {
        let request = show_chunks(self.pool, keys, least);
        let chunks = keys.iter().map(|_| (Header::default(), CHUNK));
        let events = house.ask(self.client, request, chunks);
        (ready(&events), events)
    }

    pub fn give_back(&self, house: &mut House, index: u32, serial: u32) -> Vec<Event> {
        let pool = self.pool;
        let request = Request::ReturnChunk {
            pool,
            index,
            serial,
        };
        house.ask(self.client, request, [])
    }
}

/// A domain that reads a pool.
pub struct Reader {
    pub client: ClientId,
    pub id: DomainId,
    pub channel: ChannelId,
    pool: PoolId,
}

impl Reader {
    /// Joins, and reads over its own channel.
    pub fn join(house: &mut House, uid: u32, writer: &Writer) -> Reader {
        let (client, id) = house.join(uid, None);
        let (pool, name) = (writer.pool, format!("to {}", id.0));
        house.ask(writer.client, export(&name, Role::Source), []);
        let channel = open(house, &name, (writer.client, Role::Source), client);
        house.ask(writer.client, assign(channel, pool), [counters(SENT)]);
        let consent = accept_pool(channel, pool, true);
        let events = house.ask(client, consent, [RCVD, REFS].map(counters));
        let opened = |e: &Event| matches!(e, Event::PoolOpen { .. });
        assert!(events.iter().any(opened), "{events:?}");
        Reader {
            client,
            id,
            channel,
            pool,
        }
    }

    pub fn unmapped(&self, house: &mut House, index: u32, serial: u32) -> Vec<Event> {
        let pool = self.pool;
        let request = Request::Unmapped {
            pool,
            index,
            serial,
        };
        house.ask(self.client, request, [])
    }

    pub fn resync(&self, house: &mut House, req: u32) -> Vec<Event> {
        let (req, pool) = (Req(req), self.pool);
        house.ask(self.client, Request::Resync { req, pool }, [])
    }
}

/// Returns the chunks that are shown in these events.
pub fn chunks(events: &[Event]) -> Vec<(u32, u32)> {
    let chunk = |e: &Event| match e {
        Event::ChunkAdded { index, serial, .. } => Some((*index, *serial)),
        _ => None,
    };
    events.iter().filter_map(chunk).collect()
}
