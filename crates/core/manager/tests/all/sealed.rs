//! Large buffers of pools of level `none`: chunks that no reader is shown before they are sealed against all writing.

use crate::ask::{CHUNK, show_chunks};
use crate::house::House;
use crate::pool::{OWNER, Reader, Writer, chunks, house, ready};
use tranship_manager::Limits;
use tranship_manager::state::{Header, Input, Sealed};
use tranship_proto::{Event, RefusalCode, Trust};

use Sealed::{No, Nobody, OneWriter, Open, Shared};

fn set(trust: Trust) -> (House, Writer) {
    let mut house = house(100, Limits::default());
    let (client, _) = house.join(OWNER, None);
    let writer = Writer::with_pool_of(&mut house, client, 8, trust);
    (house, writer)
}

type Shown = (Option<Result<u32, RefusalCode>>, Vec<(u32, u32)>);

/// Returns the answer, if there is one yet, and the chunks that readers are shown.
fn show(house: &mut House, writer: &Writer, keys: &[(u32, u32)], sealed: Sealed) -> Shown {
    let request = show_chunks(writer.pool, keys, 1);
    let objects = keys.iter().map(|_| ((Header::default(), CHUNK), sealed));
    let events = house.ask_with(writer.client, request, objects);
    house.state.audit().expect("no contradiction");
    (ready(&events), chunks(&events))
}

#[test]
fn readers_are_shown_a_large_buffer_when_nobody_can_write_it() {
    let (mut house, writer) = set(Trust::None);
    let reader = Reader::join(&mut house, OWNER, &writer);
    let keys = [(6, 1), (7, 2)];
    let asked = show(&mut house, &writer, &keys, Open);
    assert_eq!(asked, (Some(Ok(2)), vec![]));
    // The chunk is granted, charged and counted from the beginning. A reader that asks for all, or joins, gets none.
    assert_eq!(house.state.memory(), (2 * CHUNK, 0));
    assert_eq!(chunks(&reader.resync(&mut house, 8)), []);
    let second = Reader::join(&mut house, OWNER, &writer);
    assert_eq!(chunks(&second.resync(&mut house, 8)), []);
    let held = house.state.held_tokens().len();
    let asked = show(&mut house, &writer, &keys, Nobody);
    let twice = [(6, 1), (6, 1), (7, 2), (7, 2)];
    assert_eq!(asked, (Some(Ok(2)), twice.to_vec()));
    assert_eq!(house.state.memory(), (2 * CHUNK, 0));
    assert_eq!(
        house.state.held_tokens().len(),
        held,
        "instead of the first"
    );
    // Once more, as by a writer that has lost the answer.
    let asked = show(&mut house, &writer, &keys, Nobody);
    assert_eq!(asked, (Some(Ok(2)), vec![]));
    assert_eq!(house.state.held_tokens().len(), held);
    let third = Reader::join(&mut house, OWNER, &writer);
    assert_eq!(chunks(&third.resync(&mut house, 8)), keys);
    // It goes like any other chunk.
    let events = writer.give_back(&mut house, 6, 1);
    let gone = |e: &&Event| matches!(e, Event::ChunkGone { index: 6, .. });
    assert_eq!(events.iter().filter(gone).count(), 3);
    assert_eq!(house.state.memory(), (CHUNK, CHUNK));
    for reader in [&reader, &second, &third] {
        reader.unmapped(&mut house, 6, 1);
    }
    assert_eq!(house.state.memory(), (CHUNK, 0));
    house.state.audit().expect("no contradiction");
}

