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
}

#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(Front, wake) == 64);
    assert!(std::mem::offset_of!(Front, asleep) == 128);
    assert!(std::mem::offset_of!(Front, closed) == 192);
    assert!(std::mem::offset_of!(Front, head) == 256);
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
