//! `carriers`: buffers that change their owner over channels, by each way that bytes travel and at each level of trust.

pub mod carriers;
mod meet;
mod trip;
mod way;

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
