//! Numbers of the main stage.

use serde::Serialize;
use std::collections::BTreeMap;

/// Numbers, for `--json`.
#[derive(Default, Debug, Serialize)]
pub(super) struct Facts {
    pub(super) copied_bytes: u64,
    /// System calls a frame, unless nobody may look.
    pub(super) syscalls_per_frame: Option<f64>,
    pub(super) leaked_bytes: u64,
    pub(super) leaked_fds: usize,
    pub(super) frames_in_pool: usize,
    pub(super) frames_back: usize,
    /// Frames that were not sent to a consumer while it took none.
    pub(super) missed: BTreeMap<&'static str, u64>,
    pub(super) killed_held_bytes: u64,
    pub(super) killed_back_ms: Option<u128>,
    pub(super) intruder_refused: Vec<String>,
    pub(super) intruder_succeeded: Vec<String>,
}