#[test]
fn nothing_else_is_taken_for_one() {
    let (mut house, writer) = set(Trust::None);
    let _reader = Reader::join(&mut house, OWNER, &writer);
    let bad = (Some(Err(RefusalCode::BadDescriptor)), vec![]);
    for sealed in [Shared, No] {
        assert_eq!(show(&mut house, &writer, &[(0, 1)], sealed), bad);
    }
    let asked = show(&mut house, &writer, &[(0, 1), (1, 2)], Open);
    assert_eq!(asked, (Some(Ok(2)), vec![]));
    let held = house.state.held_tokens();
    for sealed in [Open, OneWriter, Shared, No] {
        assert_eq!(
            show(&mut house, &writer, &[(0, 1)], sealed),
            bad,
            "{sealed:?}"
        );
    }
    // Of another length, of another serial, twice, and together with a new one.
    let request = show_chunks(writer.pool, &[(0, 1)], 1);
    let half = ((Header::default(), CHUNK / 2), Nobody);
    let events = house.ask_with(writer.client, request, [half]);
    assert_eq!((ready(&events), chunks(&events)), bad);
    let other = (Some(Err(RefusalCode::State)), vec![]);
    for keys in [
        &[(0, 1), (1, 3)][..],
        &[(0, 1), (0, 1)],
        &[(0, 1), (2, 3)],
        &[(0, 3)],
    ] {
        assert_eq!(show(&mut house, &writer, keys, Nobody), other, "{keys:?}");
    }
    assert_eq!(house.state.held_tokens(), held, "no descriptor is kept");
    let many = [(); 17].map(|()| (0, 1));
    assert_eq!(show(&mut house, &writer, &many, Nobody), other);
    // And those are still good.
    let asked = show(&mut house, &writer, &[(0, 1), (1, 2)], Nobody);
    assert_eq!(asked, (Some(Ok(2)), vec![(0, 1), (1, 2)]));
}

#[test]
fn other_levels_have_none() {
    for trust in [Trust::Producer, Trust::Half, Trust::Full] {
        let (mut house, writer) = set(trust);
        let bad = (Some(Err(RefusalCode::BadDescriptor)), vec![]);
        for sealed in [Open, Nobody] {
            assert_eq!(show(&mut house, &writer, &[(0, 1)], sealed), bad);
        }
    }
    // Existing chunks are not shown again.
    let (mut house, writer) = set(Trust::Producer);
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    let again = show(&mut house, &writer, &[(0, 1)], Nobody);
    assert_eq!(again, (Some(Err(RefusalCode::BadArgument)), vec![]));
}

#[test]
fn with_its_writer_goes_what_nobody_was_shown() {
    let mut house = house(100, Limits::default());
    let (client, domain) = house.join(OWNER, None);
    let writer = Writer::with_pool_of(&mut house, client, 8, Trust::None);
    let _reader = Reader::join(&mut house, OWNER, &writer);
    assert_eq!(
        show(&mut house, &writer, &[(0, 1), (1, 2)], Open).0,
        Some(Ok(2))
    );
    assert_eq!(show(&mut house, &writer, &[(1, 2)], Nobody).0, Some(Ok(1)));
    house.alive = vec![(0, 1), (1, 1)];
    house.step(Input::ProcessDied { domain });
    assert_eq!(house.state.memory(), (CHUNK, 0), "what the reader has");
    house.state.audit().expect("no contradiction");
}

/// The writer is told once, when all requested chunks are in place.
#[test]
fn who_asks_again_waits_for_the_readers_as_who_asked_before() {
    let (mut house, writer) = set(Trust::None);
    let reader = Reader::join(&mut house, OWNER, &writer);
    assert_eq!(show(&mut house, &writer, &[(0, 1)], Open).0, Some(Ok(1)));
    let client = reader.client;
    house.deaf.insert(client);
    assert_eq!(
        show(&mut house, &writer, &[(0, 1)], Nobody),
        (None, vec![(0, 1)])
    );
    // The first of the two is answered meanwhile.
    assert_eq!(
        show(&mut house, &writer, &[(0, 1)], Nobody),
        (Some(Ok(1)), vec![])
    );
    let events = house.step(Input::Sent { client });
    assert_eq!(ready(&events), Some(Ok(1)));
    house.state.audit().expect("no contradiction");
}
