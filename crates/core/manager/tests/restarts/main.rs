//! Honest domains against the state machine alone. Each does what the library does, while the manager is killed and
//! started again, connections break and domains die, all at any moment. The messages in a socket are read, those in a
//! queue of a dead process are not.
//!
//! Safe: a domain that may take references from a queue, or holds some, is on the reader set by which the pool's writer
//! collects. Calm, when nothing moves any more: no reader set has a queue without a future reader (its buffers would
//! stay for ever). No end of a link waits for an end that does not exist. No reader that gave up a pool still waits for
//! its confirmation.
//!
//! The seed is printed; `TRANSHIP_SEED` sets it, `TRANSHIP_STEPS` the length. NOT here: liars (`simulation`), the
//! counters themselves (the models in `ledger`).

#![allow(clippy::cast_possible_truncation)] // small random numbers

mod act;
mod domain;
mod hear;
#[path = "../common/simulated.rs"]
mod simulated;
mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tranship_manager::Config;
use tranship_manager::state::{ClientId, Fd, FdToken, Input, Sealed};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, Refusal, Req, Request,
    Role, Trust,
};

use domain::{Assign, Claim, Foreign, Link, Own, Proc, QueueOf, ReaderOf};
use simulated::{CHUNK, Orphan, Rng, SLOTS, Shell, Simulated, first_seed, from_env, shape};
use world::World;

/// The number that tells a piece of shared memory, or a process, from all others.
type Inode = u64;

#[test]
fn what_came_back_is_as_good_as_new() {
    let given = from_env("TRANSHIP_SEED");
    let first = first_seed(given);
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let runs = match given {
        Some(_) => 1,
        None if torture => 3000,
        None => 30,
    };
    let mut counts = BTreeMap::new();
    for n in 0..runs {
        let seed = first.wrapping_add(n);
        println!("TRANSHIP_SEED={seed}");
        let mut world = World::new(seed);
        for _ in 0..3 {
            world.gets_busy(50);
            world.run(from_env("TRANSHIP_STEPS").unwrap_or(600) as usize);
            if world.rng.one_in(2) {
                world.stands_alone();
            }
            world.comes_to_rest();
        }
        for (k, v) in world.counts {
            *counts.entry(k).or_insert(0) += v;
        }
    }
    println!("{counts:?}");
    if given.is_none() {
        for what in [
            "died",
            "restarted",
            "hung up",
            "claimed",
            "opened",
            "safe",
            "forwarded",
            "left alone",
            "alone",
            "taken away",
        ] {
            assert!(
                counts.get(what).is_some_and(|n| *n > 0),
                "never reached: {what}"
            );
        }
    }
}
