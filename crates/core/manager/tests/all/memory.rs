//! Grants, their domains and durations, and the chunks that are shown of them.

use crate::ask::*;
use crate::pool::{OTHER, OWNER, Reader, Writer, house, ready};
use std::time::Duration;
use tranship_manager::Limits;
use tranship_manager::state::{Header, Input};
use tranship_proto::{Event, RefusalCode, Req, Request};

#[test]
fn a_domain_has_no_more_than_one_domain_may() {
    let limits = Limits {
        domain_memory: Some(3 * CHUNK),
        ..Limits::default()
    };
    let mut house = house(100, limits);
    let first = Writer::join(&mut house, OWNER, 8);
    let second = Writer::with_pool(&mut house, first.client, 8);
    assert_eq!(first.grant(&mut house, 2).0, Ok(2));
    assert_eq!(second.grant(&mut house, 2).0, Ok(1));
    assert_eq!(second.grant(&mut house, 1).0, Err(RefusalCode::Total));
    let other = Writer::join(&mut house, OWNER, 8);
    assert_eq!(other.grant(&mut house, 4).0, Ok(3), "each domain");
}

#[test]
fn what_was_granted_and_not_used_for_a_while_is_taken_back() {
    let mut house = house(4, Limits::default());
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, 4));
    assert_eq!(one.grant(&mut house, 4).0, Ok(4));
    assert_eq!(one.show(&mut house, 0, 1), Ok(()));
    let refused = Err(RefusalCode::Total);
    assert_eq!(
        two.grant(&mut house, 1).0,
        refused,
        "it was granted just now"
    );
    house.now += Duration::from_secs(3);
    assert_eq!(two.grant(&mut house, 4).0, Ok(3), "what is shown is used");
    assert_eq!(one.show(&mut house, 1, 2), Err(RefusalCode::Total));
}

/// One message is enough: as many chunks are taken as can be granted.
#[test]
fn what_is_shown_is_granted_with_it() {
    let mut house = house(6, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 8);
    let other = Writer::join(&mut house, OWNER, 8);
    let keys = |from: u32| [from, from + 1, from + 2].map(|index| (index, index + 1));
    assert_eq!(writer.show_all(&mut house, &keys(0), 2), Ok(3));
    assert_eq!(house.state.memory(), (3 * CHUNK, 0));
    assert_eq!(other.show(&mut house, 0, 1), Ok(()));
    assert_eq!(writer.show_all(&mut house, &keys(3), 1), Ok(2));
    let refused = Err(RefusalCode::Total);
    assert_eq!(other.show(&mut house, 1, 2), refused);
    other.give_back(&mut house, 0, 1);
    // The third chunk, which is as good as a new one.
    assert_eq!(writer.show(&mut house, 5, 6), Ok(()));
    assert_eq!(house.state.memory(), (6 * CHUNK, 0));
    let pool = writer.pool;
    house.step(Input::SetQuota {
        pool,
        quota_bytes: 6 * CHUNK,
    });
    let refused = Err(RefusalCode::Quota);
    assert_eq!(writer.show(&mut house, 6, 7), refused);
    house.state.audit().expect("no contradiction");
}

#[test]
fn if_less_goes_than_is_of_use_none_of_it_does() {
    let mut house = house(6, Limits::default());
    let [writer, other] = [(); 2].map(|()| Writer::join(&mut house, OWNER, 8));
    assert_eq!(other.show_all(&mut house, &[(0, 1), (1, 2)], 2), Ok(2));
    let others = house.state.held_tokens();
    let keys = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)];
    let refused = Err(RefusalCode::Total);
    assert_eq!(writer.show_all(&mut house, &keys, 5), refused);
    assert_eq!(house.state.memory(), (2 * CHUNK, 0));
    assert_eq!(house.state.held_tokens(), others, "no descriptor is kept");
    assert_eq!(writer.show_all(&mut house, &keys, 4), Ok(4));
}

#[test]
fn what_was_granted_before_is_not_granted_again() {
    let mut house = house(3, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 8);
    assert_eq!(writer.grant(&mut house, 2).0, Ok(2));
    let keys = [(0, 1), (1, 2), (2, 3)];
    assert_eq!(writer.show_all(&mut house, &keys, 3), Ok(3));
    assert_eq!(house.state.memory(), (3 * CHUNK, 0));
    // Existing chunks stay, even if nothing more can be granted.
    writer.give_back(&mut house, 2, 3);
    assert_eq!(writer.grant(&mut house, 1).0, Ok(1));
    let keys = [(3, 4), (4, 5)];
    let refused = Err(RefusalCode::Quota);
    assert_eq!(writer.show_all(&mut house, &keys, 2), refused);
    assert_eq!(writer.show_all(&mut house, &keys, 1), Ok(1));
}

/// A request for more than is available reserves nothing.
#[test]
fn what_is_shown_in_vain_does_not_keep_what_was_granted() {
    let mut house = house(6, Limits::default());
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, 6));
    assert_eq!(one.grant(&mut house, 4).0, Ok(4));
    assert_eq!(two.show_all(&mut house, &[(0, 1), (1, 2)], 2), Ok(2));
    let keys: Vec<(u32, u32)> = (0..5).map(|index| (index, index + 1)).collect();
    for _ in 0..30 {
        house.now += Duration::from_millis(100);
        let refused = Err(RefusalCode::Total);
        assert_eq!(one.show_all(&mut house, &keys, 5), refused);
    }
    assert_eq!(two.grant(&mut house, 4).0, Ok(4));
}

