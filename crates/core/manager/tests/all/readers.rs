//! The chunks that a reader is shown, and the cost for the writer of a reader that takes nothing, misses some or asks
//! again and again.

use crate::ask::{CHUNK, numbers};
use crate::house::House;
use crate::pool::{OWNER, Reader, Writer, chunks, house, ready};
use tranship_manager::Limits;
use tranship_manager::state::Input;
use tranship_proto::{Event, RefusalCode, Req, Request};

/// Makes a writer with `windows` chunks, all granted, and its reader.
fn set(windows: u32) -> (House, Writer, Reader) {
    let mut house = house(100, Limits::default());
    let writer = Writer::join(&mut house, OWNER, windows.into());
    let reader = Reader::join(&mut house, OWNER, &writer);
    assert_eq!(writer.grant(&mut house, windows).0, Ok(windows));
    (house, writer, reader)
}

fn is_resynced(events: &[Event]) -> bool {
    let over = |e: &Event| matches!(e, Event::Resynced { .. });
    events.iter().any(over)
}

/// The writer continues as soon as its reader has the next chunks, or is known to take nothing.
#[test]
fn a_writer_waits_for_who_takes_and_for_nobody_else() {
    let (mut house, writer, reader) = set(4);
    let client = reader.client;
    house.deaf.insert(client);
    let (answer, events) = writer.try_show(&mut house, 0, 1);
    assert_eq!((answer, chunks(&events)), (None, vec![(0, 1)]));
    let events = house.step(Input::Sent { client });
    assert!(matches!(events[..], [Event::ChunksReady { .. }]));
    // It does not take the next one; then no other is even queued for it.
    let (answer, events) = writer.try_show(&mut house, 1, 2);
    assert_eq!((answer, chunks(&events)), (None, vec![(1, 2)]));
    let events = house.step(Input::Blocked { client });
    assert!(matches!(events[..], [Event::ChunksReady { .. }]));
    let (answer, events) = writer.try_show(&mut house, 2, 3);
    assert_eq!((answer, chunks(&events)), (Some(Ok(())), vec![]));
}

/// It is answered once, when the last of its chunks is in place or returned.
#[test]
fn a_writer_hears_once_of_all_that_it_has_shown() {
    let (mut house, writer, reader) = set(4);
    let client = reader.client;
    house.deaf.insert(client);
    let keys = [(0, 1), (1, 2), (2, 3)];
    let (answer, events) = writer.try_show_all(&mut house, &keys, 3);
    assert_eq!((answer, chunks(&events)), (None, keys.to_vec()));
    assert_eq!(ready(&house.step(Input::Sent { client })), None);
    assert_eq!(ready(&house.step(Input::Sent { client })), None);
    let events = house.step(Input::Sent { client });
    assert_eq!(ready(&events), Some(Ok(3)));
    let (answer, _) = writer.try_show_all(&mut house, &[(3, 4)], 1);
    assert_eq!(answer, None);
    let events = writer.give_back(&mut house, 3, 4);
    assert_eq!(ready(&events), Some(Ok(1)));
    house.state.audit().expect("no contradiction");
}

/// As many are taken as a turn has time for. All are granted, so the writer only has to show the rest again.
#[test]
fn where_many_read_what_is_shown_is_taken_in_pieces() {
    const READERS: usize = 16;
    let mut house = house(100, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 12);
    let _readers: Vec<Reader> = (0..READERS)
        .map(|_| Reader::join(&mut house, OWNER, &writer))
        .collect();
    let mut keys: Vec<(u32, u32)> = (0..10).map(|index| (index, index + 1)).collect();
    let mut taken = Vec::new();
    while !keys.is_empty() {
        let least = u32::try_from(keys.len()).expect("few");
        let (answer, events) = writer.try_show_all(&mut house, &keys, least);
        let n = answer.expect("an answer").expect("room");
        assert_eq!(chunks(&events).len(), READERS * n as usize);
        assert_eq!(house.state.memory(), (10 * CHUNK, 0));
        keys.drain(..n as usize);
        taken.push(n);
    }
    assert_eq!(taken, [4, 4, 2]);
    house.state.audit().expect("no contradiction");
}

/// A reader that was too late for a chunk is sent no later ones before it asks, and then all.
#[test]
fn who_missed_a_chunk_asks_for_all() {
    let (mut house, writer, reader) = set(4);
    let client = reader.client;
    house.step(Input::Blocked { client });
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    // The reader takes messages again: it gets them at once, and so does a waiting writer.
    house.ask(client, Request::Stat { req: Req(7) }, []);
    let (answer, events) = writer.try_show(&mut house, 1, 2);
    assert_eq!((answer, chunks(&events)), (Some(Ok(())), vec![]));
    let events = reader.resync(&mut house, 8);
    assert_eq!(chunks(&events), [(0, 1), (1, 2)]);
    assert!(is_resynced(&events));
    let (_, events) = writer.try_show(&mut house, 2, 3);
    assert_eq!(chunks(&events), [(2, 3)]);
    house.state.audit().expect("no contradiction");
}

/// A reader that unmapped a chunk which its writer still uses asks for all.
#[test]
fn who_gave_up_a_chunk_asks_for_all() {
    let (mut house, writer, reader) = set(4);
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    reader.unmapped(&mut house, 0, 1);
    let (answer, events) = writer.try_show(&mut house, 1, 2);
    assert_eq!((answer, chunks(&events)), (Some(Ok(())), vec![]));
    assert_eq!(chunks(&reader.resync(&mut house, 8)), [(0, 1), (1, 2)]);
}

#[test]
fn questions_that_wait_are_limited() {
    let (mut house, writer, reader) = set(4);
    let client = reader.client;
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    house.deaf.insert(client);
    house.step(Input::Blocked { client });
    for req in 0..16 {
        let events = reader.resync(&mut house, req);
        assert!(events.is_empty(), "{req}: {events:?}");
    }
    let events = reader.resync(&mut house, 16);
    assert_eq!(
        numbers(&events).map(|n| (n.0, n.2)),
        Some((RefusalCode::Limit, 16))
    );
}

#[test]
fn who_takes_what_it_is_shown_may_ask_for_ever() {
    let (mut house, writer, reader) = set(4);
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    for req in 0..1000 {
        let events = reader.resync(&mut house, req);
        assert_eq!(chunks(&events), [(0, 1)], "{req}");
        assert!(is_resynced(&events), "{req}");
    }
}

/// It is shown twice as many chunks as the pool has places, and the next one when it has unmapped one, however it asks.
#[test]
fn who_never_unmaps_is_shown_no_more() {
    let (mut house, writer, reader) = set(2);
    for serial in 1..=4 {
        let (answer, events) = writer.try_show(&mut house, 0, serial);
        assert_eq!((answer, chunks(&events)), (Some(Ok(())), vec![(0, serial)]));
        writer.give_back(&mut house, 0, serial);
        assert_eq!(writer.grant(&mut house, 1).0, Ok(1));
    }
    let (answer, events) = writer.try_show(&mut house, 0, 5);
    assert_eq!((answer, chunks(&events)), (Some(Ok(())), vec![]));
    assert!(reader.resync(&mut house, 8).is_empty());
    let events = reader.unmapped(&mut house, 0, 1);
    assert_eq!(chunks(&events), [(0, 5)]);
    assert!(is_resynced(&events));
}
