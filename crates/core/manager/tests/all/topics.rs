//! Names of topics: what publisher and subscriber show beside their halves, and what is refused.

use crate::house::House;
use crate::pool::{OTHER, OWNER, house};
use std::time::Duration;
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Header, Input, Sealed};
use tranship_proto::{
    A_QUEUE, A_TOPIC, ChannelId, DomainId, Event, Refusal, RefusalCode, Req, Request, Role,
};

const LINES: u32 = 4;
const RING: u32 = 16;
/// Kinds of `docs/format.md`, with the lengths that these counts have.
const SOURCE: (u32, u32, u64) = (6, LINES, 8192);
const SINK: (u32, u32, u64) = (7, LINES, 8192);
const RING_LINES: (u32, u32, u64) = (11, RING, 8192);
const DESK: (u32, u32, u64) = (12, 1, 4096);
const BELL: (u32, u32, u64) = (13, 1, 4096);
const CLAIMS: (u32, u32, u64) = (14, RING, 4096);

fn shown<const N: usize>(objects: [(u32, u32, u64); N]) -> [(Header, u64); N] {
    objects.map(|(kind, count, bytes)| {
        let header = Header {
            kind,
            count,
            ..Header::default()
        };
        (header, bytes)
    })
}

fn publish(house: &mut House, client: ClientId) -> Vec<Event> {
    house.ask(client, offer(false, false), [])
}

fn offer(queue: bool, shared: bool) -> Request {
    Request::Publish {
        req: Req(1),
        name: "camera".into(),
        queue,
        shared,
    }
}

fn subscribe(req: u32) -> Request {
    Request::Subscribe {
        req: Req(req),
        name: "camera".into(),
        lines: LINES,
        queue: false,
        have: Vec::new(),
    }
}

fn accept(channel: ChannelId) -> Request {
    Request::AcceptSubscriber {
        req: Req(2),
        channel,
        lines: LINES,
        ring_lines: RING,
    }
}

fn incoming(events: &[Event]) -> Option<ChannelId> {
    events.iter().find_map(|e| match e {
        Event::Incoming {
            channel,
            topic: true,
            role: Role::Source,
            ..
        } => Some(*channel),
        _ => None,
    })
}

fn refused(events: &[Event]) -> Option<Refusal> {
    events.iter().find_map(|e| match e {
        Event::Refused { refusal, .. } => Some(*refusal),
        _ => None,
    })
}

fn nothing_is_left(house: &House) {
    assert!(house.state.held_tokens().is_empty());
    assert_eq!(house.state.memory(), (0, 0));
    house.state.audit().expect("no contradiction");
}

struct Both {
    house: House,
    publisher: (ClientId, DomainId),
    subscriber: (ClientId, DomainId),
}

fn both() -> Both {
    let mut house = house(100, Limits::default());
    let publisher = house.join(OWNER, None);
    let subscriber = house.join(OTHER, None);
    Both {
        house,
        publisher,
        subscriber,
    }
}

fn all_end(mut both: Both) {
    for (_, domain) in [both.publisher, both.subscriber] {
        both.house.state.audit().expect("no contradiction");
        both.house.step(Input::ProcessDied { domain });
    }
    nothing_is_left(&both.house);
}

#[test]
fn a_subscriber_gets_the_ring_and_the_publisher_its_desk() {
    let mut both = both();
    let (publisher, subscriber) = (both.publisher.0, both.subscriber.0);
    // It waits for the name.
    let events = both
        .house
        .ask(subscriber, subscribe(1), shown([SINK, DESK]));
    assert!(events.is_empty(), "{events:?}");
    both.house.state.audit().expect("no contradiction");
    let events = publish(&mut both.house, publisher);
    let channel = incoming(&events).expect("a subscriber");
    both.house.state.audit().expect("no contradiction");
    let events = both.house.ask(
        publisher,
        accept(channel),
        shown([SOURCE, RING_LINES, BELL]),
    );
    let opened = |e: &Event| {
        matches!(
            e,
            Event::Opened {
                ring_lines: RING,
                ..
            }
        )
    };
    assert!(events.iter().any(opened), "{events:?}");
    let accepted = |e: &Event| matches!(e, Event::Accepted { .. });
    assert!(events.iter().any(accepted), "{events:?}");
    all_end(both);
}

