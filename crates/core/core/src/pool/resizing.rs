//! Chunks on their way in or out.

use crate::domain::Asked;
use std::collections::VecDeque;
use std::time::Instant;

/// Number of periods after which unneeded chunks go back.
pub(super) const PERIODS: usize = 4;

/// Chunks on their way in or out.
pub(super) struct Resizing {
    pub(super) next_serial: u32,
    pub(super) growing: Option<Growing>,
    /// The last chunks were refused for want of memory: the next ones are granted before they are made.
    pub(super) ask_first: bool,
    /// Counts the manager's answers.
    pub(super) progress: u32,
    /// A caller has waited for the manager as long as a healthy one takes, and no answer has come since.
    pub(super) late: bool,
    /// Set while the manager is late with the news that makes the reader set as new as its control page.
    pub(super) stale: bool,
    pub(super) last_look: Option<Instant>,
    /// The most chunks in use at once in each of the last periods, the latest first.
    pub(super) peaks: [u32; PERIODS],
    pub(super) looks: u32,
}

impl Resizing {
    pub(super) fn new() -> Resizing {
        Resizing {
            next_serial: 1,
            growing: None,
            ask_first: false,
            progress: 0,
            late: false,
            stale: false,
            last_look: None,
            peaks: [0; PERIODS],
            looks: 0,
        }
    }
}

/// Purpose of chunks that are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// All buffers.
    All,
    /// One large buffer of level `none`.
    Large,
}

/// Chunks that were asked for and are not in use yet.
pub(super) struct Growing {
    pub(super) asked: Asked,
    pub(super) what: What,
    /// Chunks that were made and shown, index and serial. If there are none, the request asks whether all of `rest` may
    /// be made.
    pub(super) shown: Vec<(u32, u32)>,
    /// Window indices of the chunks that are still to be made.
    pub(super) rest: VecDeque<u32>,
}
