//! The trait of all benches.

use anyhow::Result;
use clap::Args;

use crate::options::Common;
use crate::plan::Outcome;

/// Parameters of a bench, and its measurement.
pub trait Bench: Args {
    /// The systems that others are compared with.
    const REFERENCES: &'static [&'static str] = &[];

    /// The systems that `--only` can name.
    fn systems(&self) -> Vec<&'static str>;

    fn measure(&self, common: &Common) -> Result<Outcome>;
}