#[test]
fn what_does_not_have_its_form_is_refused() {
    let mut both = both();
    let (publisher, subscriber) = (both.publisher.0, both.subscriber.0);
    publish(&mut both.house, publisher);
    let events = both
        .house
        .ask(subscriber, subscribe(1), shown([SINK, BELL]));
    assert_eq!(
        refused(&events).map(|r| r.code),
        Some(RefusalCode::BadDescriptor)
    );
    let events = both
        .house
        .ask(subscriber, subscribe(2), shown([SINK, DESK]));
    let channel = incoming(&events).expect("a subscriber");
    // Nor is it accepted as a channel.
    let plain = Request::Accept {
        req: Req(5),
        channel,
        lines: LINES,
    };
    let events = both.house.ask(publisher, plain, shown([SOURCE]));
    assert_eq!(refused(&events).map(|r| r.code), Some(RefusalCode::State));
    for wrong in [
        [SOURCE, DESK, BELL],
        [SOURCE, RING_LINES, DESK],
        [SINK, RING_LINES, BELL],
    ] {
        let events = both.house.ask(publisher, accept(channel), shown(wrong));
        assert_eq!(
            refused(&events).map(|r| r.code),
            Some(RefusalCode::BadDescriptor)
        );
        both.house.state.audit().expect("no contradiction");
    }
    let events = both.house.ask(
        publisher,
        accept(channel),
        shown([SOURCE, RING_LINES, BELL]),
    );
    assert_eq!(refused(&events), None);
    all_end(both);
}

#[test]
fn a_name_is_a_channels_or_a_topics() {
    let mut both = both();
    let (publisher, subscriber) = (both.publisher.0, both.subscriber.0);
    publish(&mut both.house, publisher);
    let open = Request::Connect {
        req: Req(1),
        name: "camera".into(),
        role: Role::Sink,
        lines: LINES,
        wait: true,
    };
    let of_kind = |available| Refusal {
        code: RefusalCode::Kind,
        asked: 0,
        available,
    };
    let events = both.house.ask(subscriber, open, shown([SINK]));
    assert_eq!(refused(&events), Some(of_kind(A_TOPIC)));
    let export = Request::Export {
        req: Req(2),
        name: "video".into(),
        role: Role::Source,
    };
    both.house.ask(publisher, export, []);
    let wrong = Request::Subscribe {
        req: Req(3),
        name: "video".into(),
        lines: LINES,
        queue: false,
        have: Vec::new(),
    };
    let events = both.house.ask(subscriber, wrong, shown([SINK, DESK]));
    assert_eq!(refused(&events), Some(of_kind(0)));
    all_end(both);
}

/// A connect that waits is told of the kind when the name appears.
#[test]
fn a_name_that_appears_may_be_of_the_other_kind() {
    let mut both = both();
    let (publisher, subscriber) = (both.publisher.0, both.subscriber.0);
    both.house
        .ask(subscriber, subscribe(1), shown([SINK, DESK]));
    let export = Request::Export {
        req: Req(2),
        name: "camera".into(),
        role: Role::Source,
    };
    let events = both.house.ask(publisher, export, []);
    assert_eq!(refused(&events).map(|r| r.code), Some(RefusalCode::Kind));
    all_end(both);
}

/// A subscription that is given up, or whose process dies, leaves nothing.
#[test]
fn a_subscription_that_waits_can_end() {
    let mut both = both();
    let subscriber = both.subscriber.0;
    both.house
        .ask(subscriber, subscribe(1), shown([SINK, DESK]));
    let events = both
        .house
        .ask(subscriber, Request::CancelConnect { req: Req(1) }, []);
    assert_eq!(
        refused(&events).map(|r| r.code),
        Some(RefusalCode::NoSuchName)
    );
    both.house
        .ask(subscriber, subscribe(2), shown([SINK, DESK]));
    all_end(both);
}

/// Asks for a writer of the name that is none of these.
fn another(req: u32, queue: bool, have: &[DomainId]) -> Request {
    Request::Subscribe {
        req: Req(req),
        name: "camera".into(),
        lines: LINES,
        queue,
        have: have.to_vec(),
    }
}

/// Accepts the connection that the events bring, and returns the writers that the connector was told of.
fn accepted(house: &mut House, writer: ClientId, events: &[Event]) -> Vec<(DomainId, bool)> {
    let Some(channel) = incoming(events) else {
        return Vec::new();
    };
    let events = house.ask(writer, accept(channel), shown([SOURCE, RING_LINES, BELL]));
    let opened = events.iter().filter_map(|e| match e {
        Event::Opened { peer, shared, .. } => Some((*peer, *shared)),
        _ => None,
    });
    opened.collect()
}

