//! Real programs, each of which is killed, stopped and started again at random, looked at from outside.
//!
//! A scene is a list of [`Party`]s (programs), a list of [`Flow`]s (which must move as long as certain parties are up)
//! and a [`Gauge`] in which the parties count their work. [`Stage::run`] strikes as a [`Schedule`] says, which comes
//! out of one printed seed. Flows that do not depend on the struck parties go on meanwhile, and all flows go on
//! afterwards. At the end an [`Auditor`] looks for leftovers: processes, files, descriptors, memory.
//!
//! The parties check the content of what they get, and end with an error when it is wrong: a party that ends by itself
//! fails the run. `TRANSHIP_SEED` repeats a schedule (not its instants), and `TRANSHIP_ROUNDS` sets its length. A
//! torture run is long, and its scenes come one after the other. There rates have to come back too. The time of that is
//! printed, and judged if other programs leave the machine alone.
//!
//! NOT here: any program, and its work (the tests bring them); named crash points (the kill tests of this crate).

mod audit;
mod bystanders;
mod gauge;
mod party;
mod recovery;
mod schedule;
mod stage;

pub use audit::{Auditor, held, returns_to};
pub use gauge::Gauge;
pub use party::Party;
pub use schedule::{Blow, Harm, Schedule, Step, rounds};
pub use stage::{Flow, MANAGER, Settled, Stage, alone};
