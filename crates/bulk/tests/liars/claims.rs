//! What a liar claims: buffers that were given to somebody else, and more buffers than anybody has.

use crate::{PAGE, Pair, pair, pair_as, transfer};
use std::sync::{Arc, Mutex};
use tranship_bulk::backend::{Frame, Local};
use tranship_bulk::raw::Raw;
use tranship_bulk::{BufferState, ChannelState, Code, Constraints, Direction, Role, Trust, Wish};

/// A buffer comes back from the one who has it, and from nobody else who knows its pool.
#[test]
fn what_another_has_is_not_the_liars_to_give_back() {
    for trust in Trust::ALL {
        let lie = Arc::new(Mutex::new(|frame: &mut Frame| {
            if let Some((_, at)) = transfer(frame) {
                frame.bytes[at] = 0;
            }
        }));
        let liars = pair_as(Direction::Source, trust, lie, &format!("another-{trust:?}"));
        let Pair { honest, liar, ends } = &liars;
        let other = Raw::new();
        other.add_backend("test", Arc::new(Local));
        let wish = Wish {
            role: Role::Generic,
            trust,
            constraints: Constraints::default(),
        };
        let address = format!("test:liar-other-{trust:?}");
        let source = honest.create(&address, Direction::Source, wish, 16, None);
        let source = source.expect("create");
        let (sink, _) = other.bind(&address, wish, None).expect("bind");
        let settle = || {
            liars.settle();
            for _ in 0..64 {
                let _ = (honest.turn(source), other.turn(sink));
            }
        };
        settle();
        let pool = honest.new_pool(2, PAGE as u64, false).expect("pool");
        for channel in [ends.0, source] {
            let asked = honest.assign(channel, pool).expect("assign");
            settle();
            assert_eq!(asked.result(), Some(Ok(())));
        }
        let [zero, one] = [0; 2].map(|_| (pool, honest.alloc(pool).expect("alloc")));
        assert_eq!((zero.1, one.1), (0, 1));
        honest.move_(source, zero, &[]).expect("move");
        honest.move_(ends.0, one, &[]).expect("move");
        settle();
        liar.pass(ends.1, one, &[]).expect("the other one's");
        settle();
        assert_eq!(
            (honest.channel_state(ends.0), honest.buffer_state(zero)),
            (Some(ChannelState::Closed), Some(BufferState::Invalid)),
            "{trust:?}"
        );
        assert_eq!(other.buffer_state(zero), Some(BufferState::ReadWrite));
        other.pass(sink, zero, &[]).expect("pass");
        settle();
        assert_eq!(honest.buffer_state(zero), Some(BufferState::ReadWrite));
    }
}

/// The number of buffers in what a pool's creator says when it assigns one, and how long it is there (`message.rs`).
fn count(frame: &Frame) -> Option<std::ops::Range<usize>> {
    const ASSIGN: u8 = 2;
    if frame.bytes.first() != Some(&ASSIGN) {
        return None;
    }
    let after = |at: usize| {
        let more = frame.bytes[at..].iter().take_while(|byte| **byte >= 0x80);
        at + more.count() + 1
    };
    let at = after(1);
    Some(at..after(at))
}

/// Where each buffer is shown by itself a pool is only addresses: it can say any number, and is asked what it takes
/// before anything is made for each of them.
#[test]
fn a_pool_of_addresses_cannot_say_any_number_of_buffers() {
    let lie = Arc::new(Mutex::new(|frame: &mut Frame| {
        if let Some(at) = count(frame) {
            let mut bytes = frame.bytes.to_vec();
            bytes.splice(at, [0xff, 0xff, 0xff, 0xff, 0x07]);
            frame.bytes = bytes.as_slice().into();
        }
    }));
    let pair = pair(Trust::None, lie, "any-number");
    pair.liar.seal_from(0);
    let pool = pair.liar.new_pool(2, PAGE as u64, false).expect("pool");
    let asked = pair.liar.assign(pair.ends.1, pool).expect("assign");
    pair.settle();
    assert_eq!(asked.result(), Some(Err(Code::Limit)));
    assert_eq!(pair.honest.pool(pool), None);
    assert_eq!(
        pair.honest.channel_state(pair.ends.0),
        Some(ChannelState::Connected)
    );
}
