//! The end of a domain with many objects continues in pieces. Others are served between the pieces, and each of its
//! objects ends at last.

use crate::ask::*;
use crate::house::House;
use tranship_manager::Limits;
use tranship_proto::{DomainId, Event, Req, Request, Role};

const CHANNELS: u32 = 1000;
/// The most ends in one step.
const PIECE: u32 = 128;
const PROCESS: u64 = 1 << 40;

fn gone(events: &[Event]) -> u32 {
    let gone = |e: &Event| u32::from(matches!(e, Event::PeerGone { .. }));
    events.iter().map(gone).sum()
}

/// Makes a domain that has its channels and says goodbye; returns how many of them ended with that.
fn ended(house: &mut House) -> (DomainId, u32) {
    let (source, _) = house.join(1, None);
    let (sink, id) = house.join_as(2, None, PROCESS);
    channels(house, source, sink, "crowd", CHANNELS);
    let ended = gone(&house.ask(sink, Request::Goodbye, None));
    (id, ended)
}

#[test]
fn each_step_is_short_and_all_of_it_comes() {
    let mut house = House::new(Limits::default(), 1 << 30);
    let (_, mut all) = ended(&mut house);
    assert!(all <= PIECE, "{all} channels at once");
    while all < CHANNELS {
        assert_eq!(house.state.deadline(), Some(house.now), "after {all}");
        let piece = gone(&house.tick());
        assert!(piece > 0 && piece <= PIECE, "{piece} after {all}");
        all += piece;
        // A client that comes meanwhile is served, and its objects end with it.
        let (client, _) = house.join(3, None);
        is_exported(&house.ask(client, export("other", Role::Sink), []));
        house.ask(client, Request::Goodbye, None);
    }
    assert_eq!(all, CHANNELS);
    house.state.audit().unwrap();
}

#[test]
fn nobody_comes_back_as_who_is_ending() {
    let mut house = House::new(Limits::default(), 1 << 30);
    let (id, _) = ended(&mut house);
    let (again, new) = house.join_as(2, Some(id), PROCESS);
    assert_ne!(new, id);
    while house.state.deadline() == Some(house.now) {
        house.tick();
    }
    // It ended alone.
    let req = Req(9);
    let events = house.ask(again, Request::Stat { req }, None);
    let others = |e: &&Event| !matches!(e, Event::Stat { .. } | Event::StatEnd { .. });
    assert_eq!(events.iter().find(others), None);
    house.state.audit().unwrap();
}

#[test]
fn ends_take_turns() {
    let mut house = House::new(Limits::default(), 1 << 30);
    let (source, _) = house.join(1, None);
    let sinks = ["one", "two"].map(|name| {
        let (sink, _) = house.join(2, None);
        (sink, channels(&mut house, source, sink, name, CHANNELS))
    });
    for (sink, _) in &sinks {
        house.ask(*sink, Request::Goodbye, None);
    }
    for _ in 0..4 {
        let both = [house.tick(), house.tick()];
        let of = both.map(|events| {
            let ended = events.iter().filter_map(|event| match event {
                Event::PeerGone { channel, .. } => Some(*channel),
                _ => None,
            });
            ended.collect::<Vec<_>>()
        });
        for (_, channels) in &sinks {
            let turns = of
                .iter()
                .filter(|of| of.iter().any(|c| channels.contains(c)));
            assert_eq!(turns.count(), 1);
        }
    }
}
