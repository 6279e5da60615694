//! Any requests to the manager's state machine, from any client, in any order. Two honest domains are there before.
//! Whatever untrusted domains say, the books agree, no more than the total is granted, and no descriptor is lost. The
//! honest domains keep everything that they have, and may do everything that they might do.
//!
//! * `bytes`: an input, read as choices;
//! * `simulated`: the shell around the state machine, as in the manager's tests;
//! * `world`: the clients, and what must hold after each input;
//! * `fair`: each user's limits, and the user whose part of the state an input may change;
//! * `step`: one step of an untrusted domain;
//! * `untrusted`: the untrusted domains' requests;
//! * `scenes`, `greed`, `thief`: several requests that belong together;
//! * `honest`: two domains with a name, a channel, a pool, a heap, and the events that they get.

mod bytes;
mod fair;
mod greed;
mod honest;
mod scenes;
#[path = "../../../core/manager/tests/common/simulated.rs"]
mod simulated;
mod step;
mod thief;
mod untrusted;
mod world;

use bytes::Bytes;
use world::World;

/// Most steps of an input.
const STEPS: usize = 400;

/// Plays one connection, with these bytes as its messages.
pub fn messages(data: &[u8]) {
    let (mut bytes, mut world) = (Bytes::of(data), World::settled());
    let untrusted = world.arrive(0);
    if !bytes.one_in(8) {
        world.greet(untrusted, None);
    }
    for _ in 0..STEPS {
        if bytes.is_over() {
            break;
        }
        world.datagram(untrusted, &mut bytes);
    }
    world.end();
}

/// Plays several clients of two users: their requests and their ends.
pub fn sequences(data: &[u8]) {
    let (mut bytes, mut world) = (Bytes::of(data), World::settled());
    for _ in 0..STEPS {
        if bytes.is_over() {
            break;
        }
        world.something(&mut bytes);
    }
    world.end();
}
