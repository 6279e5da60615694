//! The case that a run measures.

use std::time::Duration;

use clap::ValueEnum;
use tranship_core::Trust;

/// How a side waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// Looks again and again.
    Spin,
    /// Sleeps in the kernel.
    Block,
}

/// How much of each payload is written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Touch {
    /// Nothing: the stamp travels beside it, where the system has such a place, else in its first word.
    Untouched,
    /// The first 8 bytes: they carry the stamp.
    Word,
    /// All of it.
    Touched,
}

/// Which pattern of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One message in flight, to and fro.
    RoundTrip,
    /// One way, as fast as it goes.
    Stream,
}

/// One cell of a bench's table.
#[derive(Debug, Clone)]
pub struct Case {
    pub pattern: Pattern,
    pub wait: Wait,
    pub touch: Touch,
    /// Bytes; a multiple of 8, at least 8.
    pub payload: usize,
    /// Buffers of each sender, a power of two.
    pub buffers: usize,
    /// Buffers that each side may have in its hands at once.
    #[cfg_attr(
        not(feature = "iceoryx2"),
        allow(dead_code, reason = "only iceoryx2 must be told")
    )]
    pub loans: usize,
    /// Cores of the two sides.
    pub cores: [usize; 2],
    /// Of `carriers`: the scheme of the address, and the pool's level of trust.
    pub way: (&'static str, Trust),
    /// Whether the library may have a thread of its own beside: it does what is due by time.
    pub helper: bool,
    /// How long to sample.
    pub budget: Duration,
}

impl Case {
    pub fn cores_used(&self) -> usize {
        if self.cores[0] == self.cores[1] { 1 } else { 2 }
    }

    /// The row's `mode`.
    pub fn mode(&self) -> &'static str {
        match (self.pattern, self.wait, self.touch) {
            (Pattern::RoundTrip, Wait::Spin, _) => "spin",
            (Pattern::RoundTrip, Wait::Block, _) => "block",
            (Pattern::Stream, _, Touch::Touched) => "touched",
            (Pattern::Stream, _, _) => "untouched",
        }
    }
}
