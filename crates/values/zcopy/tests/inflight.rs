//! Bytes that were sent never change, on any way, whatever is done to the values while nobody has read them yet.

mod kit;

use kit::{dog, exactly, pair, pattern};
use tranship_zcopy::{Arena, Options, Piece, Sender, Socket, Value, Way};

/// Values of `len` bytes, enough for several pageblocks, all protected.
fn protected(arena: &Arena, len: usize, count: usize) -> Vec<Value> {
    let values: Vec<_> = (0..count)
        .map(|seed| arena.copy(&pattern(seed, len)).expect("room"))
        .collect();
    arena.protect();
    values
}

/// Fills the arena's memory with other bytes, several times over.
fn churn(arena: &Arena, len: usize) {
    for round in 0..3 {
        let others: Vec<_> = (0..200_000 / len + 70)
            .map(|seed| {
                arena
                    .copy(&pattern(1000 + seed + round, len))
                    .expect("room")
            })
            .collect();
        arena.protect();
        drop(others);
    }
}

#[test]
fn what_was_sent_stays_when_another_process_goes_on_with_the_memory() {
    let _dog = dog();
    for kept in [false, true] {
        let arena = Arena::new().expect("arena");
        let values = protected(&arena, 5000, 60);
        let connection = pair::tcp();
        let mut sender = Sender::new().expect("sender");
        sender.force(Some(Way::Splice));
        let mut socket = Socket::new(connection.near()).expect("socket");
        let pieces: Vec<_> = values[..8].iter().map(Piece::Value).collect();
        let sent = sender
            .send(connection.near(), &mut socket, &pieces)
            .expect("send");
        let mut expected: Vec<u8> = (0..8).flat_map(|seed| pattern(seed, 5000)).collect();
        expected.truncate(sent);
        arena.give_away();
        assert!(arena.alloc(10).is_err(), "it is somebody else's");
        // Half of them, or none: a block without wanted values is used again.
        let places: Vec<_> = values
            .iter()
            .step_by(2)
            .filter(|_| kept)
            .map(|value| value.place().expect("in the file"))
            .collect();
        let file = arena
            .descriptor()
            .try_clone_to_owned()
            .expect("a descriptor");
        let (next, found) = Arena::adopt(file, &Options::new(), &places).expect("an arena");
        assert!(next.alloc(10).is_err(), "not before it begins");
        next.begin().expect("begin");
        for (number, value) in found.iter().enumerate() {
            let value = value.as_ref().expect("there");
            assert!(value.is_protected());
            assert!(value[..] == pattern(2 * number, 5000)[..], "value {number}");
        }
        churn(&next, 5000);
        drop(found);
        churn(&next, 5000);
        // Values that the former process drops give nothing back.
        drop((values, arena));
        churn(&next, 5000);
        exactly(&connection, &expected);
    }
}

#[test]
fn siblings_keep_their_protection_when_one_is_freed() {
    let _dog = dog();
    let arena = Arena::new().expect("arena");
    // A thread that changes its processor leaves a block that is not full: there are many.
    let mut values = protected(&arena, 1000, 5000);
    let are_protected = |few: &[Value]| few.iter().all(Value::is_protected);
    let at = values
        .windows(11)
        .position(are_protected)
        .expect("a full block");
    let frozen = arena.stats().frozen_blocks;
    values.remove(at + 1);
    arena.protect();
    assert!(values[at].is_protected() && values[at + 9].is_protected());
    assert_eq!(arena.stats().frozen_blocks, frozen);
}

#[test]
fn a_block_that_is_not_full_is_copied() {
    let _dog = dog();
    let arena = Arena::new().expect("arena");
    let value = arena.copy(&pattern(1, 1000)).expect("room");
    let connection = pair::tcp();
    let mut sender = Sender::new().expect("sender");
    let mut socket = Socket::new(connection.near()).expect("socket");
    sender
        .send(connection.near(), &mut socket, &[Piece::Value(&value)])
        .expect("send");
    assert!(!value.is_protected());
    let counts = sender.counts();
    assert_eq!((counts.copied_bytes, counts.referred_bytes), (1000, 0));
    exactly(&connection, &pattern(1, 1000));
}

#[test]
fn parent_and_child_do_not_see_what_the_other_writes() {
    let _dog = dog();
    let arena = Arena::new().expect("arena");
    let values = protected(&arena, 5000, 60);
    let open = arena.alloc_raw(3000).expect("room");
    // SAFETY: just allocated, as long.
    unsafe { open.write_bytes(1, 3000) };
    let (mut to_child, from_parent) = std::io::pipe()
        .map(|(read, write)| (write, read))
        .expect("pipe");
    let child = kit::fork(|| {
        // When the parent has freed and written over all it had.
        let mut from_parent = &from_parent;
        kit::read_byte(&mut from_parent);
        let same = values
            .iter()
            .enumerate()
            .all(|(seed, value)| value[..] == pattern(seed, 5000)[..]);
        // SAFETY: mapped in the child as in its parent.
        let open = unsafe { std::slice::from_raw_parts_mut(open.as_ptr(), 3000) };
        let mine = open.iter().all(|byte| *byte == 1);
        open.fill(9);
        assert!(arena.alloc(100).is_err());
        same && mine
    });
    // SAFETY: ours.
    unsafe { open.write_bytes(2, 3000) };
    drop(values);
    churn(&arena, 5000);
    assert!(arena.stats().waiting_for_children_bytes > 0);
    std::io::Write::write_all(&mut to_child, b"x").expect("write");
    assert!(child.succeeds());
    // SAFETY: ours.
    let now = unsafe { std::slice::from_raw_parts(open.as_ptr(), 3000) };
    assert!(now.iter().all(|byte| *byte == 2));
    churn(&arena, 5000);
    assert_eq!(arena.stats().waiting_for_children_bytes, 0);
    // SAFETY: ours, once.
    unsafe { arena.free_raw(open) };
}
