//! Kind 9: the latest events of one domain's traced buffers. The domain writes the ring. The manager reads it, and so
//! do the domains to which the manager shows it.
//!
//! The ring consists of entries. Each entry has the number of its event, and a checksum over the whole entry. Both
//! reveal an entry that is half written, because its writer died or is still writing, and a reader leaves it out. A
//! reader believes nothing else either.

use super::header::{Kind, Says};
use super::{CreateError, OpenError};
use crate::{RoMapping, RwMapping};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of a ring.
pub const ENTRIES: u32 = 4096;
const ENTRIES_AT: usize = 4096;
const WORDS: usize = 8;

/// One entry: number, checksum, and the event.
#[repr(C)]
struct Slot([AtomicU64; WORDS]);

const _: () = assert!(size_of::<Slot>() == 64);

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum What {
    Allocated = 1,
    Sent = 2,
    Received = 3,
    Released = 4,
}

impl What {
    fn of(number: u8) -> Option<What> {
        let all = [What::Allocated, What::Sent, What::Received, What::Released];
        all.into_iter().find(|w| *w as u8 == number)
    }
}

/// One event, by its writer's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traced {
    /// The time of the event (`CLOCK_MONOTONIC`), ns.
    pub at_ns: u64,
    /// The buffer's id.
    pub buffer: u64,
    pub what: What,
    /// The buffer belongs to the receiver alone from here on.
    pub moved: bool,
    /// For sent and received: the channel.
    pub channel: u32,
    /// For sent and received: the other end's domain.
    pub peer: u32,
    /// For sent and received: the low half of the word that went along.
    pub word: u32,
    /// The offset in the pool's window, bytes.
    pub offset: u64,
    pub length: u64,
}

impl Traced {
    fn words(&self) -> [u64; 6] {
        let what = u64::from(self.what as u8) | u64::from(self.moved) << 8;
        [
            self.at_ns,
            self.buffer,
            what | u64::from(self.channel) << 32,
            u64::from(self.peer) | u64::from(self.word) << 32,
            self.offset,
            self.length,
        ]
    }

    #[allow(clippy::cast_possible_truncation)] // masked
    fn of(words: [u64; 6]) -> Option<Traced> {
        let [at_ns, buffer, what, peer, offset, length] = words;
        Some(Traced {
            at_ns,
            buffer,
            what: What::of(what as u8)?,
            moved: what >> 8 & 1 == 1,
            channel: (what >> 32) as u32,
            peer: peer as u32,
            word: (peer >> 32) as u32,
            offset,
            length,
        })
    }
}

/// Returns the length of the object, bytes.
pub fn len() -> usize {
    ENTRIES_AT + ENTRIES as usize * size_of::<Slot>()
}

fn says() -> Says {
    Says {
        kind: Kind::Trace,
        count: ENTRIES,
        extra: [0; 2],
    }
}

