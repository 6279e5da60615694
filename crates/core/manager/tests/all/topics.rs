//! Names of topics: what publisher and subscriber show beside their halves, and what is refused.

use crate::ask::*;
use crate::house::{House, Object};
use crate::pool::{OTHER, OWNER, house};
use std::time::Duration;
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Input, Sealed};
use tranship_proto::{
    A_QUEUE, A_TOPIC, ChannelId, DomainId, Event, Refusal, RefusalCode, Req, Request, Role,
};

const RING: u32 = 16;
/// Kinds of `docs/format.md`, with the lengths that these counts have.
const SOURCE: (u32, u32, u64) = (6, LINES, 8192);
const SINK: (u32, u32, u64) = (7, LINES, 8192);
const RING_LINES: (u32, u32, u64) = (11, RING, 8192);
const DESK: (u32, u32, u64) = (12, 1, 4096);
const BELL: (u32, u32, u64) = (13, 1, 4096);
const CLAIMS: (u32, u32, u64) = (14, RING, 4096);

fn shown<const N: usize>(objects: [(u32, u32, u64); N]) -> [Object; N] {
    objects.map(|(kind, count, bytes)| object(kind, count, bytes))
}

fn offer(queue: bool, shared: bool) -> Request {
    Request::Publish {
        req: Req(1),
        name: "camera".into(),
        queue,
        shared,
    }
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

fn admit(channel: ChannelId) -> Request {
    Request::AcceptSubscriber {
        req: Req(2),
        channel,
        lines: LINES,
        ring_lines: RING,
    }
}

fn incoming(events: &[Event]) -> Option<ChannelId> {
    let (channel, role, topic) = crate::ask::incoming(events)?;
    (role == Role::Source && topic).then_some(channel)
}

/// A publisher, and a domain that subscribes.
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

impl Both {
    fn publish(&mut self) -> Vec<Event> {
        self.house.ask(self.publisher.0, offer(false, false), [])
    }

    fn subscribe(&mut self, req: u32) -> Vec<Event> {
        let request = another(req, false, &[]);
        subscribes(&mut self.house, self.subscriber, request)
    }

    fn all_end(mut self) {
        for (_, domain) in [self.publisher, self.subscriber] {
            self.house.state.audit().expect("no contradiction");
            self.house.step(Input::ProcessDied { domain });
        }
        nothing_is_left(&self.house);
    }
}

fn subscribes(
    house: &mut House,
    (client, _): (ClientId, DomainId),
    request: Request,
) -> Vec<Event> {
    house.ask(client, request, shown([SINK, DESK]))
}

fn accepts<const N: usize>(
    house: &mut House,
    (writer, _): (ClientId, DomainId),
    channel: ChannelId,
    objects: [(u32, u32, u64); N],
) -> Vec<Event> {
    house.ask(writer, admit(channel), shown(objects))
}

/// Accepts the connection that the events bring, and returns the writers that the connector was told of.
fn accepted(
    house: &mut House,
    writer: (ClientId, DomainId),
    events: &[Event],
) -> Vec<(DomainId, bool)> {
    let channel = incoming(events);
    let accepts = |channel| accepts(house, writer, channel, [SOURCE, RING_LINES, BELL]);
    channel
        .map(accepts)
        .map_or_else(Vec::new, |events| opened(&events))
}

#[test]
fn a_subscriber_gets_the_ring_and_the_publisher_its_desk() {
    let mut both = both();
    // It waits for the name.
    let events = both.subscribe(1);
    assert!(events.is_empty(), "{events:?}");
    both.house.state.audit().expect("no contradiction");
    let events = both.publish();
    let channel = incoming(&events).expect("a subscriber");
    both.house.state.audit().expect("no contradiction");
    let shows = [SOURCE, RING_LINES, BELL];
    let events = accepts(&mut both.house, both.publisher, channel, shows);
    let opened = |e: &Event| matches!(e, Event::Opened { ring_lines, .. } if *ring_lines == RING);
    assert!(events.iter().any(opened), "{events:?}");
    let accepted = |e: &Event| matches!(e, Event::Accepted { .. });
    assert!(events.iter().any(accepted), "{events:?}");
    both.all_end();
}

#[test]
fn what_does_not_have_its_form_is_refused() {
    let mut both = both();
    both.publish();
    let wrong = another(1, false, &[]);
    let events = both
        .house
        .ask(both.subscriber.0, wrong, shown([SINK, BELL]));
    assert_eq!(code(&events), Some(RefusalCode::BadDescriptor));
    let events = both.subscribe(2);
    let channel = incoming(&events).expect("a subscriber");
    // Nor is it accepted as a channel.
    let plain = accept(channel);
    let events = both.house.ask(both.publisher.0, plain, shown([SOURCE]));
    assert_eq!(code(&events), Some(RefusalCode::State));
    for wrong in [
        [SOURCE, DESK, BELL],
        [SOURCE, RING_LINES, DESK],
        [SINK, RING_LINES, BELL],
    ] {
        let events = accepts(&mut both.house, both.publisher, channel, wrong);
        assert_eq!(code(&events), Some(RefusalCode::BadDescriptor));
        both.house.state.audit().expect("no contradiction");
    }
    let shows = [SOURCE, RING_LINES, BELL];
    let events = accepts(&mut both.house, both.publisher, channel, shows);
    assert_eq!(refused(&events), None);
    both.all_end();
}

#[test]
fn a_name_is_a_channels_or_a_topics() {
    let mut both = both();
    let (publisher, subscriber) = (both.publisher.0, both.subscriber.0);
    both.publish();
    let open = connect(1, "camera", Role::Sink, true);
    let of_kind = |available| Refusal {
        code: RefusalCode::Kind,
        asked: 0,
        available,
    };
    let events = both.house.ask(subscriber, open, shown([SINK]));
    assert_eq!(refused(&events), Some(of_kind(A_TOPIC)));
    both.house.ask(publisher, export("video", Role::Source), []);
    let wrong = Request::Subscribe {
        req: Req(3),
        name: "video".into(),
        lines: LINES,
        queue: false,
        have: Vec::new(),
    };
    let events = both.house.ask(subscriber, wrong, shown([SINK, DESK]));
    assert_eq!(refused(&events), Some(of_kind(0)));
    both.all_end();
}

/// A connect that waits is told of the kind when the name appears.
#[test]
fn a_name_that_appears_may_be_of_the_other_kind() {
    let mut both = both();
    both.subscribe(1);
    let export = export("camera", Role::Source);
    let events = both.house.ask(both.publisher.0, export, []);
    assert_eq!(code(&events), Some(RefusalCode::Kind));
    both.all_end();
}

/// A subscription that is given up, or whose process dies, leaves nothing.
#[test]
fn a_subscription_that_waits_can_end() {
    let mut both = both();
    both.subscribe(1);
    let cancel = Request::CancelConnect { req: Req(1) };
    let events = both.house.ask(both.subscriber.0, cancel, []);
    assert_eq!(code(&events), Some(RefusalCode::NoSuchName));
    both.subscribe(2);
    both.all_end();
}

/// A name that several domains share gives a reader each of them once, the late ones too.
#[test]
fn a_reader_gets_each_domain_that_shares_a_name() {
    let mut both = both();
    let (first, reader) = (both.publisher, both.subscriber);
    let house = &mut both.house;
    let (second, late) = (house.join(OWNER, None), house.join(OTHER, None));
    for (client, _) in [first, second] {
        is_exported(&house.ask(client, offer(false, true), []));
    }
    let events = subscribes(house, reader, another(1, false, &[]));
    assert_eq!(accepted(house, first, &events), [(first.1, true)]);
    let events = subscribes(house, reader, another(2, false, &[first.1]));
    assert_eq!(accepted(house, second, &events), [(second.1, true)]);
    let have = [first.1, second.1];
    let events = subscribes(house, reader, another(3, false, &have));
    assert_eq!(events, [], "it waits");
    let events = house.ask(late.0, offer(false, true), []);
    assert_eq!(accepted(house, late, &events), [(late.1, true)]);
    for (_, domain) in [second, late] {
        both.house.step(Input::ProcessDied { domain });
    }
    both.all_end();
}

/// All that have a name share it, or one has it for itself; a domain has it once; all mean the same by it.
#[test]
fn those_that_share_a_name_agree() {
    let mut both = both();
    let (first, second) = (both.publisher, both.subscriber);
    let house = &mut both.house;
    let third = house.join(OWNER, None);
    house.ask(first.0, offer(true, true), []);
    let domain = u64::from(first.1.0);
    let events = house.ask(second.0, offer(true, false), []);
    assert_eq!(numbers(&events), Some((RefusalCode::Shared, 0, domain)));
    let is_queue = Some((RefusalCode::Kind, 0, A_QUEUE));
    let events = house.ask(second.0, offer(false, true), []);
    assert_eq!(numbers(&events), is_queue);
    let events = house.ask(first.0, offer(true, true), []);
    assert_eq!(code(&events), Some(RefusalCode::NameTaken), "once");
    let events = subscribes(house, second, another(2, false, &[]));
    assert_eq!(numbers(&events), is_queue);
    let events = subscribes(house, first, another(2, true, &[]));
    assert_eq!(code(&events), Some(RefusalCode::OwnName));
    house.step(Input::ProcessDied { domain: first.1 });
    house.ask(second.0, offer(true, false), []);
    let domain = u64::from(second.1.0);
    let events = house.ask(third.0, offer(true, true), []);
    assert_eq!(numbers(&events), Some((RefusalCode::Shared, 1, domain)));
    house.step(Input::ProcessDied { domain: third.1 });
    both.all_end();
}

/// One user cannot take all places of a name.
#[test]
fn the_domains_that_share_a_name_are_bounded_for_each_user() {
    let mut house = house(200, Limits::default());
    let owners: Vec<_> = (0..49).map(|_| house.join(OWNER, None)).collect();
    for (at, (client, _)) in owners.iter().enumerate() {
        let events = house.ask(*client, offer(true, true), []);
        match at < 48 {
            true => is_exported(&events),
            false => assert_eq!(
                numbers(&events).map(|n| (n.0, n.2)),
                Some((RefusalCode::Limit, 48))
            ),
        }
    }
    let other = house.join(OTHER, None);
    is_exported(&house.ask(other.0, offer(true, true), []));
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
    let events = subscribes(house, reader, another(1, true, &[]));
    let channel = incoming(&events).expect("a connection");
    let all = [Sealed::OneWriter, Sealed::OneWriter, Sealed::Shared];
    for (last, seals, good) in [
        (BELL, [Sealed::OneWriter; 3], false),
        (CLAIMS, [Sealed::OneWriter; 3], false),
        (CLAIMS, all, true),
    ] {
        let objects = shown([SOURCE, RING_LINES, last]).into_iter().zip(seals);
        let events = house.ask_with(writer.0, admit(channel), objects);
        let expected = (!good).then_some(RefusalCode::BadDescriptor);
        assert_eq!(code(&events), expected, "{last:?} {seals:?}");
    }
    both.all_end();
}

/// A reader cannot have the manager search long lists.
#[test]
fn a_reader_names_a_bounded_number_of_writers() {
    let mut both = both();
    let have: Vec<_> = (0..129).map(DomainId).collect();
    let request = another(1, false, &have);
    let events = subscribes(&mut both.house, both.subscriber, request);
    let expected = Some((RefusalCode::BadArgument, 129, 128));
    assert_eq!(numbers(&events), expected);
    both.all_end();
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
        subscribes(house, reader, another(req, false, have))
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
    assert_eq!(code(&events), Some(RefusalCode::PeerGone), "{events:?}");
    let is_told =
        |e: &Event| matches!(e, Event::PeerGone { channel: gone, .. } if *gone == channel);
    assert!(events.iter().any(is_told), "{events:?}");
    house.state.audit().expect("no contradiction");
    let events = ask(house, 2, &[]);
    assert_eq!(accepted(house, second, &events), [(second.1, true)]);
    // One that the reader has does not count: it waits for the silent one.
    let asked = ask(house, 3, &[second.1]);
    assert!(incoming(&asked).is_some());
    house.now += Duration::from_secs(1);
    assert_eq!(house.tick(), []);
    // The silent one is asked last until it answers. Then another reader finds that the one does not fit, and comes to the other.
    let other = house.join(OTHER, None);
    for (req, writer) in [(1, second), (2, second), (3, silent), (4, second)] {
        if req == 3 {
            assert_eq!(accepted(house, silent, &asked), [(silent.1, true)]);
        }
        let events = subscribes(house, other, another(req, false, &[]));
        assert_eq!(accepted(house, writer, &events), [(writer.1, true)]);
    }
    for (_, domain) in [second, other] {
        both.house.step(Input::ProcessDied { domain });
    }
    both.all_end();
}

/// A domain that has a name reads it never, in whatever order those that share it began.
#[test]
fn a_shared_name_of_ones_own_is_refused_first() {
    let mut both = both();
    let (first, second) = (both.publisher, both.subscriber);
    for (client, _) in [first, second] {
        both.house.ask(client, offer(false, true), []);
    }
    for domain in [first, second] {
        let events = subscribes(&mut both.house, domain, another(2, false, &[]));
        assert_eq!(code(&events), Some(RefusalCode::OwnName));
    }
    both.all_end();
}
