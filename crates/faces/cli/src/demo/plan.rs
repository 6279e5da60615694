//! Input and output of all ways of moving frames.

use super::input::Input;
use super::worker::Finished;
use crate::args::demo::Transport;
use std::path::Path;
use std::time::Duration;

/// Input that all ways of moving frames have in common.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub input: &'a Input,
    pub frame: usize,
    pub time: Duration,
    /// The writer's output.
    pub output: &'a Path,
}

/// Result of one way of moving frames.
#[derive(Debug)]
pub(crate) struct Reached {
    pub over: Transport,
    pub seconds: f64,
    pub consumers: Vec<Finished>,
    /// CPU time of the producer, microseconds.
    pub producer_cpu_us: u64,
}
