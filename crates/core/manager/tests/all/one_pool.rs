//! The most of each kind that one pool may have: when its writer is gone, all of it is read.

use crate::house::{House, Object};
use crate::pool;
use crate::pool::{Reader, Writer};
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Header};
use tranship_proto::{
    ALL_READERS, ChannelId, DomainId, Event, Limited, PoolId, RefusalCode, Req, Request, Role,
};

const MOST: u32 = 4096;
const REFUSED: RefusalCode = RefusalCode::Limit;
const LINES: u32 = 2;
const SLOTS: u32 = 2;
const CHUNK: u64 = 64 << 10;
const TABLE: u32 = 2;
const REFS: u32 = 3;
const SENT: u32 = 4;
const RCVD: u32 = 5;
const LINK_SOURCE: u32 = 6;
const LINK_SINK: u32 = 7;

/// Asks for one more than allowed; returns the refusal.
fn beyond(of: Limited) -> (RefusalCode, u64, u64) {
    let refusal = of.refuse(u64::from(MOST) + 1, MOST.into());
    (REFUSED, refusal.asked, refusal.available)
}

/// Users may have far more than a pool.
fn roomy() -> House {
    let limits = Limits {
        connections: u32::MAX,
        channels: u32::MAX,
        names: u32::MAX,
        descriptors: u32::MAX,
        records: u32::MAX,
        ..Limits::default()
    };
    House::new(limits, 1 << 30)
}

fn object(kind: u32, count: u32, size: u64) -> Option<Object> {
    let header = Header {
        kind,
        count,
        chunk_bytes: CHUNK,
        max_bytes: CHUNK,
    };
    Some((header, size))
}

fn refused(events: &[Event]) -> Option<(RefusalCode, u64, u64)> {
    events.iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some((refusal.code, refusal.asked, refusal.available)),
        _ => None,
    })
}

fn make_pool(house: &mut House, writer: ClientId) -> PoolId {
    let create = Request::CreatePool {
        req: Req(1),
        name: "pool".into(),
        shape: tranship_proto::PoolShape {
            max_bytes: CHUNK,
            slots: SLOTS,
            chunk_bytes: CHUNK,
            trust: tranship_proto::Trust::Producer,
        },
    };
    match house.ask(writer, create, object(TABLE, SLOTS, 8192))[..] {
        [Event::PoolCreated { pool, .. }] => pool,
        ref other => panic!("{other:?}"),
    }
}

/// Makes as many channels from a source to a sink.
fn channels(house: &mut House, source: ClientId, sink: ClientId, n: u32) -> Vec<ChannelId> {
    let name = format!("in of {}", sink.0);
    let export = Request::Export {
        req: Req(1),
        name: name.clone(),
        role: Role::Sink,
    };
    house.ask(sink, export, None);
    let one = |_| {
        let connect = Request::Connect {
            req: Req(2),
            name: name.clone(),
            role: Role::Source,
            lines: LINES,
            wait: false,
        };
        let events = house.ask(source, connect, object(LINK_SOURCE, LINES, 8192));
        let [Event::Incoming { channel, .. }] = events[..] else {
            panic!("{events:?}");
        };
        let accept = Request::Accept {
            req: Req(3),
            channel,
            lines: LINES,
        };
        house.ask(sink, accept, object(LINK_SINK, LINES, 8192));
        channel
    };
    (0..n).map(one).collect()
}

#[test]
fn queues_and_what_may_become_one() {
    let mut house = roomy();
    let (writer, _) = house.join(1, None);
    let (sink, _) = house.join(1, None);
    let pool = make_pool(&mut house, writer);
    let all = channels(&mut house, writer, sink, MOST + 1);
    let assign = |house: &mut House, channel| {
        let request = Request::Assign {
            req: Req(4),
            channel,
            pool,
        };
        house.ask(writer, request, object(SENT, SLOTS, 4096))
    };
    // The first brings the reader's counters of references.
    let accept = |house: &mut House, channel| {
        let with_refs = channel == all[0];
        let request = Request::AcceptPool {
            channel,
            pool,
            with_refs,
        };
        let refs = object(REFS, SLOTS, 4096).filter(|_| with_refs);
        let rcvd = object(RCVD, SLOTS, 4096);
        house.ask(sink, request, rcvd.into_iter().chain(refs))
    };
    let (last, rest) = all.split_last().unwrap();
    let beyond = Some(beyond(Limited::Queues));
    // Unanswered offers count too: each may be a queue a moment later.
    for channel in rest {
        let events = assign(&mut house, *channel);
        assert_eq!(refused(&events), None);
    }
    assert_eq!(refused(&assign(&mut house, *last)), beyond);
    for channel in rest {
        let events = accept(&mut house, *channel);
        assert_eq!(refused(&events), None);
    }
    assert_eq!(refused(&assign(&mut house, *last)), beyond);
    // A domain that has gone makes room for another.
    let first = rest[0];
    house.ask(writer, Request::CloseChannel { channel: first }, None);
    house.ask(sink, Request::CloseChannel { channel: first }, None);
    assert_eq!(refused(&assign(&mut house, *last)), None);
}

