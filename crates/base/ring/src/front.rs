//! The words in front of a half's lines.

use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The words of one end, each on its own cache line. One end writes all of it, and the other reads it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Front {
    header: [u64; 8],
    pub(crate) wake: AtomicU32,
    pad0: [u32; 15],
    pub(crate) asleep: AtomicU32,
    pad1: [u32; 15],
    pub(crate) closed: AtomicU32,
    pad2: [u32; 15],
    pub(crate) head: AtomicU64,
    pad3: [u64; 7],
    /// For observers: how often this end found no room to send, how long it waited for room (ns), and since when it
    /// waits now (`CLOCK_MONOTONIC`, ns; 0: it does not wait). Only the slow path writes these words.
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    waits_since: AtomicU64,
    /// For observers: what lies beside this half's own lines ([`Behind`]).
    behind: [AtomicU64; 4],
}

/// The lines of a topic's ring that the other end has still to take, for observers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// The ring's lines; 0: there is no such ring.
    pub lines: u64,
    /// Messages that the other end has passed.
    pub passed: u64,
    /// Messages that it has still to take.
    pub left: u64,
    /// Since when it has passed none of these (`CLOCK_MONOTONIC`, ns); 0: it has none to take.
    pub since_ns: u64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(Front, wake) == 64);
    assert!(std::mem::offset_of!(Front, asleep) == 128);
    assert!(std::mem::offset_of!(Front, closed) == 192);
    assert!(std::mem::offset_of!(Front, head) == 256);
    assert!(std::mem::offset_of!(Front, stalls) == 320);
    assert!(std::mem::offset_of!(Front, waits_since) == 336);
    assert!(std::mem::offset_of!(Front, behind) == 344);
};

/// An end's state, as it says in `closed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Ending {
    /// The end is in use.
    Open = 0,
    /// The end was closed in order: there was nothing more to send.
    Closed = 1,
    /// The end was given up before it had sent everything.
    Abandoned = 2,
    /// The end was never used: its domain did not learn that the connection was made.
    Never = 3,
}

impl Front {
    /// Records how this end ended, once: the first value stays.
    pub(crate) fn end(&self, how: Ending) {
        // Ordering: relaxed; this end's own word.
        if self.closed.load(Ordering::Relaxed) == Ending::Open as u32 {
            // Ordering: release; a peer that sees it sees all earlier lines (partner: `ending`).
            self.closed.store(how as u32, Ordering::Release);
        }
    }

    /// Records that this end finds no room, before it begins to wait.
    pub(crate) fn stall(&self) {
        // Ordering: Relaxed, here and below; statistics, each for itself, with one writer.
        if self.waits_since.load(Ordering::Relaxed) == 0 {
            let stalls = self.stalls.load(Ordering::Relaxed);
            self.stalls.store(stalls.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Says that this end waits for room, from `now_ns` on unless it waited before.
    pub(crate) fn wait(&self, now_ns: u64) {
        if self.waits_since.load(Ordering::Relaxed) == 0 {
            self.waits_since.store(now_ns.max(1), Ordering::Relaxed);
        }
    }

    /// Says what the other end has still to take beside this half's lines.
    pub(crate) fn say_behind(&self, behind: Behind) {
        let Behind {
            lines,
            passed,
            left,
            since_ns,
        } = behind;
        for (word, now) in self.behind.iter().zip([lines, passed, left, since_ns]) {
            // Ordering: as in `stall`.
            word.store(now, Ordering::Relaxed);
        }
    }

    /// Says that this end no longer waits for room.
    pub(crate) fn wait_no_more(&self, now_ns: u64) {
        let since = self.waits_since.load(Ordering::Relaxed);
        if since != 0 {
            let waited = self.stalled_ns.load(Ordering::Relaxed);
            let waited = waited.wrapping_add(now_ns.saturating_sub(since));
            self.stalled_ns.store(waited, Ordering::Relaxed);
            self.waits_since.store(0, Ordering::Relaxed);
        }
    }

    /// Returns how the end that writes this page ended. A value that the format does not name counts as given up.
    #[inline]
    pub(crate) fn ending(&self) -> Ending {
        // On a mapping that is read-only here, Rust defines relaxed loads only. The fence therefore gives the order.
        let closed = self.closed.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release in `end`.
        fence(Ordering::Acquire);
        match closed {
            0 => Ending::Open,
            1 => Ending::Closed,
            3 => Ending::Never,
            _ => Ending::Abandoned,
        }
    }

    /// Returns how many lines the end that writes this page has taken.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        // A relaxed load and a fence, because the mapping is read-only here.
        let head = self.head.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release in `Ring::give_back`: it has read the lines.
        fence(Ordering::Acquire);
        head
    }
}
