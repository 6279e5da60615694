//! The end of a domain with many objects continues in pieces. Others are served between the pieces, and each of its
//! objects ends at last.

use crate::house::{House, Object};
use tranship_manager::Limits;
use tranship_manager::state::{ClientId, Header};
use tranship_proto::{ChannelId, DomainId, Event, Req, Request, Role};

const CHANNELS: usize = 1000;
/// The most ends in one step.
const PIECE: usize = 128;
const LINES: u32 = 2;
const LINK_SOURCE: u32 = 6;
const LINK_SINK: u32 = 7;
const PROCESS: u64 = 1 << 40;

fn half(kind: u32) -> Option<Object> {
    let header = Header {
        kind,
        count: LINES,
        ..Header::default()
    };
    Some((header, 8192))
}

/// Makes channels from `source` to a name of `sink`, which accepts them all.
fn channels(house: &mut House, source: ClientId, sink: ClientId, name: &str) -> Vec<ChannelId> {
    let export = Request::Export {
        req: Req(1),
        name: name.into(),
        role: Role::Sink,
    };
    house.ask(sink, export, None);
    let one = |_| {
        let connect = Request::Connect {
            req: Req(2),
            name: name.into(),
            role: Role::Source,
            lines: LINES,
            wait: false,
        };
        let events = house.ask(source, connect, half(LINK_SOURCE));
        let [Event::Incoming { channel, .. }] = events[..] else {
            panic!("{events:?}");
        };
        let accept = Request::Accept {
            req: Req(3),
            channel,
            lines: LINES,
        };
        house.ask(sink, accept, half(LINK_SINK));
        channel
    };
    (0..CHANNELS).map(one).collect()
}

fn gone(events: &[Event]) -> usize {
    let gone = |e: &&Event| matches!(e, Event::PeerGone { .. });
    events.iter().filter(gone).count()
}

/// Makes a domain that has its channels and says goodbye; returns how many of them ended with that.
fn ended(house: &mut House) -> (DomainId, usize) {
    let (source, _) = house.join(1, None);
    let (sink, id) = house.join_as(2, None, PROCESS);
    channels(house, source, sink, "crowd");
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
        let name = "other".to_owned();
        let role = Role::Sink;
        let req = Req(1);
        let export = Request::Export { req, name, role };
        let events = house.ask(client, export, None);
        assert!(matches!(events[..], [Event::Exported { .. }]), "{events:?}");
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
        (sink, channels(&mut house, source, sink, name))
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
