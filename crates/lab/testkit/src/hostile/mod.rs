//! Clients that want to harm a manager, or other clients of it. They speak the protocol by hand.
//!
//! [`raw`] is such a client. [`requests`] and [`NUISANCES`] are malformed messages and acts. [`ATTACKS`] are
//! well-formed ones that are meant to keep others from being served. [`Load`] runs all of it together, by several
//! processes of several users, for as long as it is there.

#![allow(
    clippy::cast_possible_truncation,
    reason = "random numbers are cut on purpose"
)]

mod attacker;
mod attacks;
pub mod claimant;
mod hoard;
mod holdings;
mod load;
mod nuisances;
pub mod raw;
pub mod requests;

pub use attacker::Attacker;
pub use attacks::descriptors::lingering;
pub use attacks::{ATTACKS, Attack};
pub use hoard::Hoard;
pub use load::{Load, Tally};
pub use nuisances::{CONNECTIONS, NUISANCES, Nuisance};

/// The variable in which children find the manager.
pub const SOCKET: &str = "HOSTILE_SOCKET";
