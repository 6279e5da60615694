//! What all ways of moving frames are given, and what they give back.

use super::input::Input;
use super::worker::Finished;
use crate::args::demo::Transport;
use std::path::Path;
use std::time::Duration;

/// What is common to all ways of moving frames.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub input: &'a Input,
    pub frame: usize,
    pub time: Duration,
    /// The writer's output.
    pub output: &'a Path,
}

/// What one way of moving frames reached.
#[derive(Debug)]
pub(crate) struct Reached {
    pub over: Transport,
    pub seconds: f64,
    pub consumers: Vec<Finished>,
    /// CPU time of the producer, microseconds.
    pub producer_cpu_us: u64,
}
