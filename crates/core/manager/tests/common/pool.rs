//! A domain with a pool in a `House`, and a domain that reads it.
#![allow(dead_code)] // each test file uses a part of it

use super::house::{House, Object};
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Header};
use tranship_proto::{ChannelId, DomainId, Event, PoolId, RefusalCode, Req, Request, Role, Trust};

pub const CHUNK: u64 = 64 << 10;
pub const SLOTS: u32 = 16;
const LINES: u32 = 2;
/// The manager's own user, which may have all of the total.
pub const OWNER: u32 = 1;
pub const OTHER: u32 = 2;

/// Kinds of `docs/format.md`.
const TABLE: u32 = 2;
const REFS: u32 = 3;
const SENT: u32 = 4;
const RCVD: u32 = 5;
const LINK_SOURCE: u32 = 6;
const LINK_SINK: u32 = 7;

fn object(kind: u32, count: u32, size: u64) -> Object {
    let header = Header {
        kind,
        count,
        ..Header::default()
    };
    (header, size)
}

pub fn house(chunks: u64, limits: Limits) -> House {
    let mut house = House::new(limits, chunks * CHUNK);
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
        let table = Header {
            kind: TABLE,
            count: SLOTS,
            max_bytes: chunks * CHUNK,
            chunk_bytes: CHUNK,
        };
        let request = Request::CreatePool {
            req: Req(1),
            name: "pool".into(),
            shape: tranship_proto::PoolShape {
                max_bytes: chunks * CHUNK,
                slots: SLOTS,
                chunk_bytes: CHUNK,
                trust,
            },
        };
        let events = house.ask(client, request, Some((table, 8192)));
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
        let request = Request::ShowChunks {
            req: Req(3),
            pool: self.pool,
            chunks: keys.to_vec(),
            least,
        };
        let events = house.ask(
            self.client,
            request,
            keys.iter().map(|_| (Header::default(), CHUNK)),
        );
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
        let export = Request::Export {
            req: Req(4),
            name: name.clone(),
            role: Role::Source,
        };
        house.ask(writer.client, export, []);
        let connect = Request::Connect {
            req: Req(5),
            name,
            role: Role::Sink,
            lines: LINES,
            wait: false,
        };
        let events = house.ask(client, connect, [object(LINK_SINK, LINES, 8192)]);
        let Some(Event::Incoming { channel, .. }) = events.first() else {
            panic!("{events:?}");
        };
        let (channel, req) = (*channel, Req(6));
        let lines = LINES;
        let accept = Request::Accept {
            req,
            channel,
            lines,
        };
        house.ask(writer.client, accept, [object(LINK_SOURCE, LINES, 8192)]);
        let assign = Request::Assign { req, channel, pool };
        house.ask(writer.client, assign, [object(SENT, SLOTS, 4096)]);
        let consent = Request::AcceptPool {
            channel,
            pool,
            with_refs: true,
        };
        let counters = [RCVD, REFS].map(|kind| object(kind, SLOTS, 4096));
        let events = house.ask(client, consent, counters);
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
