//! Exhaustive models of a ring that its readers map, and of collection in rounds: every interleaving of a small system
//! under total store order, the memory model of x86-64.
//!
//! The library's own functions run here, one access to shared memory at a time ([`replay`]): `broadcast::Reader`, `let_go`,
//! `Writer` by way of `rounds::Published`, `Rounds`, `Reliable`, `Gaps`, `Quiet`. Their orders of accesses are those of production.
//!
//! The models' own steps are:
//!
//! * the choice of the next operation. Every party may do at any time what its interface allows ([`world`]);
//! * a channel's receipt, composed of `Reader::receive`, `hold`, `finish`; and the end of its lines, which a round finds by the window before
//!   it fixes its batch ([`reader`], [`writer`]);
//! * two threads of a reader's process: the first gives an entry of `kept` to the other by a private word;
//! * forwarding: a queue of one message with counters, and the verdict of desks and counters together, in the order of
//!   `ledger::order` ([`receiver`], [`writer`]);
//! * the buffers that the writer finds by an id, and the free ones, of which the first is taken (they are alike).
//!
//! Each thread has a store buffer, which reaches memory entry by entry at any later moment. Fences and locked instructions
//! wait until it is empty. A process dies between any two steps; stores that it has not made are never made. A liar's words may
//! read as anything at any time.
//!
//! Checked in every state: no honest live reader accepts another buffer than its line named; no buffer is freed that such a
//! reader holds or a line names, and none twice; no reliable reader misses a message; no honest reference is refused; no honest reader is
//! reported. From every state, once all that is held goes, further rounds free all but what lines name ([`leak`]).
//!
//! Three things are steps of one thread alone, and are done at once: a store into the thread's buffer, a fence with an
//! empty one, and a load of a word that no other thread writes. The words of a line are one step, too, except where
//! [`Config::lines`] says otherwise: the last word, which the writer stores first and a reader loads last, decides for all of them.
//!
//! The sizes here are reduced to seconds. `TRANSHIP_TORTURE=1` runs the large ones too.

mod broken;
mod code;
mod config;
#[path = "../explorer/mod.rs"]
mod explorer;
mod gap;
mod leak;
mod reader;
mod receiver;
mod replay;
mod right;
mod words;
mod world;
mod writer;

use config::Config;
use world::World;

/// Explores a system that must be right; prints its size.
fn holds(config: Config) {
    let name = config.name;
    let mut world = World::new(config);
    explorer::holds(name, &mut world);
    let (privates, places) = world.book.sizes();
    println!(
        "  {:?}, {privates} private states, {places} places",
        world.counts
    );
    assert!(
        world.counts.taken > 0 && world.counts.freed > 0,
        "{name}: too little happens"
    );
}

/// Explores a system with one rule taken away; returns what goes wrong.
fn breaks(config: Config) -> &'static str {
    let name = format!("without {:?}", config.without);
    explorer::breaks(&name, &mut World::new(config))
}
