//! What a liar claims: buffers that were given to somebody else, and more buffers than anybody has.

use crate::lying::Frame;
use crate::stage::{Stage, liar};
use crate::{PAGE, Pair, transfer};
use tranship_bulk::{BufferState, ChannelState, Direction, Kind, Role, Trust};

liar!(what_another_has_is_not_the_liars_to_give_back);
/// A buffer comes back from the one who has it, and from nobody else who knows its pool.
fn what_another_has_is_not_the_liars_to_give_back(stage: &Stage) {
    for trust in Trust::ALL {
        let lie = |frame: &mut Frame| {
            if let Some((_, at)) = transfer(frame) {
                frame.bytes[at] = 0;
            }
        };
        let liars = stage.pair_as(Direction::Source, trust, lie, &format!("another-{trust:?}"));
        let Pair { honest, liar, ends } = &liars;
        let other = stage.other();
        let address = format!("shm:liar-other-{trust:?}");
        let source = honest.create(&address, Direction::Source, trust);
        honest.befriend(source);
        let sink = other.bind(&address, Role::Generic, trust);
        other.befriend(sink);
        let settle = || {
            liars.settle();
            while honest.turn(source) || other.turn(sink) {}
        };
        while other.channel_state(sink) == Some(ChannelState::Binding) {
            settle();
        }
        let pool = honest.new_pool(2, PAGE as u64);
        for channel in [ends.0, source] {
            honest.assign(channel, pool);
            settle();
            assert_eq!(honest.assigned(), Some(Ok(())));
        }
        let [zero, one] = [0; 2].map(|_| (pool, honest.alloc(pool)));
        assert_eq!((zero.1, one.1), (0, 1));
        honest.move_(source, zero);
        honest.move_(ends.0, one);
        settle();
        liar.pass(ends.1, one, &[]).expect("the other one's");
        settle();
        assert_eq!(
            (honest.channel_state(ends.0), honest.buffer_state(zero)),
            (Some(ChannelState::Closed), Some(BufferState::Invalid)),
            "{trust:?}"
        );
        assert_eq!(other.buffer_state(zero), Some(BufferState::ReadWrite));
        other.pass(sink, zero);
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

liar!(a_pool_of_addresses_cannot_say_any_number_of_buffers);
/// Where each buffer is shown by itself a pool is only addresses: it can say any number, and is asked what it takes
/// before anything is made for each of them.
fn a_pool_of_addresses_cannot_say_any_number_of_buffers(stage: &Stage) {
    // 400 MB, but a descriptor for each 4 KiB; and more than there is.
    let hundred_thousand = vec![0xa0, 0x8d, 0x06];
    let most = vec![0xff, 0xff, 0xff, 0xff, 0x07];
    for (number, refused) in [(hundred_thousand, Kind::Limit), (most, Kind::Quota)] {
        let lie = move |frame: &mut Frame| {
            if let Some(at) = count(frame) {
                let mut bytes = frame.bytes.to_vec();
                bytes.splice(at, number.clone());
                frame.bytes = bytes.as_slice().into();
            }
        };
        let pair = stage.pair(Trust::None, lie, &format!("any-number-{refused:?}"));
        pair.liar.seal_from(0);
        let pool = pair.liar.new_pool(2, PAGE as u64, false).expect("pool");
        let asked = pair.liar.assign(pair.ends.1, pool).expect("assign");
        pair.settle();
        assert_eq!(asked.result(), Some(Err(refused.into())));
        assert_eq!(pair.honest.pool(pool), None);
        let state = pair.honest.channel_state(pair.ends.0);
        assert_eq!(state, Some(ChannelState::Connected));
    }
}
