//! Names of topics: what publisher and subscriber show beside their halves, and what is refused.

#[path = "common/house.rs"]
mod house;
#[path = "common/pool.rs"]
mod pool;

use house::House;
use pool::{OTHER, OWNER, house};
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Header, Input};
use tranship_proto::{
    A_TOPIC, ChannelId, DomainId, Event, Refusal, RefusalCode, Req, Request, Role,
};

const LINES: u32 = 4;
const RING: u32 = 16;
/// Kinds of `docs/format.md`, with the lengths that these counts have.
const SOURCE: (u32, u32, u64) = (6, LINES, 8192);
const SINK: (u32, u32, u64) = (7, LINES, 8192);
const RING_LINES: (u32, u32, u64) = (11, RING, 8192);
const DESK: (u32, u32, u64) = (12, 1, 4096);
const BELL: (u32, u32, u64) = (13, 1, 4096);

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
    let name = "camera".into();
    house.ask(client, Request::Publish { req: Req(1), name }, [])
}

fn subscribe(req: u32) -> Request {
    Request::Subscribe {
        req: Req(req),
        name: "camera".into(),
        lines: LINES,
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
