//! A hostile peer against real victims: a manager daemon, a writer, a third domain, each a process of its own.
//!
//! The attacker is the one of docs/threat-model.md: (1) another user, (2) the same user against victims that are not
//! dumpable, (3) root with only CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH and FOWNER. It never uses the client library:
//! it speaks the protocol by hand (`raw`), keeps every descriptor that it is given, and tries
//!
//! * `siege`: everything that the attack library knows, on every shared object that it was given and on every victim;
//! * `lies`: wrong lines, aggregates, ids, generations and flags in rings, towards a receiver;
//! * `cursors`: wrong cursors, counters, flags and control lines, towards a sender;
//! * `hoard`: twenty thousand waiters on a word that a victim wakes;
//! * `pest`: wrong requests, descriptors and floods, towards the manager.
//!
//! Throughout, the writer and the third domain exchange stamped frames; every one is checked when it arrives and
//! again after it was held. After each attack more of them must have arrived. Rings know no user: `lies`, `cursors` and
//! `hoard` have one attacker.
//!
//! Proof that the checks can fail: `attacks.rs` shows it for the kernel's part (every attack bites something
//! unprotected). These rules of rings and manager were switched off, one at a time, and seen failing here: the slot's
//! bound, the range, the chunk's serial, the generation, the bytes of a forwarded buffer, the inline length, the limit
//! of connections. A victim then panicked, or went on without a reason, or read data that was not sent.

#![allow(
    clippy::cast_possible_truncation,
    reason = "random numbers are cut on purpose"
)]

mod cast;
mod cursors;
mod hoard;
mod lies;
mod pest;
mod shared;
mod siege;
mod stage;

use stage::{Scene, Stage};

macro_rules! scenes {
    ($($name:ident: $play:path, $scene:ident;)*) => {
        $(#[test]
        fn $name() {
            if let Some(stage) = Stage::new(Scene::$scene) {
                $play(&stage);
            }
        })*
    };
}

scenes! {
    kernel_attacks_of_another_user: siege::play, OtherUser;
    kernel_attacks_of_the_same_user: siege::play, SameUser;
    kernel_attacks_of_root_of_files: siege::play, RootOfFiles;
    lies_of_another_user: lies::play, OtherUser;
    cursors_of_another_user: cursors::play, OtherUser;
    waiters_of_another_user: hoard::play, OtherUser;
    requests_of_another_user: pest::play, OtherUser;
    requests_of_the_same_user: pest::play, SameUser;
    requests_of_root_of_files: pest::play, RootOfFiles;
}
