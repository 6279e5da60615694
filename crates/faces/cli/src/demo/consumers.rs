//! Work of the consumers on each frame, independent of the way by which it reached them.

mod compress;
mod hash;
mod intruder;
mod stats;
mod work;
mod writer;

pub(crate) use work::{Outcome, Work};

use crate::args::demo::ConsumerRole;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;

/// Makes a consumer. `output` is opened here, so do it before any lock-down.
pub(crate) fn make(role: ConsumerRole, total: u64, output: Option<&Path>) -> Result<Box<dyn Work>> {
    Ok(match role {
        ConsumerRole::Hash => Box::new(hash::Hash::new(total)),
        ConsumerRole::Lz4 => Box::new(compress::Compress::default()),
        ConsumerRole::Stats => Box::new(stats::Statistics::new()),
        ConsumerRole::Intruder => Box::new(intruder::Intruder::default()),
        ConsumerRole::Writer => {
            let path = output.context("the writer needs --output")?;
            let file = File::create(path).with_context(|| format!("opening {}", path.display()))?;
            Box::new(writer::Writer::new(file))
        }
    })
}
