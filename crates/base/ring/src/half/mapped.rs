//! Halves in sealed memfds: each is made by its writer and verified by its reader.

use super::{Half, Side};
use crate::front::{Ending, Front};
use crate::line::{Line, Lines, LinesError};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use tranship_region::layout::{
    BadCount, CreateError, Kind, LoadU32, LoadU64, OpenError, Says, rounded,
};
use tranship_region::{RoMapping, RwMapping};

/// The own half.
pub type HalfRw = Half<RwMapping>;
/// The other end's half.
pub type HalfRo = Half<RoMapping>;

/// The offset of the lines, bytes.
const LINES: usize = 4096;

/// The offset of the message type: its length (u32), four zero bytes, its text.
const TYPE: usize = 512;
const TYPE_TEXT: usize = TYPE + 8;

/// The most bytes of a message type's text.
pub const MAX_TYPE_BYTES: usize = LINES - TYPE_TEXT;

/// Returns the length of the object, bytes.
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

fn bad(count: u32) -> BadCount {
    BadCount {
        what: "ring lines (a power of two)",
        count,
        min: Lines::MIN,
        max: Lines::MAX,
    }
}

impl<M> Half<M> {
    /// # Safety
    /// Both pointers belong to a half of that many lines in `map`.
    unsafe fn at(
        front: NonNull<Front>,
        first: NonNull<Line>,
        lines: u32,
        side: Side,
        map: M,
    ) -> Result<Half<M>, LinesError> {
        Ok(Half {
            front,
            // SAFETY: mapped as long as `map`, beside which they stay; reached only through atomics.
            lines: unsafe { Lines::from_raw(first, lines as usize) }?,
            side,
            map,
        })
    }
}

impl HalfRw {
    /// Makes a half, all 0.
    pub fn create(side: Side, lines: u32) -> Result<(OwnedFd, HalfRw), CreateError> {
        Lines::check(lines as usize).map_err(|_: LinesError| bad(lines))?;
        let (fd, map) = says(side, lines).create(len(lines), |_| {})?;
        let (front, first) = (map.at(0), map.array(LINES, lines as usize));
        // SAFETY: both were just taken out of `map`.
        let half = unsafe { Half::at(front, first, lines, side, map) }
            .map_err(|_: LinesError| bad(lines))?;
        Ok((fd, half))
    }

    /// Writes the text of the message type, before any other domain is shown this half. A text that is too long is cut.
    pub fn describe(&self, text: &str) {
        let len = text.len().min(MAX_TYPE_BYTES);
        let (size, bytes) = (self.map.at::<u32>(TYPE), self.map.array(TYPE_TEXT, len));
        // SAFETY: both places are in bounds, which `at` and `array` check. This process alone maps the memory, and no
        // reference to these bytes exists.
        unsafe {
            size.write(u32::try_from(len).unwrap_or(0));
            std::ptr::copy_nonoverlapping(text.as_ptr(), bytes.as_ptr(), len);
        }
    }

    /// Returns the futex word on which the other end sleeps.
    #[inline]
    pub fn wake(&self) -> &AtomicU32 {
        &self.front().wake
    }

    /// Returns the flag that says how this end sleeps (`docs/format.md`).
    #[inline]
    pub fn asleep(&self) -> &AtomicU32 {
        &self.front().asleep
    }

    /// Returns the word that is non-zero once this end will send nothing more.
    #[inline]
    pub fn closed(&self) -> &AtomicU32 {
        &self.front().closed
    }

    /// Returns the word that says how many lines of the other's ring this end has taken.
    #[inline]
    pub fn head(&self) -> &AtomicU64 {
        &self.front().head
    }

    /// Records how this end ended, once: the first value stays.
    pub fn end(&self, how: Ending) {
        self.front().end(how);
    }
}

impl HalfRo {
    /// Maps a peer's half, and checks it against the agreed values. `side` is the end that wrote it.
    pub fn open(fd: impl AsFd, side: Side, lines: u32) -> Result<HalfRo, OpenError> {
        Lines::check(lines as usize).map_err(|_: LinesError| bad(lines))?;
        let map = says(side, lines).open(fd, len(lines))?;
        let (front, first) = (map.at(0), map.array(LINES, lines as usize));
        // SAFETY: both were just taken out of `map`.
        unsafe { Half::at(front, first, lines, side, map) }
            .map_err(|_: LinesError| bad(lines).into())
    }

    /// Copies the text of the other end's message type; empty if there is none. The other end may have written anything.
    pub fn description(&self) -> String {
        let view = self.map.view();
        let len = view.read::<u32>(TYPE).map_or(0, |len| len as usize);
        let text = view.sub(TYPE_TEXT..TYPE_TEXT + len.min(MAX_TYPE_BYTES));
        text.map_or(String::new(), |text| {
            String::from_utf8_lossy(&text.to_vec()).into_owned()
        })
    }

    /// Returns the futex word on which this end sleeps.
    #[inline]
    pub fn wake(&self) -> LoadU32<'_> {
        LoadU32::new(&self.front().wake)
    }

    /// Returns the flag that says how the other end sleeps (`docs/format.md`).
    #[inline]
    pub fn asleep(&self) -> LoadU32<'_> {
        LoadU32::new(&self.front().asleep)
    }

    /// Returns the word that is non-zero once the other end will send nothing more.
    #[inline]
    pub fn closed(&self) -> LoadU32<'_> {
        LoadU32::new(&self.front().closed)
    }

    /// Returns the word by which the other end says how many lines of this end's ring it has taken.
    #[inline]
    pub fn head(&self) -> LoadU64<'_> {
        LoadU64::new(&self.front().head)
    }
}
