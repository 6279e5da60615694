//! The end of a process: its own objects, and the buffers of others that it held.

use crate::ask::*;
use crate::house::House;
use crate::pool::{OTHER, OWNER, Reader, Writer, house};
use tranship_manager::Limits;
use tranship_manager::state::Input;
use tranship_proto::{ChannelId, DomainId, Event, Request, Role};

fn nobody_is_left(house: &House) {
    assert_eq!(house.state.population(), [0; 4]);
    assert_eq!(house.state.users(), 0);
    nothing_is_left(house);
}

#[test]
fn names_heaps_and_questions() {
    let mut house = house(100, Limits::default());
    let (client, domain) = house.join(OTHER, None);
    house.ask(client, export("mine", Role::Sink), []);
    let waits = connect(2, "nobody's", Role::Source, true);
    house.ask(client, waits, half(Role::Source));
    house.ask(client, create_heap(CHUNK, CHUNK), []);
    assert_eq!(house.state.memory(), (CHUNK, 0));
    house.step(Input::ProcessDied { domain });
    nobody_is_left(&house);
    let (client, _) = house.join(OTHER, None);
    is_exported(&house.ask(client, export("mine", Role::Sink), []));
}

#[test]
fn claims() {
    let mut house = house(100, Limits::default());
    let (client, domain) = house.join(OTHER, Some(DomainId(7)));
    let claim = claim_channel(ChannelId(9), Role::Source, DomainId(8));
    let events = house.ask(client, claim, half(Role::Source));
    assert!(events.is_empty(), "its peer is awaited: {events:?}");
    house.step(Input::ProcessDied { domain });
    nobody_is_left(&house);
}

/// A chunk that its writer has returned is free as soon as the last process that mapped it has ended.
#[test]
fn what_a_reader_held() {
    let mut house = house(1, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 1);
    let reader = Reader::join(&mut house, OTHER, &writer);
    assert_eq!(writer.grant(&mut house, 1).0, Ok(1));
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    writer.give_back(&mut house, 0, 1);
    assert_eq!(house.state.memory(), (0, CHUNK));
    let domain = reader.id;
    let events = house.step(Input::ProcessDied { domain });
    let left = |e: &Event| matches!(e, Event::ReaderLeft { domain: d, .. } if *d == domain);
    assert!(events.iter().any(left), "{events:?}");
    assert_eq!(house.state.memory(), (0, 0));
    assert_eq!(writer.grant(&mut house, 1).0, Ok(1));
    house.state.audit().expect("no contradiction");
}

/// Its readers keep their buffers, and the rest is free.
#[test]
fn what_a_dead_writer_has_left() {
    let mut house = house(3, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 3);
    let _reader = Reader::join(&mut house, OTHER, &writer);
    let keys = [(0, 1), (1, 2), (2, 3)];
    assert_eq!(writer.show_all(&mut house, &keys, 3), Ok(3));
    house.alive = vec![(1, 1)];
    let events = house.ask(writer.client, Request::Goodbye, []);
    let gone = |e: &Event| match e {
        Event::ChunkGone { index, .. } => Some(*index),
        _ => None,
    };
    let gone: Vec<u32> = events.iter().filter_map(gone).collect();
    assert_eq!(gone, [0, 2]);
    house.state.audit().expect("no contradiction");
}

/// As long as a reader holds some of its memory, that memory is counted under its id. A domain that took the id would
/// be charged less than it has.
#[test]
fn the_id_of_a_dead_writer_is_nobodys() {
    let mut house = house(3, Limits::default());
    let (client, id) = house.join(OWNER, None);
    let writer = Writer::with_pool(&mut house, client, 3);
    let _reader = Reader::join(&mut house, OTHER, &writer);
    let keys = [(0, 1), (1, 2), (2, 3)];
    assert_eq!(writer.show_all(&mut house, &keys, 3), Ok(3));
    house.alive = vec![(1, 1)];
    house.ask(client, Request::Goodbye, []);
    assert_ne!(house.join(OTHER, Some(id)).1, id);
    house.state.audit().expect("no contradiction");
}
