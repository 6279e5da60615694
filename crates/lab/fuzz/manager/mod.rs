//! Requests to the manager, any of them from anybody in any order, against its state machine: two honest domains are there
//! before, and whatever untrusted domains say, nothing contradicts itself, no more is granted than there is, no descriptor is lost, and
//! what the honest ones have, and may do, stays as it was.
//!
//! * `bytes`: an input, read as choices;
//! * `simulated`: the shell around the state machine, as in the manager's tests;
//! * `world`: the clients, and what must hold after each input;
//! * `fair`: what each user may have, and whose part of the state an input may change;
//! * `untrusted`: who says what;
//! * `scenes`, `greed`, `thief`: several requests that belong together;
//! * `honest`: two domains with a name, a channel, a pool, a heap, and what they notice.

mod bytes;
mod fair;
mod greed;
mod honest;
mod scenes;
#[path = "../../../core/manager/tests/common/simulated.rs"]
mod simulated;
mod thief;
mod untrusted;
mod world;

use bytes::Bytes;
use world::World;

/// Most steps of an input.
const STEPS: usize = 400;

/// One connection, and the bytes of its messages.
pub fn messages(data: &[u8]) {
    let (mut bytes, mut world) = (Bytes::of(data), World::new());
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

/// Several clients of two users, what they say, and their ends.
pub fn sequences(data: &[u8]) {
    let (mut bytes, mut world) = (Bytes::of(data), World::new());
    for _ in 0..STEPS {
        if bytes.is_over() {
            break;
        }
        world.something(&mut bytes);
    }
    world.end();
}
