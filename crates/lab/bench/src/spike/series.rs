//! What is drawn.

use serde::{Deserialize, Serialize};

/// What one process saw.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    pub system: String,
    pub mode: String,
    pub reclaims: bool,
    /// Packets of the spike, and those that are out all the time.
    pub packets: usize,
    pub steady: usize,
    /// One packet taken and given back, hot.
    pub median_ns: f64,
    /// When the last packet of the spike was freed, milliseconds from the start.
    pub freed_ms: f64,
    pub before_bytes: f64,
    pub peak_bytes: f64,
    pub after_2s_bytes: f64,
    /// `after_2s_bytes` over `before_bytes`.
    pub after_2s_ratio: f64,
    /// That of all runs; what is shown is the one in the middle.
    #[serde(default)]
    pub after_2s_ratios: Vec<f64>,
    /// Milliseconds from the start, resident bytes.
    pub points: Vec<(f64, f64)>,
}
