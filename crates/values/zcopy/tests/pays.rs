//! Protection of pageblocks if it pays.

mod kit;

use kit::{dog, pair, pattern};
use std::io::Read;
use tranship_sys::memfd;
use tranship_zcopy::{Arena, Piece, Sender, Socket, Value, Way};

/// Length of a value that fills pageblocks of its own at once, and goes by reference.
const LEN: usize = 300_000;

struct Line {
    pair: pair::Pair,
    socket: Socket,
    sender: Sender,
}

impl Line {
    fn new(way: Option<Way>) -> Line {
        let pair = pair::tcp();
        let mut sender = Sender::new().expect("sender");
        sender.force(way);
        Line {
            socket: Socket::new(pair.near()).expect("socket"),
            pair,
            sender,
        }
    }

    /// Sends a value, and has it received.
    fn send(&mut self, value: &Value) {
        let pieces = [Piece::Value(value)];
        let sent = self
            .sender
            .send(self.pair.near(), &mut self.socket, &pieces);
        let mut got = vec![0; sent.expect("send")];
        self.pair.far().read_exact(&mut got).expect("receive");
        assert!(got[..] == value[..got.len()], "other bytes came");
    }
}

fn made(arena: &Arena, seed: usize) -> Value {
    arena.copy(&pattern(seed, LEN)).expect("room")
}

#[test]
fn what_is_overwritten_as_often_as_it_is_sent_is_not_protected() {
    let _dog = dog();
    let arena = Arena::new().expect("arena");
    let mut line = Line::new(None);
    let mut values: Vec<_> = (0..8).map(|seed| made(&arena, seed)).collect();
    // The first ones are: nothing is known.
    values.iter().for_each(|value| line.send(value));
    assert!(values.iter().all(Value::is_protected));
    let protected = arena.stats().frozen_blocks;
    for step in 0..200 {
        values[step % 8] = made(&arena, step);
        line.send(&values[step % 8]);
    }
    assert_eq!(arena.stats().frozen_blocks, protected, "pageblocks");
    // Sent often enough, they are: the debt is bounded.
    let mut sends = 0;
    while !values.iter().all(Value::is_protected) {
        line.send(&values[sends % 8]);
        sends += 1;
        assert!(sends < 2000);
    }
    assert!(sends > 30, "after {sends} sends");
    // A value that is overwritten now and then makes no difference for long.
    values[0] = made(&arena, 1);
    for _ in 0..5 {
        line.send(&values[0]);
    }
    assert!(values[0].is_protected());
}

#[test]
fn who_is_told_to_refer_protects_all_the_same() {
    let _dog = dog();
    let arena = Arena::new().expect("arena");
    let mut line = Line::new(Some(Way::Splice));
    for step in 0..50 {
        let value = made(&arena, step);
        line.send(&value);
        assert!(value.is_protected(), "{step}");
    }
    line.sender.force(Some(Way::Copy));
    let value = made(&arena, 1);
    line.send(&value);
    assert!(!value.is_protected());
}

/// This also holds if it takes long until a newly stored value is sent.
#[test]
fn values_that_are_overwritten_unsent_owe_too() {
    let _dog = dog();
    let arena = Arena::new().expect("arena");
    let mut line = Line::new(None);
    let mut values: Vec<_> = (0..64).map(|seed| made(&arena, seed)).collect();
    values.iter().for_each(|value| line.send(value));
    let protected = arena.stats().frozen_blocks;
    for value in &mut values {
        *value = made(&arena, 1);
    }
    for step in 0..600 {
        values[step % 32] = made(&arena, step);
        line.send(&values[32 + step % 32]);
    }
    assert_eq!(arena.stats().frozen_blocks, protected, "pageblocks");
}

/// A program's memory that it never sends is no reason not to protect the memory that it sends.
#[test]
fn memory_that_is_never_sent_owes_nothing() {
    let _dog = dog();
    let arena = Arena::new().expect("arena");
    let mut line = Line::new(None);
    for _ in 0..500 {
        let at = arena.alloc_raw(LEN).expect("room");
        // SAFETY: just allocated, and nobody uses it.
        unsafe { arena.free_raw(at) };
    }
    let value = made(&arena, 1);
    line.send(&value);
    assert!(value.is_protected());
}

/// Pages of the arena's file.
fn held(arena: &Arena) -> u64 {
    memfd::facts(arena.descriptor()).expect("facts").blocks
}

/// Values that are copied although they could go by reference are under way nowhere: their pages are used again as they
/// are.
#[test]
fn pages_that_were_only_copied_are_not_given_back() {
    let _dog = dog();
    for (way, kept) in [(Way::Copy, true), (Way::Splice, false)] {
        let arena = Arena::new().expect("arena");
        let mut line = Line::new(Some(way));
        let values: Vec<_> = (0..8).map(|seed| made(&arena, seed)).collect();
        arena.protect();
        values.iter().for_each(|value| line.send(value));
        let before = held(&arena);
        assert!(before > 0);
        drop(values);
        assert_eq!(held(&arena), if kept { before } else { 0 }, "{way:?}");
    }
}
