//! What comes to an honest end is bent on its way: answers that nobody can have given, questions without end.

use crate::honest::wish;
use crate::lying::{Frame, Lying};
use crate::stage::{Stage, liar};
use crate::{PAGE, settle};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tranship_bulk::raw::Raw;
use tranship_bulk::{ChannelState, Direction, Role, Trust};

/// Past a number of variable length.
fn skip(bytes: &[u8], at: usize) -> usize {
    let more = bytes[at..].iter().take_while(|byte| **byte >= 0x80);
    at + more.count() + 1
}

liar!(a_creator_cannot_choose_another_level_or_role);
/// Whoever binds gets the level and the role that it asked for, or no channel: else a creator could have it show memory as it
/// never would.
fn a_creator_cannot_choose_another_level_or_role(stage: &Stage) {
    for (name, at, said, ends) in [
        ("as-it-was", 0, 0, ChannelState::Connected),
        ("level", 1, 3, ChannelState::Closed),
        ("role", 0, 1, ChannelState::Closed),
        ("generic", 0, 2, ChannelState::Closed),
    ] {
        let bend = move |frame: &mut Frame| {
            // The answer to a bind: its domain, how long metadata may be, which end, that it agrees; then role and level.
            if frame.bytes.first() == Some(&1) {
                let head = skip(&frame.bytes, skip(&frame.bytes, 1));
                assert_eq!(frame.bytes[head + 1], 0, "it agrees");
                frame.bytes[head + 2 + at] = said;
            }
        };
        let lying = Lying {
            says: Arc::new(Mutex::new(bend)),
            ..Lying::default()
        };
        let (creator, binder) = (Raw::new(), stage.honest());
        creator.add_backend("lie", Arc::new(lying));
        let wish = wish(Role::Master, Trust::None);
        let there = creator.create(
            &format!("lie:bent-{name}"),
            Direction::Source,
            wish,
            0,
            None,
        );
        let there = there.expect("create");
        let here = binder.bind(&format!("shm:bent-{name}"), Role::Slave, Trust::None);
        while binder.channel_state(here) == Some(ChannelState::Binding) {
            settle(&binder, here, &creator, there);
        }
        assert_eq!(binder.channel_state(here), Some(ends), "{name}");
    }
}

liar!(questions_without_end_end_the_channel);
/// Whoever asks and never takes an answer is not answered for ever.
fn questions_without_end_end_the_channel(stage: &Stage) {
    let lying = Lying::default();
    let asks = Arc::clone(&lying.asks);
    let pair = stage.meet(Direction::Sink, Trust::Half, lying, "asks");
    let (here, there) = pair.ends;
    while pair.honest.channel_state(here) != Some(ChannelState::Connected) {
        pair.settle();
    }
    let liar = &pair.liar;
    let pool = liar.new_pool(1, PAGE as u64, false).expect("pool");
    let asked = liar.assign(there, pool).expect("assign");
    pair.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    let asked = liar.remove(there, pool).expect("remove");
    pair.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    // The last that was said was the decision; now it is a question.
    let _ = liar.assign(there, pool).expect("assign");
    asks.store(true, Ordering::Relaxed);
    let mut rounds = 0;
    while pair.honest.channel_state(here) == Some(ChannelState::Connected) {
        for _ in 0..16 {
            let _ = liar.turn(there);
        }
        pair.honest.turn(here);
        rounds += 1;
        assert!(rounds < 1000, "it answers on");
    }
    assert!(rounds > 64, "ended after {rounds} times 16 questions");
    assert_eq!(pair.honest.channel_state(here), Some(ChannelState::Closed));
}
