//! Lines, desks and bells in sealed memfds: each is made by the domain that writes it and verified by those that read it.

use super::claims::{Claims, Front};
use super::desk::Desk;
use super::dismissed::Dismissed;
use super::gap::ring_bell;
use super::open::Opens;
use crate::line::{Line, Lines, LinesError};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use tranship_region::layout::{BadCount, CreateError, Kind, OpenError, Says, open_shared, rounded};
use tranship_region::{RoMapping, RwMapping};
use tranship_sys::futex;

/// The offset of the lines, bytes.
const LINES: usize = 4096;
/// The offset of the words behind a desk, bytes.
const OPENS: usize = 1024;
/// The offset of the claims' words, bytes.
const WORDS: usize = 256;
/// The offset of a desk, of a bell's word, and of what precedes the lines, bytes.
const FRONT: usize = 64;

fn says(kind: Kind, count: u32) -> Says {
    Says {
        kind,
        count,
        extra: [0; 2],
    }
}

/// Returns the length of an object of `lines` lines, bytes.
pub fn lines_len(lines: u32) -> usize {
    rounded(LINES, size_of::<Line>(), lines)
}

/// Returns the length of a desk's and of a bell's object, bytes.
pub fn page_len() -> usize {
    rounded(OPENS, size_of::<Opens>(), 1)
}

/// Returns the length of an object of claims for `lines` lines, bytes.
pub fn claims_len(lines: u32) -> usize {
    rounded(WORDS, size_of::<AtomicU64>(), lines)
}

fn check(lines: u32) -> Result<(), BadCount> {
    Lines::check(lines as usize)
        .map(drop)
        .map_err(|_: LinesError| BadCount {
            what: "ring lines (a power of two)",
            count: lines,
            min: Lines::MIN,
            max: Lines::MAX,
        })
}

/// A word or line in memory that `M` keeps mapped.
#[derive(Debug)]
struct Mapped<T, M> {
    at: NonNull<T>,
    _map: M,
}

// SAFETY: a pointer to atomics inside `_map`, which lives as long.
unsafe impl<T: Sync, M: Send> Send for Mapped<T, M> {}
// SAFETY: as for Send.
unsafe impl<T: Sync, M: Sync> Sync for Mapped<T, M> {}

impl<T, M> Mapped<T, M> {
    #[inline(always)]
    fn get(&self) -> &T {
        // SAFETY: in bounds and aligned (checked when it was made), of atomics, mapped as long as `self`.
        unsafe { self.at.as_ref() }
    }
}

/// The lines of a broadcast, on their writer's side.
#[derive(Debug)]
pub struct LinesRw {
    lines: Lines<'static>,
    _map: RwMapping,
}

/// The lines of a broadcast, on a reader's side.
#[derive(Debug)]
pub struct LinesRo {
    lines: Lines<'static>,
    _map: RoMapping,
}

/// A reader's desk, on its own side.
#[derive(Debug)]
pub struct DeskRw(Mapped<Desk, RwMapping>);

/// A reader's desk, on the writer's side.
#[derive(Debug)]
pub struct DeskRo(Mapped<Desk, RoMapping>);

/// The claims of a queue, as the writer and all readers map them.
#[derive(Debug)]
pub struct ClaimsRw {
    claims: Claims<'static>,
    _map: RwMapping,
}

/// The word on which one user's readers sleep, on the writer's side.
#[derive(Debug)]
pub struct BellRw(Mapped<AtomicU32, RwMapping>);

/// The word on which one user's readers sleep, on their side.
#[derive(Debug)]
pub struct BellRo(Mapped<AtomicU32, RoMapping>);

impl LinesRw {
    /// Makes lines, all 0.
    pub fn create(count: u32) -> Result<(OwnedFd, LinesRw), CreateError> {
        check(count)?;
        let (fd, map) = says(Kind::Lines, count).create(lines_len(count), |_| {})?;
        // SAFETY: mapped as long as `_map`, beside which they stay; reached by atomics only.
        let lines = unsafe { Lines::from_raw(map.array(LINES, count as usize), count as usize) };
        let lines = lines.expect("the count was checked");
        Ok((fd, LinesRw { lines, _map: map }))
    }

    /// Returns the lines.
    #[inline(always)]
    pub fn lines(&self) -> Lines<'_> {
        self.lines
    }
}

impl LinesRo {
    /// Maps a writer's lines, and checks them against the agreed number.
    pub fn open(fd: impl AsFd, count: u32) -> Result<LinesRo, OpenError> {
        check(count)?;
        let map = says(Kind::Lines, count).open(fd, lines_len(count))?;
        // SAFETY: as in `LinesRw::create`.
        let lines = unsafe { Lines::from_raw(map.array(LINES, count as usize), count as usize) };
        let lines = lines.expect("the count was checked");
        Ok(LinesRo { lines, _map: map })
    }