/// A name that several domains share gives a reader each of them once, the late ones too.
#[test]
fn a_reader_gets_each_domain_that_shares_a_name() {
    let mut both = both();
    let (first, reader) = (both.publisher, both.subscriber);
    let house = &mut both.house;
    let (second, late) = (house.join(OWNER, None), house.join(OTHER, None));
    for (client, _) in [first, second] {
        let events = house.ask(client, offer(false, true), []);
        assert!(matches!(events[..], [Event::Exported { .. }]), "{events:?}");
    }
    let events = house.ask(reader.0, another(1, false, &[]), shown([SINK, DESK]));
    assert_eq!(accepted(house, first.0, &events), [(first.1, true)]);
    let events = house.ask(reader.0, another(2, false, &[first.1]), shown([SINK, DESK]));
    assert_eq!(accepted(house, second.0, &events), [(second.1, true)]);
    let have = [first.1, second.1];
    let events = house.ask(reader.0, another(3, false, &have), shown([SINK, DESK]));
    assert_eq!(events, [], "it waits");
    let events = house.ask(late.0, offer(false, true), []);
    assert_eq!(accepted(house, late.0, &events), [(late.1, true)]);
    for (_, domain) in [second, late] {
        both.house.step(Input::ProcessDied { domain });
    }
    all_end(both);
}

/// All that have a name share it, or one has it for itself; a domain has it once; all mean the same by it.
#[test]
fn those_that_share_a_name_agree() {
    let mut both = both();
    let (first, second) = (both.publisher, both.subscriber);
    let house = &mut both.house;
    let third = house.join(OWNER, None);
    let code = |events: &[Event]| refused(events).map(|r| (r.code, r.asked, r.available));
    house.ask(first.0, offer(true, true), []);
    let domain = u64::from(first.1.0);
    let events = house.ask(second.0, offer(true, false), []);
    assert_eq!(code(&events), Some((RefusalCode::Shared, 0, domain)));
    let events = house.ask(second.0, offer(false, true), []);
    assert_eq!(code(&events), Some((RefusalCode::Kind, 0, A_QUEUE)));
    let events = house.ask(first.0, offer(true, true), []);
    assert_eq!(
        code(&events).map(|c| c.0),
        Some(RefusalCode::NameTaken),
        "once"
    );
    let events = house.ask(second.0, another(2, false, &[]), shown([SINK, DESK]));
    assert_eq!(code(&events), Some((RefusalCode::Kind, 0, A_QUEUE)));
    let events = house.ask(first.0, another(2, true, &[]), shown([SINK, DESK]));
    assert_eq!(code(&events).map(|c| c.0), Some(RefusalCode::OwnName));
    house.step(Input::ProcessDied { domain: first.1 });
    house.ask(second.0, offer(true, false), []);
    let domain = u64::from(second.1.0);
    let events = house.ask(third.0, offer(true, true), []);
    assert_eq!(code(&events), Some((RefusalCode::Shared, 1, domain)));
    house.step(Input::ProcessDied { domain: third.1 });
    all_end(both);
}

/// One user cannot take all places of a name.
#[test]
fn the_domains_that_share_a_name_are_bounded_for_each_user() {
    let mut house = house(200, Limits::default());
    let owners: Vec<_> = (0..49).map(|_| house.join(OWNER, None)).collect();
    for (at, (client, _)) in owners.iter().enumerate() {
        let events = house.ask(*client, offer(true, true), []);
        match at < 48 {
            true => assert!(matches!(events[..], [Event::Exported { .. }]), "{events:?}"),
            false => assert_eq!(
                refused(&events).map(|r| (r.code, r.available)),
                Some((RefusalCode::Limit, 48))
            ),
        }
    }
    let other = house.join(OTHER, None);
    let events = house.ask(other.0, offer(true, true), []);
    assert!(matches!(events[..], [Event::Exported { .. }]), "{events:?}");
    for (_, domain) in owners.into_iter().chain([other]) {
        house.step(Input::ProcessDied { domain });
    }
    nothing_is_left(&house);
}