/// Returns the checksum of an entry, which shows when two events are mixed.
fn sum(number: u64, words: &[u64; 6]) -> u64 {
    let mut sum = number ^ 0x9e37_79b9_7f4a_7c15;
    for word in words {
        sum = (sum.rotate_left(23) ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    sum
}

/// The writer's side.
#[derive(Debug)]
pub struct TraceRw {
    slots: NonNull<Slot>,
    /// The number of events so far: private, so that no reader has to trust it.
    next: AtomicU64,
    _map: RwMapping,
}

// SAFETY: pointers to atomics inside `_map`, which lives as long.
unsafe impl Send for TraceRw {}
// SAFETY: as for Send.
unsafe impl Sync for TraceRw {}

impl TraceRw {
    /// Makes an empty ring.
    pub fn create() -> Result<(OwnedFd, TraceRw), CreateError> {
        let (fd, map) = says().create(len(), |_| {})?;
        let trace = TraceRw {
            slots: map.array(ENTRIES_AT, ENTRIES as usize),
            next: AtomicU64::new(0),
            _map: map,
        };
        Ok((fd, trace))
    }

    /// Writes an event over the oldest one. Any thread may call it.
    ///
    /// Cost: one locked instruction, a cache line that is written.
    pub fn push(&self, event: &Traced) {
        // Ordering: relaxed: each event needs a number of its own, and no other memory depends on it.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(number);
        let words = event.words();
        // Crash: a death anywhere in here leaves an entry whose number is 0, or whose sum is wrong.
        slot[0].store(0, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Release);
        slot[1].store(sum(number + 1, &words), Ordering::Relaxed);
        for (to, word) in slot[2..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        // Ordering: Release; partner is the reader's load of the number.
        slot[0].store(number + 1, Ordering::Release);
    }

    fn slot(&self, number: u64) -> &[AtomicU64; WORDS] {
        let at = usize::try_from(number % u64::from(ENTRIES)).unwrap_or(0);
        // SAFETY: below the count of the array; atomics in the mapping.
        unsafe { &self.slots.add(at).as_ref().0 }
    }
}

/// A reader's side.
#[derive(Debug)]
pub struct TraceRo {
    slots: NonNull<Slot>,
    _map: RoMapping,
}

// SAFETY: pointers to atomics inside `_map`, which lives as long.
unsafe impl Send for TraceRo {}
// SAFETY: as for Send.
unsafe impl Sync for TraceRo {}

/// The events of a ring.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// The events, each with its number from 1 on, by rising numbers.
    pub events: Vec<(u64, Traced)>,
    /// Number of earlier events that are missing: overwritten, or half written.
    pub lost: u64,
    /// Impossible entries: half written, or by a liar.
    pub torn: u32,
}

impl TraceRo {
    /// Maps a trace ring, and checks its header.
    pub fn open(fd: impl AsFd) -> Result<TraceRo, OpenError> {
        let map = says().open(fd, len())?;
        Ok(TraceRo {
            slots: map.array(ENTRIES_AT, ENTRIES as usize),
            _map: map,
        })
    }

    /// Returns all complete entries.
    ///
    /// Trust: the writer may write any of these words at any time. An entry that is not at its place is left out.
    pub fn read(&self) -> Events {
        let mut found = Events::default();
        for i in 0..ENTRIES as usize {
            // SAFETY: below the count of the array; atomics in the mapping, which is read-only: relaxed loads and
            // fences alone.
            let slot = unsafe { &self.slots.add(i).as_ref().0 };
            let load = |at: usize| slot[at].load(Ordering::Relaxed);
            // Ordering: Acquire by the fences, as the page is read-only here; partner is the Release in `push`.
            let number = load(0);
            std::sync::atomic::fence(Ordering::Acquire);
            let said = load(1);
            let words: [u64; 6] = std::array::from_fn(|at| load(at + 2));
            std::sync::atomic::fence(Ordering::Acquire);
            if number == 0 && said == 0 {
                continue;
            }
            let at_home = number.wrapping_sub(1) % u64::from(ENTRIES) == i as u64;
            let whole = number != 0 && number == load(0) && said == sum(number, &words);
            match Traced::of(words).filter(|_| at_home && whole) {
                Some(event) => found.events.push((number, event)),
                None => found.torn += 1,
            }
        }
        found.events.sort_by_key(|(number, _)| *number);
        let last = found.events.last().map_or(0, |(number, _)| *number);
        found.lost = last.saturating_sub(found.events.len() as u64);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u64) -> Traced {
        Traced {
            at_ns: 100 + n,
            buffer: n << 24 | 2,
            what: What::Sent,
            moved: n % 2 == 1,
            channel: u32::MAX,
            peer: 7,
            word: u32::MAX - 1,
            offset: n << 12,
            length: 4096,
        }
    }

    #[test]
    fn what_is_written_is_read_in_order_and_what_is_overwritten_is_counted() {
        let (fd, rw) = TraceRw::create().expect("a ring");
        let ro = TraceRo::open(&fd).expect("opened");
        assert_eq!(ro.read(), Events::default());
        for n in 0..3 {
            rw.push(&event(n));
        }
        let expected: Vec<_> = (0..3).map(|n| (n + 1, event(n))).collect();
        assert_eq!(ro.read().events, expected);
        let all = u64::from(ENTRIES) + 10;
        for n in 3..all {
            rw.push(&event(n));
        }
        let read = ro.read();
        assert_eq!((read.lost, read.torn), (10, 0));
        assert_eq!(read.events.first(), Some(&(11, event(10))));
        assert_eq!(read.events.last(), Some(&(all, event(all - 1))));
    }

    #[test]
    fn whatever_is_in_there_only_whole_entries_come_out() {
        let (fd, rw) = TraceRw::create().expect("a ring");
        let ro = TraceRo::open(&fd).expect("opened");
        for n in 0..4 {
            rw.push(&event(n));
        }
        // A half-written entry, one at the place of another, an unknown kind with a right checksum, and all ones.
        rw.slot(0)[5].store(99, Ordering::Relaxed);
        rw.slot(1)[0].store(0, Ordering::Relaxed);
        for (from, to) in rw.slot(3).iter().zip(rw.slot(9)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut words = event(4).words();
        words[2] = 77;
        rw.slot(4)[0].store(5, Ordering::Relaxed);
        rw.slot(4)[1].store(sum(5, &words), Ordering::Relaxed);
        for (to, word) in rw.slot(4)[2..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        for word in rw.slot(5) {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        let read = ro.read();
        assert_eq!(read.events, [(3, event(2)), (4, event(3))]);
        assert_eq!((read.lost, read.torn), (2, 5));
        // A number beyond all: nothing overflows.
        let far = u64::MAX - u64::MAX % u64::from(ENTRIES);
        let words = event(1).words();
        rw.slot(6)[0].store(far - u64::from(ENTRIES) + 7, Ordering::Relaxed);
        rw.slot(6)[1].store(sum(far - u64::from(ENTRIES) + 7, &words), Ordering::Relaxed);
        for (to, word) in rw.slot(6)[2..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        assert_eq!(ro.read().events.len(), 3);
        assert!(ro.read().lost > 1 << 60);
    }

    #[test]
    fn threads_write_side_by_side() {
        let (fd, rw) = TraceRw::create().expect("a ring");
        let ro = TraceRo::open(&fd).expect("opened");
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let rw = &rw;
                s.spawn(move || (0..500).for_each(|n| rw.push(&event(t << 16 | n))));
            }
            // While the ring is written, everything that is read is complete.
            for (_, e) in ro.read().events {
                assert_eq!(e, event(e.at_ns - 100));
            }
        });
        let read = ro.read();
        assert_eq!((read.events.len(), read.lost, read.torn), (2000, 0, 0));
    }
}