/// One wrong chunk makes the whole message wrong.
#[test]
fn a_message_of_chunks_is_looked_through_before_any_is_taken() {
    let mut house = house(40, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 20);
    let others = house.state.held_tokens();
    let (bad, taken) = (Err(RefusalCode::BadArgument), Err(RefusalCode::State));
    let many = [(); 17].map(|()| (0, 1));
    for (keys, least, code) in [
        (&[][..], 1, bad),
        (&many[..], 1, bad),
        (&[(0, 1), (1, 2)], 0, bad),
        (&[(0, 1), (1, 2)], 3, bad),
        (&[(0, 2), (1, 2)], 1, bad),
        (&[(0, 0)], 1, bad),
        (&[(0, 1), (20, 2)], 1, bad),
        (&[(0, 1), (0, 2)], 1, taken),
    ] {
        assert_eq!(writer.show_all(&mut house, keys, least), code, "{keys:?}");
    }
    let request = show_chunks(writer.pool, &[(0, 1), (1, 2)], 1);
    let objects = [CHUNK, CHUNK / 2].map(|bytes| (Header::default(), bytes));
    let answer = ready(&house.ask(writer.client, request, objects));
    assert_eq!(answer, Some(Err(RefusalCode::BadDescriptor)));
    assert_eq!(house.state.memory(), (0, 0));
    assert_eq!(house.state.held_tokens(), others, "no descriptor is kept");
    assert_eq!(writer.show_all(&mut house, &[(0, 1), (1, 2)], 1), Ok(2));
    assert_eq!(writer.show_all(&mut house, &[(2, 3), (1, 4)], 1), taken);
}

#[test]
fn who_has_more_than_an_equal_share_is_asked_to_come_down_to_it() {
    let mut house = house(8, Limits::default());
    let much = Writer::join(&mut house, OTHER, 8);
    assert_eq!(much.grant(&mut house, 6), (Ok(6), None));
    let little = Writer::join(&mut house, OWNER, 8);
    // At present only the other domain has anything: all of it is its equal share.
    assert_eq!(little.grant(&mut house, 4), (Ok(2), None));
    house.now += Duration::from_secs(1);
    let refused = Err(RefusalCode::Total);
    assert_eq!(little.grant(&mut house, 1), (refused, Some(4)));
}

#[test]
fn pools_of_who_asks_come_down_too_if_only_a_part_can_be_granted() {
    let mut house = house(8, Limits::default());
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, 8));
    assert_eq!(one.grant(&mut house, 6), (Ok(6), None));
    assert_eq!(two.grant(&mut house, 4), (Ok(2), Some(4)));
}

#[test]
fn serials_go_up_and_places_are_below_the_maximum() {
    let mut house = house(8, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 2);
    assert_eq!(writer.grant(&mut house, 2).0, Ok(2));
    assert_eq!(writer.show(&mut house, 0, 5), Ok(()));
    let refused = Err(RefusalCode::BadArgument);
    assert_eq!(writer.show(&mut house, 1, 5), refused, "a serial that was");
    assert_eq!(writer.show(&mut house, 2, 6), refused, "a third of two");
    assert_eq!(writer.show(&mut house, 1, 6), Ok(()));
}

/// A chunk counts as long as any process maps it.
#[test]
fn what_a_reader_still_maps_is_paid_for_when_its_writer_has_returned_it() {
    let mut house = house(2, Limits::default());
    let writer = Writer::join(&mut house, OWNER, 2);
    let reader = Reader::join(&mut house, OWNER, &writer);
    let others = house.state.held_tokens();
    assert_eq!(writer.grant(&mut house, 2).0, Ok(2));
    assert_eq!(writer.show(&mut house, 0, 1), Ok(()));
    assert_eq!(writer.show(&mut house, 1, 2), Ok(()));
    writer.give_back(&mut house, 1, 2);
    assert_eq!(house.state.memory(), (CHUNK, CHUNK));
    assert_eq!(writer.grant(&mut house, 1).0, Err(RefusalCode::Total));
    reader.unmapped(&mut house, 1, 2);
    assert_eq!(house.state.memory(), (CHUNK, 0));
    assert_eq!(writer.grant(&mut house, 1).0, Ok(1));
    writer.give_back(&mut house, 0, 1);
    reader.unmapped(&mut house, 0, 1);
    assert_eq!(house.state.held_tokens(), others, "no descriptor is kept");
    house.state.audit().expect("no contradiction");
}

#[test]
fn a_heap_has_no_more_than_its_quota_and_gives_back_no_more_than_it_has() {
    let mut house = house(100, Limits::default());
    let (client, _) = house.join(OWNER, None);
    let events = house.ask(client, create_heap(3 * CHUNK, 0), []);
    let Some(Event::HeapCreated { heap, .. }) = events.first() else {
        panic!("{events:?}");
    };
    let heap = *heap;
    let mut admit = |bytes| {
        let request = Request::Admit {
            req: Req(2),
            heap,
            bytes,
            least_bytes: 1,
        };
        match house.ask(client, request, []).first() {
            Some(Event::Admitted { bytes, .. }) => Ok(*bytes),
            Some(Event::Refused { refusal, .. }) => Err(refusal.code),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(admit(CHUNK), Ok(CHUNK));
    assert_eq!(admit(10 * CHUNK), Ok(2 * CHUNK));
    assert_eq!(admit(1), Err(RefusalCode::Quota));
    let bytes = 10 * CHUNK;
    house.ask(client, Request::GiveBack { heap, bytes }, []);
    assert_eq!(house.state.memory(), (0, 0));
}
