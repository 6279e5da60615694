//! Input and output of all ways of moving frames.

use super::input::Input;
use super::progress::cpu_us;
use super::worker::{Finished, Worker};
use crate::args::demo::Transport;
use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};

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

/// Beginning of one way of moving frames: the time, and the producer's CPU time until then.
#[derive(Debug)]
pub(crate) struct Begun {
    pub at: Instant,
    cpu_us: u64,
}

impl Begun {
    pub(crate) fn now() -> Begun {
        Begun {
            cpu_us: cpu_us(),
            at: Instant::now(),
        }
    }

    /// Waits for the consumers, whose frames have ended.
    pub(crate) fn reached(&self, over: Transport, workers: Vec<Worker>) -> Result<Reached> {
        let consumers = workers.into_iter().map(Worker::finish);
        Ok(Reached {
            over,
            consumers: consumers.collect::<Result<_>>()?,
            seconds: self.at.elapsed().as_secs_f64(),
            producer_cpu_us: cpu_us() - self.cpu_us,
        })
    }
}
