//! `carriers`, `trust`, `hops`, `join`: buffers that change their owner over channels, by each way that bytes travel and at each level of trust.

pub mod carriers;
pub mod hops;
pub mod join;
mod meet;
mod trip;
pub mod trust;
mod way;

pub use meet::Credentials;

use clap::ValueEnum;
use tranship_core::Trust;

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
        self.trust().name()
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

/// Inside a process handles travel, and carriers carry bytes: both cost the same at every level, and are measured at one.
pub fn has_levels(system: &str) -> bool {
    system == "shm"
}

/// The levels to measure a system at.
pub fn given_to<'a>(system: &str, given: &'a [Level]) -> &'a [Level] {
    match has_levels(system) {
        true => given,
        false => &[Level::Producer],
    }
}
