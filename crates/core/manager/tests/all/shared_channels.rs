//! Names of channels that several domains share: a connector gets each of them once.

use crate::ask::*;
use crate::house::House;
use crate::pool::{OTHER, OWNER, house};
use std::time::Duration;
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Input};
use tranship_proto::{ChannelId, DomainId, Event, RefusalCode, Req, Request, Role};

type Client = (ClientId, DomainId);

fn offer(house: &mut House, client: Client) -> Vec<Event> {
    let request = Request::ExportShared {
        req: Req(1),
        name: "resize".into(),
        role: Role::Sink,
    };
    house.ask(client.0, request, [])
}

fn besides(house: &mut House, client: Client, req: u32, have: &[DomainId]) -> Vec<Event> {
    let request = Request::ConnectBesides {
        req: Req(req),
        name: "resize".into(),
        role: Role::Source,
        lines: LINES,
        have: have.to_vec(),
    };
    house.ask(client.0, request, half(Role::Source))
}

fn incoming(events: &[Event]) -> Option<ChannelId> {
    let (channel, role, topic) = crate::ask::incoming(events)?;
    (role == Role::Sink && !topic).then_some(channel)
}

/// Accepts the connection that the events bring: the domain to which the connector is told that it is connected.
fn accepted(house: &mut House, by: Client, events: &[Event]) -> Option<(DomainId, bool)> {
    let request = accept(incoming(events)?);
    let events = house.ask(by.0, request, half(Role::Sink));
    opened(&events).first().copied()
}

/// Returns a house with two domains that share the name, and one that connects.
fn three() -> (House, [Client; 3]) {
    let mut house = house(100, Limits::default());
    let all = [OWNER, OWNER, OTHER].map(|user| house.join(user, None));
    for client in &all[..2] {
        is_exported(&offer(&mut house, *client));
    }
    (house, all)
}

fn all_end(mut house: House, all: impl IntoIterator<Item = Client>) {
    for (_, domain) in all {
        house.state.audit().expect("no contradiction");
        house.step(Input::ProcessDied { domain });
    }
    nothing_is_left(&house);
}

#[test]
fn a_connector_gets_each_domain_once_the_late_one_too() {
    let (mut house, [first, second, asks]) = three();
    let events = besides(&mut house, asks, 1, &[]);
    assert_eq!(accepted(&mut house, first, &events), Some((first.1, true)));
    let events = besides(&mut house, asks, 2, &[first.1]);
    assert_eq!(
        accepted(&mut house, second, &events),
        Some((second.1, true))
    );
    let events = besides(&mut house, asks, 3, &[first.1, second.1]);
    assert_eq!(events, [], "it waits");
    let late = house.join(OTHER, None);
    let events = offer(&mut house, late);
    assert_eq!(accepted(&mut house, late, &events), Some((late.1, true)));
    all_end(house, [first, second, asks, late]);
}

/// A connect without a list is one of the name's too, and goes to the domain that was asked longest ago.
#[test]
fn a_plain_connect_goes_to_one_of_them() {
    let (mut house, [first, second, asks]) = three();
    for (req, by) in [(1, first), (2, second), (3, first)] {
        let request = connect(req, "resize", Role::Source, false);
        let events = house.ask(asks.0, request, half(Role::Source));
        assert_eq!(accepted(&mut house, by, &events), Some((by.1, true)));
    }
    all_end(house, [first, second, asks]);
}

/// A connect besides all waits for one more. It can be given up, and ends with its process.
#[test]
fn a_connect_that_waits_for_one_more_can_end() {
    let (mut house, [first, second, asks]) = three();
    let have = [first.1, second.1];
    assert_eq!(besides(&mut house, asks, 1, &have), []);
    let events = house.ask(asks.0, Request::CancelConnect { req: Req(1) }, []);
    assert_eq!(code(&events), Some(RefusalCode::NoSuchName));
    assert_eq!(besides(&mut house, asks, 2, &have), []);
    all_end(house, [asks, first, second]);
}

#[test]
fn what_may_not_be_is_refused() {
    let (mut house, [first, second, asks]) = three();
    let events = besides(&mut house, first, 5, &[second.1]);
    assert_eq!(code(&events), Some(RefusalCode::OwnName));
    let events = offer(&mut house, first);
    assert_eq!(code(&events), Some(RefusalCode::NameTaken));
    let events = house.ask(asks.0, export("resize", Role::Sink), []);
    assert_eq!(code(&events), Some(RefusalCode::Shared));
    let wrong = Request::ConnectBesides {
        req: Req(7),
        name: "resize".into(),
        role: Role::Sink,
        lines: LINES,
        have: Vec::new(),
    };
    let events = house.ask(asks.0, wrong, half(Role::Sink));
    assert_eq!(code(&events), Some(RefusalCode::Role));
    let many: Vec<_> = (0..129).map(DomainId).collect();
    let events = besides(&mut house, asks, 8, &many);
    assert_eq!(code(&events), Some(RefusalCode::BadArgument));
    all_end(house, [first, second, asks]);
}

/// A domain that leaves one connection unanswered is asked last by all, until it answers.
#[test]
fn a_silent_domain_costs_its_patience_once() {
    let (mut house, [silent, answers, asks]) = three();
    let events = besides(&mut house, asks, 1, &[]);
    assert!(incoming(&events).is_some());
    house.now += Duration::from_millis(250);
    let events = house.tick();
    assert_eq!(code(&events), Some(RefusalCode::PeerGone));
    for req in 2..6 {
        let events = besides(&mut house, asks, req, &[]);
        let by = accepted(&mut house, answers, &events);
        assert_eq!(by, Some((answers.1, true)));
    }
    // All that is left is the silent one. It answers, and has its turns again.
    let events = besides(&mut house, asks, 6, &[answers.1]);
    assert_eq!(
        accepted(&mut house, silent, &events),
        Some((silent.1, true))
    );
    for (req, by) in [(7, answers), (8, silent)] {
        let events = besides(&mut house, asks, req, &[]);
        assert_eq!(accepted(&mut house, by, &events), Some((by.1, true)));
    }
    all_end(house, [silent, answers, asks]);
}
