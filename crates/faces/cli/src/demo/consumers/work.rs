//! One consumer's work, and its result.

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// One consumer's work. Frames carry their place in the input, which may come round many times.
pub(crate) trait Work {
    /// Does its work on one frame.
    fn frame(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Returns the result of the work.
    fn outcome(&mut self) -> Result<Outcome>;
}

/// Result of a consumer's work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// BLAKE3 of every complete pass over the input.
    Hash {
        /// Hash of the last complete pass, in hexadecimal; empty before the first is complete.
        hash: String,
        /// Number of complete passes.
        passes: u64,
        /// Passes whose hash differed from that of the pass before.
        changed: u64,
    },
    /// Sizes before and after LZ4.
    Compressed { bytes_in: u64, bytes_out: u64 },
    /// Byte statistics.
    Statistics {
        bytes: u64,
        entropy_bits: f64,
        most_frequent: u8,
        distinct: u32,
    },
    /// Attempts of an intruder, and the answers.
    Intruder {
        refused: Vec<String>,
        succeeded: Vec<String>,
    },
    /// The consumer was killed.
    Killed,
    /// Bytes that were written.
    Written { bytes: u64 },
}