/// A queue's writer shows claims, not a bell.
#[test]
fn a_queues_writer_shows_its_claims() {
    let mut both = both();
    let (writer, reader) = (both.publisher, both.subscriber);
    let house = &mut both.house;
    house.ask(writer.0, offer(true, true), []);
    let events = house.ask(reader.0, another(1, true, &[]), shown([SINK, DESK]));
    let channel = incoming(&events).expect("a connection");
    let all = [Sealed::OneWriter, Sealed::OneWriter, Sealed::Shared];
    for (last, seals, good) in [
        (BELL, [Sealed::OneWriter; 3], false),
        (CLAIMS, [Sealed::OneWriter; 3], false),
        (CLAIMS, all, true),
    ] {
        let objects = shown([SOURCE, RING_LINES, last]).into_iter().zip(seals);
        let events = house.ask_with(writer.0, accept(channel), objects);
        let code = refused(&events).map(|r| r.code);
        let expected = (!good).then_some(RefusalCode::BadDescriptor);
        assert_eq!(code, expected, "{last:?} {seals:?}");
    }
    all_end(both);
}

/// A reader cannot have the manager search long lists.
#[test]
fn a_reader_names_a_bounded_number_of_writers() {
    let mut both = both();
    let have: Vec<_> = (0..129).map(DomainId).collect();
    let request = another(1, false, &have);
    let events = both
        .house
        .ask(both.subscriber.0, request, shown([SINK, DESK]));
    let code = refused(&events).map(|r| (r.code, r.asked, r.available));
    assert_eq!(code, Some((RefusalCode::BadArgument, 129, 128)));
    all_end(both);
}

/// One that has a shared name and does not answer, or answers and does not fit, keeps no reader from the others.
#[test]
fn a_reader_comes_to_all_that_share_a_name_whatever_one_does() {
    let mut both = both();
    let (silent, reader) = (both.publisher, both.subscriber);
    let house = &mut both.house;
    let second = house.join(OWNER, None);
    house.ask(silent.0, offer(false, true), []);
    let ask = |house: &mut House, req, have: &[DomainId]| {
        house.ask(reader.0, another(req, false, have), shown([SINK, DESK]))
    };
    let events = ask(house, 1, &[]);
    let channel = incoming(&events).expect("it is asked");
    // Nobody else has the name: it may take its time.
    house.now += Duration::from_secs(1);
    assert_eq!(house.tick(), []);
    house.ask(second.0, offer(false, true), []);
    house.now += Duration::from_millis(249);
    assert_eq!(house.tick(), []);
    house.now += Duration::from_millis(1);
    let due = house.state.deadline().expect("a time");
    assert!(due <= house.now, "{due:?}");
    let events = house.tick();
    let code = refused(&events).map(|r| r.code);
    assert_eq!(code, Some(RefusalCode::PeerGone), "{events:?}");
    let is_told =
        |e: &Event| matches!(e, Event::PeerGone { channel: gone, .. } if *gone == channel);
    assert!(events.iter().any(is_told), "{events:?}");
    house.state.audit().expect("no contradiction");
    let events = ask(house, 2, &[]);
    assert_eq!(accepted(house, second.0, &events), [(second.1, true)]);
    // One that the reader has does not count: it waits for the silent one.
    let asked = ask(house, 3, &[second.1]);
    assert!(incoming(&asked).is_some());
    house.now += Duration::from_secs(1);
    assert_eq!(house.tick(), []);
    // The silent one is asked last until it answers. Then another reader finds that the one does not fit, and comes to the other.
    let other = house.join(OTHER, None);
    for (req, writer) in [(1, second), (2, second), (3, silent), (4, second)] {
        if req == 3 {
            assert_eq!(accepted(house, silent.0, &asked), [(silent.1, true)]);
        }
        let events = house.ask(other.0, another(req, false, &[]), shown([SINK, DESK]));
        assert_eq!(accepted(house, writer.0, &events), [(writer.1, true)]);
    }
    for (_, domain) in [second, other] {
        both.house.step(Input::ProcessDied { domain });
    }
    all_end(both);
}

/// A domain that has a name reads it never, in whatever order those that share it began.
#[test]
fn a_shared_name_of_ones_own_is_refused_first() {
    let mut both = both();
    let (first, second) = (both.publisher, both.subscriber);
    for (client, _) in [first, second] {
        both.house.ask(client, offer(false, true), []);
    }
    for (client, _) in [first, second] {
        let events = both
            .house
            .ask(client, another(2, false, &[]), shown([SINK, DESK]));
        assert_eq!(refused(&events).map(|r| r.code), Some(RefusalCode::OwnName));
    }
    all_end(both);
}
