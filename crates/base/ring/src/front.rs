//! The words in front of a half's lines.

use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Each on its own cache line. All of it is written by one end, and read by the other.
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
    /// For whoever watches: times that this end found no room for what it had to send, for how long it waited then (ns), and
    /// since when it does now (`CLOCK_MONOTONIC`, ns; 0: it does not). From the slow path only.
    stalls: AtomicU64,
    stalled_ns: AtomicU64,
    waits_since: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(Front, wake) == 64);
    assert!(std::mem::offset_of!(Front, asleep) == 128);
    assert!(std::mem::offset_of!(Front, closed) == 192);
    assert!(std::mem::offset_of!(Front, head) == 256);
    assert!(std::mem::offset_of!(Front, stalls) == 320);
    assert!(std::mem::offset_of!(Front, waits_since) == 336);
};

/// What an end says of itself in `closed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Ending {
    /// Nothing yet.
    Open = 0,
    /// It was closed in order: nothing more was to be sent.
    Closed = 1,
    /// It was given up before it had sent everything.
    Abandoned = 2,
    /// It was never used: its domain did not hear that the connection was made.
    Never = 3,
}

impl Front {
    /// Says how this end ended, once: the first word stays.
    pub(crate) fn end(&self, how: Ending) {
        // Ordering: relaxed; our own word.
        if self.closed.load(Ordering::Relaxed) == Ending::Open as u32 {
            // Ordering: release; who sees it sees all lines before it (partner: `ending`).
            self.closed.store(how as u32, Ordering::Release);
        }
    }

    /// This end finds no room, and does not know it yet.
    pub(crate) fn stall(&self) {
        // Ordering: Relaxed, here and below; statistics, each for itself, with one writer.
        if self.waits_since.load(Ordering::Relaxed) == 0 {
            let stalls = self.stalls.load(Ordering::Relaxed);
            self.stalls.store(stalls.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// It waits for room from now on, if it did not before.
    pub(crate) fn wait(&self, now_ns: u64) {
        if self.waits_since.load(Ordering::Relaxed) == 0 {
            self.waits_since.store(now_ns.max(1), Ordering::Relaxed);
        }
    }

    /// It does not wait any more.
    pub(crate) fn wait_no_more(&self, now_ns: u64) {
        let since = self.waits_since.load(Ordering::Relaxed);
        if since != 0 {
            let waited = self.stalled_ns.load(Ordering::Relaxed);
            let waited = waited.wrapping_add(now_ns.saturating_sub(since));
            self.stalled_ns.store(waited, Ordering::Relaxed);
            self.waits_since.store(0, Ordering::Relaxed);
        }
    }

    /// How the end ended that writes this; what the format does not name was given up.
    #[inline]
    pub(crate) fn ending(&self) -> Ending {
        // On a mapping that is read-only here Rust defines relaxed loads only, hence the fence.
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

    /// How many lines the end has taken that writes this.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        // As in `ending`.
        let head = self.head.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release in `Ring::give_back`: it has read the lines.
        fence(Ordering::Acquire);
        head
    }
}
