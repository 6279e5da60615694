//! Kinds 6 and 7: the two halves of a link. Each end writes its own half and reads the other's.

use super::header::{Kind, Says};
use super::{CreateError, LoadU32, LoadU64, OpenError, check_count, rounded};
use crate::{RoMapping, RwMapping};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use tranship_sync::Line;

/// Fewest lines of a ring.
pub const MIN_LINES: u32 = 2;
/// Most lines of a ring.
pub const MAX_LINES: u32 = 65_536;
const LINES: usize = 4096;

const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);

/// Which end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Source,
    Sink,
}

/// The words in front of the lines, each on its own cache line.
#[repr(C)]
struct Front {
    header: [u64; 8],
    wake: AtomicU32,
    pad0: [u32; 15],
    asleep: AtomicU32,
    pad1: [u32; 15],
    closed: AtomicU32,
    pad2: [u32; 15],
    head: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(Front, wake) == 64);
const _: () = assert!(std::mem::offset_of!(Front, asleep) == 128);
const _: () = assert!(std::mem::offset_of!(Front, closed) == 192);
const _: () = assert!(std::mem::offset_of!(Front, head) == 256);

/// Length of the object, bytes.
pub fn len(lines: u32) -> usize {
    rounded(LINES, size_of::<Line>(), lines)
}

fn says(side: Side, lines: u32) -> Says {
    Says {
        kind: match side {
            Side::Source => Kind::LinkSource,
            Side::Sink => Kind::LinkSink,
        },
        count: lines,
        extra: [0; 2],
    }
}

fn check(lines: u32) -> Result<(), super::BadCount> {
    // The next power of two of a number that is none is out of place too: report the number itself.
    check_count("ring lines", lines, MIN_LINES, MAX_LINES)?;
    match lines.is_power_of_two() {
        true => Ok(()),
        false => Err(super::BadCount {
            what: "ring lines (a power of two)",
            count: lines,
            min: MIN_LINES,
            max: MAX_LINES,
        }),
    }
}

macro_rules! half {
    ($name:ident) => {
        // SAFETY: pointers to atomics inside `map`, which lives as long.
        unsafe impl Send for $name {}
        // SAFETY: as for Send.
        unsafe impl Sync for $name {}

        impl $name {
            #[inline]
            fn front(&self) -> &Front {
                // SAFETY: in bounds (checked by `at`), mapped as long as `self`; of it only the atomics are accessed.
                unsafe { self.front.as_ref() }
            }

            /// How many lines.
            #[inline]
            pub fn count(&self) -> u32 {
                self.count
            }

            /// The first line.
            #[inline]
            pub fn lines_ptr(&self) -> NonNull<Line> {
                self.lines
            }

            /// The ring's lines. Those of the other's half are mapped read-only: load only.
            #[inline]
            pub fn lines(&self) -> &[Line] {
                // SAFETY: the count was checked against the length; lines are atomics; mapped as long as `self`.
                unsafe { std::slice::from_raw_parts(self.lines.as_ptr(), self.count as usize) }
            }

            /// Which end writes this half.
            #[inline]
            pub fn side(&self) -> Side {
                self.side
            }
        }
    };
}

/// The own half.
#[derive(Debug)]
pub struct LinkHalfRw {
    front: NonNull<Front>,
    lines: NonNull<Line>,
    count: u32,
    side: Side,
    map: RwMapping,
}
half!(LinkHalfRw);

impl LinkHalfRw {
    /// Makes it, all 0.
    pub fn create(side: Side, lines: u32) -> Result<(OwnedFd, LinkHalfRw), CreateError> {
        check(lines)?;
        let (fd, map) = says(side, lines).create(len(lines), |_| {})?;
        let half = LinkHalfRw {
            front: map.at(0),
            lines: map.array(LINES, lines as usize),
            count: lines,
            side,
            map,
        };
        Ok((fd, half))
    }

    /// The futex word on which the other end sleeps.
    #[inline]
    pub fn wake(&self) -> &AtomicU32 {
        &self.front().wake
    }

    /// How we sleep: 0 not, 1 on the other's `wake`, 2 on our descriptor.
    #[inline]
    pub fn asleep(&self) -> &AtomicU32 {
        &self.front().asleep
    }

    /// Non-zero once we will send nothing more.
    #[inline]
    pub fn closed(&self) -> &AtomicU32 {
        &self.front().closed
    }

    /// How many lines of the other's ring we have taken.
    #[inline]
    pub fn head(&self) -> &AtomicU64 {
        &self.front().head
    }

    /// The memory.
    pub fn mapping(&self) -> &RwMapping {
        &self.map
    }
}

/// The other end's half.
#[derive(Debug)]
pub struct LinkHalfRo {
    front: NonNull<Front>,
    lines: NonNull<Line>,
    count: u32,
    side: Side,
    map: RoMapping,
}
half!(LinkHalfRo);

impl LinkHalfRo {
    /// Checks what we were shown against what was agreed. `side` is the end that wrote it.
    pub fn open(fd: impl AsFd, side: Side, lines: u32) -> Result<LinkHalfRo, OpenError> {
        check(lines)?;
        let map = says(side, lines).open(fd, len(lines))?;
        Ok(LinkHalfRo {
            front: map.at(0),
            lines: map.array(LINES, lines as usize),
            count: lines,
            side,
            map,
        })
    }

    /// The futex word on which we sleep.
    #[inline]
    pub fn wake(&self) -> LoadU32<'_> {
        LoadU32::new(&self.front().wake)
    }

    /// Its address.
    #[inline]
    pub fn wake_ptr(&self) -> *const AtomicU32 {
        &raw const self.front().wake
    }

    /// How the other end sleeps: 0 not, 1 on our `wake`, 2 on its descriptor.
    #[inline]
    pub fn asleep(&self) -> LoadU32<'_> {
        LoadU32::new(&self.front().asleep)
    }

    /// Non-zero once the other end will send nothing more.
    #[inline]
    pub fn closed(&self) -> LoadU32<'_> {
        LoadU32::new(&self.front().closed)
    }

    /// How many lines of our ring the other end says it has taken.
    #[inline]
    pub fn head(&self) -> LoadU64<'_> {
        LoadU64::new(&self.front().head)
    }

    /// The memory.
    pub fn mapping(&self) -> &RoMapping {
        &self.map
    }
}
