//! What is asked of whom.

use std::time::Duration;

use clap::ValueEnum;

use crate::options::Common;

/// What can be named.
pub const SYSTEMS: [&str; 5] = [
    "tranship",
    "tranship-proxy",
    "tranship-net-proxy",
    "nbdkit",
    "qemu-nbd",
];

/// Bytes of the image, and of one with `--quick`.
const SIZE: u64 = 256 << 20;
const QUICK_SIZE: u64 = 8 << 20;

/// Whether the servers use the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Access {
    /// With it, the image in it: what the servers cost.
    Buffered,
    /// Without it. `nbdkit` has no such way.
    Direct,
}

/// A way of asking.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub write: bool,
    pub random: bool,
    pub bytes: usize,
    pub depth: usize,
    /// Bytes of the image.
    pub size: u64,
    pub budget: Duration,
}

impl Work {
    /// The number of its mode.
    pub fn new(mode: usize, bytes: usize, depth: usize, common: &Common) -> Work {
        Work {
            write: mode >= 2,
            random: mode % 2 == 1,
            bytes,
            depth,
            size: size(common),
            budget: common.budget(),
        }
    }

    /// Where the request with this number goes, bytes.
    pub fn offset(&self, number: u64) -> u64 {
        let count = self.size / self.bytes as u64;
        let block = match self.random {
            true => (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % count,
            false => number % count,
        };
        block * self.bytes as u64
    }
}

pub fn size(common: &Common) -> u64 {
    if common.is_quick() { QUICK_SIZE } else { SIZE }
}
