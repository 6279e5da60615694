//! The most of each kind that one pool may have: when its writer is gone, all of it is read.

use crate::ask::*;
use crate::house::House;
use crate::pool::{Reader, Writer};
use tranship_manager::Limits;
use tranship_manager::state::ClientId;
use tranship_proto::{
    ALL_READERS, ChannelId, DomainId, Event, Limited, PoolId, RefusalCode, Req, Request, Trust,
};

const MOST: u32 = 4096;
const REFUSED: RefusalCode = RefusalCode::Limit;

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

fn make_pool(house: &mut House, writer: ClientId) -> PoolId {
    Writer::with_pool(house, writer, 1).pool
}

/// Makes one channel from a source to a sink.
fn channel(house: &mut House, source: ClientId, sink: ClientId) -> ChannelId {
    channels(house, source, sink, &format!("in of {}", sink.0), 1)[0]
}

#[test]
fn queues_and_what_may_become_one() {
    let mut house = roomy();
    let (writer, _) = house.join(1, None);
    let (sink, _) = house.join(1, None);
    let pool = make_pool(&mut house, writer);
    let all = channels(&mut house, writer, sink, "in", MOST + 1);
    let assign = |house: &mut House, channel| {
        let events = house.ask(writer, assign(channel, pool), [counters(SENT)]);
        numbers(&events)
    };
    // The first brings the reader's counters of references.
    let accept = |house: &mut House, channel| {
        let with_refs = channel == all[0];
        let kinds = if with_refs {
            &[RCVD, REFS][..]
        } else {
            &[RCVD]
        };
        let objects = kinds.iter().map(|kind| counters(*kind));
        house.ask(sink, accept_pool(channel, pool, with_refs), objects)
    };
    let (last, rest) = all.split_last().unwrap();
    let beyond = Some(beyond(Limited::Queues));
    // Unanswered offers count too: each may be a queue a moment later.
    for channel in rest {
        assert_eq!(assign(&mut house, *channel), None);
    }
    assert_eq!(assign(&mut house, *last), beyond);
    for channel in rest {
        let events = accept(&mut house, *channel);
        assert_eq!(refused(&events), None);
    }
    assert_eq!(assign(&mut house, *last), beyond);
    // A domain that has gone makes room for another.
    let first = rest[0];
    house.ask(writer, Request::CloseChannel { channel: first }, None);
    house.ask(sink, Request::CloseChannel { channel: first }, None);
    assert_eq!(assign(&mut house, *last), None);
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
    let channel = channel(&mut house, writer.client, sink);
    let assign = |house: &mut House| {
        let request = assign(channel, writer.pool);
        numbers(&house.ask(writer.client, request, [counters(SENT)]))
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
    assert_eq!(numbers(&allow(&mut house, *last)), beyond);
    house.ask(rest[0].0, Request::Goodbye, None);
    assert_eq!(numbers(&allow(&mut house, *last)), None);
}

/// All readers of a pool may forward it when its writer has said so, and no other domain.
#[test]
fn all_its_readers_may_forward_it() {
    let mut house = roomy();
    let (writer, _) = house.join(1, None);
    let [(reader, _), (other, _)] = [house.join(1, None), house.join(1, None)];
    let pool = make_pool(&mut house, writer);
    let assign = |house: &mut House, source, sink| {
        let channel = channel(house, source, sink);
        let events = house.ask(source, assign(channel, pool), [counters(SENT)]);
        (channel, code(&events))
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
    let consent = accept_pool(channel, pool, true);
    house.ask(reader, consent, [RCVD, REFS].map(counters));
    let not_yours = Some(RefusalCode::NotYours);
    assert_eq!(assign(&mut house, reader, writer).1, not_yours);
    for who in [reader, other] {
        let refused = code(&allow_all(&mut house, who));
        assert_eq!(refused, not_yours, "only the writer says so");
    }
    let allowed = allow_all(&mut house, writer);
    assert!(matches!(allowed[..], [Event::ForwardAllowed { domain, .. }] if domain == ALL_READERS));
    assert_eq!(assign(&mut house, reader, writer).1, None);
    assert_eq!(assign(&mut house, other, writer).1, not_yours);
}

#[test]
fn names_on_the_reader_set_that_its_writer_claims() {
    let mut house = roomy();
    let (writer, _) = house.join(1, Some(DomainId(7)));
    let pool = PoolId(7);
    let shape = shape(1, Trust::Producer);
    house.ask(writer, claim_pool(pool, shape), table(shape));
    let reader_set = |house: &mut House, readers, queues| {
        house.ask(writer, claim_reader_set(pool, readers, queues), None)
    };
    // In pieces, because a message holds no more.
    for piece in 0..16 {
        let ids = 1000 + piece * MOST / 16..1000 + (piece + 1) * MOST / 16;
        let readers = ids.map(|id| (DomainId(id), 1)).collect();
        is_claimed(&reader_set(&mut house, readers, Vec::new()));
    }
    let beyond = Some(beyond(Limited::Queues));
    let one_more = vec![(DomainId(1), 1)];
    let events = reader_set(&mut house, one_more, Vec::new());
    assert_eq!(numbers(&events), beyond);
    let queue = vec![(ChannelId(1), DomainId(1), 1)];
    let events = reader_set(&mut house, Vec::new(), queue);
    assert_eq!(numbers(&events), beyond);
}
