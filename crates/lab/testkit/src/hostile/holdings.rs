//! Holdings of such a client: pools of its own, pools of others, channels.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use tranship_proto::{BufferId, ChannelId, PoolId};
use tranship_region::RwMapping;
use tranship_region::layout::{CountsRw, RefsRw, TableRo, TableRw};
use tranship_ring::{HalfRo, HalfRw};
use tranship_sys::futex;

pub const CHUNK: u64 = 64 << 10;
pub const SLOTS: u32 = 64;
pub const LINES: u32 = 16;

/// A pool of the attacker's own.
#[derive(Debug)]
pub struct Bait {
    pub id: PoolId,
    pub table: TableRw,
    pub chunk: RwMapping,
    pub(super) _fds: [OwnedFd; 2],
}

impl Bait {
    /// Words of its chunk, to be written at any time.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.chunk.len());
        // SAFETY: inside our own mapping, aligned; reached through atomics only.
        unsafe { AtomicU64::from_ptr(self.chunk.base().add(offset).cast()) }
    }
}

/// A pool of somebody else's that was offered.
#[derive(Debug)]
pub struct Prey {
    pub pool: PoolId,
    pub slots: u32,
    pub table: TableRo,
    pub refs: RefsRw,
    pub(super) _fd: OwnedFd,
}

impl Prey {
    /// Counts a reference of the slot that an id names.
    pub fn retain(&self, id: BufferId) {
        self.refs.refs()[id.slot() as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// Takes it back.
    pub fn release(&self, id: BufferId) {
        self.refs.refs()[id.slot() as usize].fetch_sub(1, Ordering::SeqCst);
        self.refs.wake().fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(self.refs.wake(), u32::MAX >> 1);
    }

    /// Returns the bytes of the slot that an id names.
    pub fn capacity(&self, id: BufferId) -> u64 {
        let slot = self.table.slot(id.slot()).unwrap();
        slot.length().load(Ordering::Acquire)
    }

    pub fn generation(&self, id: BufferId) -> u32 {
        self.table
            .slot(id.slot())
            .unwrap()
            .generation()
            .load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub struct Channel {
    pub id: ChannelId,
    pub own: HalfRw,
    pub theirs: HalfRo,
    pub tail: u64,
    pub(super) _fd: OwnedFd,
    pub counts: Vec<(OwnedFd, CountsRw)>,
}

impl Channel {
    fn index(position: u64) -> usize {
        usize::try_from(position % u64::from(LINES)).unwrap()
    }

    /// Writes a line, whatever is in it, with the sequence that makes it count.
    pub fn push(&mut self, words: [u64; 8]) {
        let line = &self.own.lines()[Self::index(self.tail)];
        for (to, word) in line.words.iter().zip(words).skip(1) {
            to.store(word, Ordering::Relaxed);
        }
        self.tail += 1;
        // Ordering: release, as an honest source does it: the receiver is to see this very line.
        line.words[0].store(words[0] | (self.tail & 0xffff_ffff), Ordering::Release);
        self.wake();
    }

    pub(super) fn has_room(&self) -> bool {
        self.tail - self.theirs.head().load(Ordering::Acquire).min(self.tail) < u64::from(LINES)
    }

    /// Takes a line as a sink does that counts honestly: reference, received, head.
    pub fn take(&self, position: u64, prey: &Prey) -> [u64; 8] {
        let words = self.line(position);
        prey.retain(BufferId(words[2]));
        self.count(BufferId(words[2]));
        self.own.head().store(position + 1, Ordering::Release);
        self.wake();
        words
    }

    /// Counts a line as received or sent.
    pub fn count(&self, id: BufferId) {
        self.counts[0].1.counts()[id.slot() as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the other side's line at a position is there.
    #[must_use]
    pub fn has_line(&self, position: u64) -> bool {
        let first = self.theirs.lines()[Self::index(position)].words[0].load(Ordering::Acquire);
        first & 0xffff_ffff == (position + 1) & 0xffff_ffff
    }

    /// Returns the other side's line at a position, waiting for it.
    pub fn line(&self, position: u64) -> [u64; 8] {
        let line = &self.theirs.lines()[Self::index(position)];
        while !self.has_line(position) {
            std::thread::yield_now();
        }
        std::array::from_fn(|i| line.words[i].load(Ordering::Acquire))
    }

    pub fn wake(&self) {
        self.own.wake().fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(self.own.wake(), u32::MAX >> 1);
    }
}
