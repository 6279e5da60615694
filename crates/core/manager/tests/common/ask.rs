//! Requests with the numbers that the tests share, the objects that go with them, and what events say.

use super::house::{House, Object};
use tranship_manager::state::{ClientId, Header};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, PoolId, PoolShape, Refusal, RefusalCode, Req,
    Request, Role, Trust,
};

pub const CHUNK: u64 = 64 << 10;
pub const SLOTS: u32 = 16;
pub const LINES: u32 = 2;

/// Kinds of `docs/format.md`.
pub const TABLE: u32 = 2;
pub const REFS: u32 = 3;
pub const SENT: u32 = 4;
pub const RCVD: u32 = 5;
pub const SOURCE: u32 = 6;
pub const SINK: u32 = 7;

pub fn object(kind: u32, count: u32, size: u64) -> Object {
    let header = Header {
        kind,
        count,
        ..Header::default()
    };
    (header, size)
}

/// Makes a domain's half of a channel.
pub fn half(role: Role) -> [Object; 1] {
    let kind = match role {
        Role::Source => SOURCE,
        Role::Sink => SINK,
    };
    [object(kind, LINES, 8192)]
}

/// Makes counters of a pool.
pub fn counters(kind: u32) -> Object {
    object(kind, SLOTS, 4096)
}

pub fn shape(chunks: u64, trust: Trust) -> PoolShape {
    PoolShape {
        max_bytes: chunks * CHUNK,
        slots: SLOTS,
        chunk_bytes: CHUNK,
        trust,
    }
}

/// Makes a pool's table.
pub fn table(shape: PoolShape) -> [Object; 1] {
    let header = Header {
        kind: TABLE,
        count: shape.slots,
        max_bytes: shape.max_bytes,
        chunk_bytes: shape.chunk_bytes,
    };
    [(header, 8192)]
}

pub fn export(name: &str, role: Role) -> Request {
    Request::Export {
        req: Req(1),
        name: name.into(),
        role,
    }
}

pub fn connect(req: u32, name: &str, role: Role, wait: bool) -> Request {
    Request::Connect {
        req: Req(req),
        name: name.into(),
        role,
        lines: LINES,
        wait,
    }
}

pub fn accept(channel: ChannelId) -> Request {
    Request::Accept {
        req: Req(3),
        channel,
        lines: LINES,
    }
}

pub fn assign(channel: ChannelId, pool: PoolId) -> Request {
    let req = Req(4);
    Request::Assign { req, channel, pool }
}

pub fn accept_pool(channel: ChannelId, pool: PoolId, with_refs: bool) -> Request {
    Request::AcceptPool {
        channel,
        pool,
        with_refs,
    }
}

pub fn create_pool(shape: PoolShape) -> Request {
    Request::CreatePool {
        req: Req(1),
        name: "pool".into(),
        shape,
    }
}

pub fn create_heap(max_bytes: u64, held_bytes: u64) -> Request {
    Request::CreateHeap {
        req: Req(5),
        name: "heap".into(),
        max_bytes,
        held_bytes,
    }
}

pub fn show_chunks(pool: PoolId, keys: &[(u32, u32)], least: u32) -> Request {
    Request::ShowChunks {
        req: Req(3),
        pool,
        chunks: keys.to_vec(),
        least,
    }
}

pub fn claim_pool(pool: PoolId, shape: PoolShape) -> Request {
    Request::ClaimPool {
        req: Req(1),
        pool,
        name: "pool".into(),
        shape,
    }
}

pub fn claim_reader(pool: PoolId, mapped: Vec<(u32, u32)>) -> Request {
    Request::ClaimReader {
        req: Req(1),
        pool,
        slots: SLOTS,
        table: 1,
        trust: Trust::Producer,
        mapped,
    }
}

pub fn claim_reader_set(
    pool: PoolId,
    readers: Vec<(DomainId, u64)>,
    queues: Vec<(ChannelId, DomainId, u64)>,
) -> Request {
    Request::ClaimReaderSet {
        req: Req(2),
        pool,
        readers,
        queues,
    }
}

pub fn claim_channel(channel: ChannelId, role: Role, peer: DomainId) -> Request {
    let claim = ChannelClaim {
        channel,
        name: "name".into(),
        role,
        peer,
        lines: LINES,
        peer_inode: 1,
    };
    Request::ClaimChannel { req: Req(4), claim }
}

pub const CLAIM_DONE: Request = Request::ClaimDone { req: Req(1) };

/// Returns the first refusal.
pub fn refused(events: &[Event]) -> Option<Refusal> {
    events.iter().find_map(|e| match e {
        Event::Refused { refusal, .. } => Some(*refusal),
        _ => None,
    })
}

pub fn code(events: &[Event]) -> Option<RefusalCode> {
    refused(events).map(|refusal| refusal.code)
}

/// Returns a refusal's code and numbers.
pub fn numbers(events: &[Event]) -> Option<(RefusalCode, u64, u64)> {
    refused(events).map(|r| (r.code, r.asked, r.available))
}

#[track_caller]
pub fn is_exported(events: &[Event]) {
    assert!(matches!(events, [Event::Exported { .. }]), "{events:?}");
}

#[track_caller]
pub fn is_claimed(events: &[Event]) {
    assert!(matches!(events, [Event::Claimed { .. }]), "{events:?}");
}

/// Returns the channel that a connector asks for, and whether it is a topic's.
pub fn incoming(events: &[Event]) -> Option<(ChannelId, Role, bool)> {
    events.iter().find_map(|e| match e {
        Event::Incoming {
            channel,
            role,
            topic,
            ..
        } => Some((*channel, *role, *topic)),
        _ => None,
    })
}

/// Returns the domains to which connectors are told that they are connected, and whether these share their name.
pub fn opened(events: &[Event]) -> Vec<(DomainId, bool)> {
    let opened = events.iter().filter_map(|e| match e {
        Event::Opened { peer, shared, .. } => Some((*peer, *shared)),
        _ => None,
    });
    opened.collect()
}

/// Connects a domain to a name that another domain has exported, and lets that domain accept for its role.
pub fn open(
    house: &mut House,
    name: &str,
    (owner, role): (ClientId, Role),
    connector: ClientId,
) -> ChannelId {
    let connect = connect(2, name, role.opposite(), false);
    let events = house.ask(connector, connect, half(role.opposite()));
    let [Event::Incoming { channel, .. }] = events[..] else {
        panic!("{events:?}");
    };
    let events = house.ask(owner, accept(channel), half(role));
    assert_eq!(opened(&events).len(), 1, "{events:?}");
    channel
}

/// Makes channels from `source` to a name of `sink`, which accepts them all.
pub fn channels(
    house: &mut House,
    source: ClientId,
    sink: ClientId,
    name: &str,
    n: u32,
) -> Vec<ChannelId> {
    house.ask(sink, export(name, Role::Sink), []);
    let one = |_| open(house, name, (sink, Role::Sink), source);
    (0..n).map(one).collect()
}

/// Checks that the books are in order, and have nothing on them.
#[track_caller]
pub fn nothing_is_left(house: &House) {
    assert!(house.state.held_tokens().is_empty());
    assert_eq!(house.state.memory(), (0, 0));
    house.state.audit().expect("no contradiction");
}
