//! Chunks on their way in or out.

use crate::domain::Asked;
use crate::error::Limit;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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
    /// The limit that the last refusal named.
    pub(super) refused: Limit,
    /// The next request of the callers that wait.
    pub(super) asks: Asks,
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
            refused: Limit::Late,
            asks: Asks::default(),
            late: false,
            stale: false,
            last_look: None,
            peaks: [0; PERIODS],
            looks: 0,
        }
    }
}

/// Requests of callers that wait for memory. The manager does not tell them when other pools give memory back. Asking with
/// each look would keep it busy: its answer is news, which leads to the next look.
#[derive(Default)]
pub(super) struct Asks {
    /// The quota at the last one, the time of the next one, and the time between them.
    last: Option<(u64, Instant, Duration)>,
}

/// Time between two requests at first, and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(10);

impl Asks {
    /// Says whether the manager is asked now: it was not asked yet, the quota has changed, or the pause is over.
    pub(super) fn is_due(&self, quota_bytes: u64) -> bool {
        let waits = |(quota, _, _)| quota == quota_bytes && !self.left().is_zero();
        !self.last.is_some_and(waits)
    }

    /// Notes that it is asked now.
    pub(super) fn begin(&mut self, quota_bytes: u64) {
        let pause = match self.last {
            Some((quota, _, pause)) if quota == quota_bytes => (2 * pause).min(LAST_PAUSE),
            _ => FIRST_PAUSE,
        };
        self.last = Some((quota_bytes, Instant::now() + pause, pause));
    }

    /// Returns the time until the next request.
    pub(super) fn left(&self) -> Duration {
        let next = self.last.map(|(_, next, _)| next);
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
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
