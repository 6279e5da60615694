//! The results of a simulation.

use serde::Serialize;

/// A played scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// Which.
    pub scenario: String,
    /// Under which policy.
    pub policy: String,
    /// Bytes in all.
    pub limit_bytes: u64,
    /// How often quotas were set.
    pub period_ms: u64,
    /// Names, as in each frame.
    pub pools: Vec<String>,
    /// Names, as in each frame.
    pub apps: Vec<String>,
    /// One for each period.
    pub frames: Vec<Frame>,
}

/// One period.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Frame {
    /// When it ended.
    pub at_ms: u64,
    /// The pools.
    pub pools: Vec<PoolFrame>,
    /// The programs.
    pub apps: Vec<AppFrame>,
}

/// A pool in it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PoolFrame {
    /// In force during the period.
    pub quota_bytes: u64,
    /// Memory that it had at the end.
    pub resident_bytes: u64,
    /// Of that in use.
    pub live_bytes: u64,
    /// Callers that waited, on average.
    pub blocked: f64,
    /// Share of the time spent collecting.
    pub collecting: f64,
}

/// A program in it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AppFrame {
    /// Requests done, per second; of a batch, pages.
    pub per_second: f64,
    /// Share of its callers' time spent waiting and collecting.
    pub share: f64,
    /// Whether it wanted anything.
    pub active: bool,
}