/// Readers without a queue count too: they keep a chunk that they were shown.
#[test]
fn readers() {
    let mut house = roomy();
    let writer = Writer::join(&mut house, 1, 1);
    assert_eq!(writer.grant(&mut house, 1).0, Ok(1));
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    let all: Vec<_> = (0..MOST)
        .map(|_| Reader::join(&mut house, 1, &writer))
        .collect();
    let (sink, _) = house.join(1, None);
    let [channel] = channels(&mut house, writer.client, sink, 1)[..] else {
        panic!("one channel");
    };
    let assign = |house: &mut House| {
        let request = Request::Assign {
            req: Req(4),
            channel,
            pool: writer.pool,
        };
        let events = house.ask(writer.client, request, object(SENT, pool::SLOTS, 4096));
        refused(&events)
    };
    let beyond = Some(beyond(Limited::Queues));
    assert_eq!(assign(&mut house), beyond);
    for reader in &all {
        let channel = reader.channel;
        house.ask(writer.client, Request::CloseChannel { channel }, None);
        house.ask(reader.client, Request::CloseChannel { channel }, None);
    }
    assert_eq!(assign(&mut house), beyond);
    all[0].unmapped(&mut house, 0, 1);
    assert_eq!(assign(&mut house), None);
}

#[test]
fn domains_that_may_forward_it() {
    let mut house = roomy();
    let (writer, _) = house.join(1, None);
    let pool = make_pool(&mut house, writer);
    let all: Vec<_> = (0..=MOST).map(|_| house.join(2, None)).collect();
    let allow = |house: &mut House, domain| {
        let req = Req(5);
        let request = Request::AllowForward { req, pool, domain };
        house.ask(writer, request, None)
    };
    let ((_, last), rest) = all.split_last().unwrap();
    for (_, domain) in rest {
        let events = allow(&mut house, *domain);
        assert!(matches!(events[..], [Event::ForwardAllowed { .. }]));
    }
    let beyond = Some(beyond(Limited::Forwarders));
    assert_eq!(refused(&allow(&mut house, *last)), beyond);
    house.ask(rest[0].0, Request::Goodbye, None);
    assert_eq!(refused(&allow(&mut house, *last)), None);
}

/// All readers of a pool may forward it when its writer has said so, and no other domain.
#[test]
fn all_its_readers_may_forward_it() {
    let mut house = roomy();
    let (writer, _) = house.join(1, None);
    let [(reader, _), (other, _)] = [house.join(1, None), house.join(1, None)];
    let pool = make_pool(&mut house, writer);
    let assign = |house: &mut House, source, sink| {
        let channel = channels(house, source, sink, 1)[0];
        let request = Request::Assign {
            req: Req(4),
            channel,
            pool,
        };
        let events = house.ask(source, request, object(SENT, SLOTS, 4096));
        (channel, refused(&events).map(|(code, ..)| code))
    };
    let allow_all = |house: &mut House, who| {
        let request = Request::AllowForward {
            req: Req(5),
            pool,
            domain: ALL_READERS,
        };
        house.ask(who, request, None)
    };
    let (channel, refusal) = assign(&mut house, writer, reader);
    assert_eq!(refusal, None);
    let accept = Request::AcceptPool {
        channel,
        pool,
        with_refs: true,
    };
    let counters = [object(RCVD, SLOTS, 4096), object(REFS, SLOTS, 4096)];
    house.ask(reader, accept, counters.into_iter().flatten());
    assert_eq!(
        assign(&mut house, reader, writer).1,
        Some(RefusalCode::NotYours)
    );
    for who in [reader, other] {
        let refused = refused(&allow_all(&mut house, who)).map(|(code, ..)| code);
        assert_eq!(
            refused,
            Some(RefusalCode::NotYours),
            "only the writer says so"
        );
    }
    let allowed = allow_all(&mut house, writer);
    assert!(matches!(
        allowed[..],
        [Event::ForwardAllowed {
            domain: ALL_READERS,
            ..
        }]
    ));
    assert_eq!(assign(&mut house, reader, writer).1, None);
    assert_eq!(
        assign(&mut house, other, writer).1,
        Some(RefusalCode::NotYours)
    );
}

#[test]
fn names_on_the_reader_set_that_its_writer_claims() {
    let mut house = roomy();
    let (writer, _) = house.join(1, Some(DomainId(7)));
    let pool = PoolId(7);
    let claim = Request::ClaimPool {
        req: Req(1),
        pool,
        name: "pool".into(),
        shape: tranship_proto::PoolShape {
            max_bytes: CHUNK,
            slots: SLOTS,
            chunk_bytes: CHUNK,
            trust: tranship_proto::Trust::Producer,
        },
    };
    house.ask(writer, claim, object(TABLE, SLOTS, 8192));
    let reader_set = |house: &mut House, readers: Vec<(DomainId, u64)>, queues| {
        let req = Req(2);
        let request = Request::ClaimReaderSet {
            req,
            pool,
            readers,
            queues,
        };
        house.ask(writer, request, None)
    };
    // In pieces, because a message holds no more.
    for piece in 0..16 {
        let ids = 1000 + piece * MOST / 16..1000 + (piece + 1) * MOST / 16;
        let readers = ids.map(|id| (DomainId(id), 1)).collect();
        let events = reader_set(&mut house, readers, Vec::new());
        assert!(matches!(events[..], [Event::Claimed { .. }]), "{events:?}");
    }
    let beyond = Some(beyond(Limited::Queues));
    let one_more = vec![(DomainId(1), 1)];
    assert_eq!(
        refused(&reader_set(&mut house, one_more, Vec::new())),
        beyond
    );
    let queue = vec![(ChannelId(1), DomainId(1), 1)];
    assert_eq!(refused(&reader_set(&mut house, Vec::new(), queue)), beyond);
}
