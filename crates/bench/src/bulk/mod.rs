//! `bulk-rtt`, `bulk-throughput`, `hops`, `trust`: buffers that change their owner, over each backend and at each
//! level of trust.

pub mod hops;
mod join;
pub mod rtt;
pub mod trust;

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
