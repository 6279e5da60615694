//! Messages between the processes of an experiment and their parent, a line of JSON each.

use serde::{Deserialize, Serialize};
use std::io::Write;

/// Order to a process, on its standard input: how many connections or pages it has from now on. The end of input: leave.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Want {
    pub callers: u64,
}

/// Report of the client or of the interferer: its progress. The first says that it is ready. All of it
/// counts from its start on.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// On the machine's clock that only rises.
    pub at_ns: u64,
    /// Requests, or pages.
    pub done: u64,
    /// Requests that were refused.
    pub wrong: u64,
}

/// Report of the writer of figure 7.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// The pool, pages of [`SMALL`] bytes.
    pub pages: u64,
    /// Domains that each page was sent to.
    pub readers: u32,
    /// An allocation with its part of the collections: the mean of a round, of the middle one of all rounds. So what interrupts one counts little.
    pub ns: f64,
    /// Allocations that were timed.
    pub allocs: u64,
    /// Collections in them.
    pub collections: u64,
    /// The time that these took, of all.
    pub collecting: f64,
}

/// The paper's page.
pub(crate) const SMALL: u64 = 4096;

/// Says a line; false: nobody listens any more.
pub(crate) fn say(line: &impl Serialize) -> bool {
    let Ok(mut text) = serde_json::to_vec(line) else {
        return false;
    };
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&text).and_then(|()| out.flush()).is_ok()
}

/// The clock of [`Progress::at_ns`], which all processes share.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
