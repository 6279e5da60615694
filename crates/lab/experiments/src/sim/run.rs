//! The results of a simulation.

use serde::Serialize;

/// A played scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// Bytes in all.
    pub limit_bytes: u64,
    /// The period between two settings of quotas, ms.
    pub period_ms: u64,
    /// The pools' names, in each frame's order.
    pub pools: Vec<String>,
    /// The programs' names, in each frame's order.
    pub apps: Vec<String>,
    /// One frame for each period.
    pub frames: Vec<Frame>,
}

/// One period.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Frame {
    /// The end of the period, ms.
    pub at_ms: u64,
    /// The pools.
    pub pools: Vec<PoolFrame>,
    /// The programs.
    pub apps: Vec<AppFrame>,
}

/// A pool in a frame.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PoolFrame {
    /// The quota during the period, bytes.
    pub quota_bytes: u64,
    /// The pool's memory at the end, bytes.
    pub resident_bytes: u64,
    /// The part of it in use, bytes.
    pub live_bytes: u64,
    /// Callers that waited, on average.
    pub blocked: f64,
    /// Share of the time spent collecting.
    pub collecting: f64,
}

/// A program in a frame.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AppFrame {
    /// Requests done, per second.
    pub per_second: f64,
    /// The share of its callers' time spent waiting and collecting.
    pub share: f64,
    /// Whether it wanted anything.
    pub active: bool,
}