    /// Returns the lines. They are mapped read-only: load only.
    #[inline(always)]
    pub fn lines(&self) -> Lines<'_> {
        self.lines
    }
}

impl ClaimsRw {
    /// Makes the claims of `count` lines. No line is taken.
    pub fn create(count: u32) -> Result<(OwnedFd, ClaimsRw), CreateError> {
        check(count)?;
        let says = says(Kind::Claims, count);
        let (fd, map) = says.create_shared(claims_len(count))?;
        Ok((fd, ClaimsRw::new(map, count)))
    }

    /// Maps a queue's claims. Every reader can write the header, so it is not looked at.
    pub fn open(fd: impl AsFd, count: u32) -> Result<ClaimsRw, OpenError> {
        check(count)?;
        Ok(ClaimsRw::new(open_shared(fd, claims_len(count))?, count))
    }

    fn new(map: RwMapping, count: u32) -> ClaimsRw {
        // SAFETY: in bounds and aligned (checked by `at`), of atomics, mapped as long as `_map`, beside which they stay.
        // Other processes write them, which atomics allow.
        let front = unsafe { map.at::<Front>(FRONT).as_ref() };
        let words = map.array::<AtomicU64>(WORDS, count as usize).as_ptr();
        // SAFETY: as above.
        let words = unsafe { std::slice::from_raw_parts(words, count as usize) };
        let claims = Claims::new(front, words);
        ClaimsRw { claims, _map: map }
    }

    /// Returns the claims.
    #[inline(always)]
    pub fn claims(&self) -> Claims<'_> {
        self.claims
    }
}

macro_rules! front {
    ($rw:ident, $ro:ident, $kind:ident, $word:ty, $get:ident) => {
        impl $rw {
            /// Makes the page, filled with zeros.
            pub fn create() -> Result<(OwnedFd, $rw), CreateError> {
                let (fd, map) = says(Kind::$kind, 1).create(page_len(), |_| {})?;
                let at = map.at(FRONT);
                Ok((fd, $rw(Mapped { at, _map: map })))
            }

            /// Returns its words.
            #[inline(always)]
            pub fn $get(&self) -> &$word {
                self.0.get()
            }
        }

        impl $ro {
            /// Maps it, and checks its header.
            pub fn open(fd: impl AsFd) -> Result<$ro, OpenError> {
                let map = says(Kind::$kind, 1).open(fd, page_len())?;
                let at = map.at(FRONT);
                Ok($ro(Mapped { at, _map: map }))
            }

            /// Returns its words. They are mapped read-only: relaxed loads and fences only.
            #[inline(always)]
            pub fn $get(&self) -> &$word {
                self.0.get()
            }
        }
    };
}
front!(DeskRw, DeskRo, Desk, Desk, desk);
front!(BellRw, BellRo, Bell, AtomicU32, word);

macro_rules! dismissed {
    ($lines:ident) => {
        impl $lines {
            /// Returns the bits before the lines, of a queue's writer. Its readers have them mapped read-only: load only.
            #[inline(always)]
            pub fn dismissed(&self) -> &Dismissed {
                let at = self._map.at::<Dismissed>(FRONT);
                // SAFETY: in bounds and aligned (checked by `at`), of atomics, mapped as long as `self`.
                unsafe { at.as_ref() }
            }
        }
    };
}
dismissed!(LinesRw);
dismissed!(LinesRo);

macro_rules! opens {
    ($desk:ident) => {
        impl $desk {
            /// Returns the words behind the desk, of a queue's reader.
            #[inline(always)]
            pub fn opens(&self) -> &Opens {
                let at = self.0._map.at::<Opens>(OPENS);
                // SAFETY: in bounds and aligned (checked by `at`), of atomics, mapped as long as `self`.
                unsafe { at.as_ref() }
            }
        }
    };
}
opens!(DeskRw);
opens!(DeskRo);

impl DeskRw {
    /// Says whether this is a forked child, in which the desk is not mapped.
    pub fn is_forked_child(&self) -> bool {
        self.0._map.is_forked_child()
    }
}

impl BellRw {
    /// Wakes the readers of one user after a publish ([`ring_bell`]), at most as many threads as that user has readers
    /// admitted: a stranger may have queued waiters of its own.
    #[cold]
    pub fn wake(&self, admitted: u32) {
        ring_bell(self.word(), |word| {
            let _ = futex::wake(word, admitted);
        });
    }
}
