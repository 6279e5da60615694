//! `bulk-rtt`, `bulk-throughput`, `hops`, `trust`: buffers that change their owner, over each backend and at each
//! level of trust.

pub mod hops;
mod join;
pub mod rtt;
mod trip;
pub mod trust;

pub use join::Credentials;

use clap::ValueEnum;
use tranship_bulk::Trust;

/// A level of trust, as on the command line and in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    Full,
    Half,
    Producer,
    None,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Full, Level::Half, Level::Producer, Level::None];

    pub fn name(self) -> &'static str {
        match self {
            Level::Full => "full",
            Level::Half => "half",
            Level::Producer => "producer",
            Level::None => "none",
        }
    }

    pub fn trust(self) -> Trust {
        match self {
            Level::Full => Trust::Full,
            Level::Half => Trust::Half,
            Level::Producer => Trust::Producer,
            Level::None => Trust::None,
        }
    }
}

/// The given levels, or all.
pub fn levels(given: &[Level]) -> &[Level] {
    match given {
        [] => &Level::ALL,
        some => some,
    }
}

/// Backends that carry bytes cost the same at every level: they are measured at one.
pub fn has_levels(system: &str) -> bool {
    matches!(system, "bulk-shm" | "bulk-local")
}

/// The levels to measure a system at.
pub fn given_to<'a>(system: &str, given: &'a [Level]) -> &'a [Level] {
    match has_levels(system) {
        true => given,
        false => &[Level::Full],
    }
}
