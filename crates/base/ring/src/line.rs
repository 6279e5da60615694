//! The ring's memory: lines of one cache line each, and a checked view of a power of two of them.

use std::{marker::PhantomData, ptr::NonNull};
use tranship_sync::atomic::{AtomicU64, Ordering};

/// Words of a line.
pub(crate) const WORDS: usize = 8;
/// Most bytes that fit into the line of a message. The first word says what the line is, the second is the sender's
/// word, and the last is zero: a later version may need it. The message's bytes take the rest.
pub const INLINE_BYTES: usize = (WORDS - 3) * size_of::<u64>();
/// The part of word 0 that belongs to the ring: the sequence number.
pub(crate) const SEQUENCE: u64 = 0xffff_ffff;

/// One message of a ring: a cache line of eight words (`docs/format.md`, "Ring line").
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line {
    /// Word 0 carries the sequence in its low half; it is stored last and loaded first.
    pub words: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);

/// A ring's lines: their count was checked once, so that no access needs a check.
///
/// Copyable; `Lines<'static>` is for mapped memory whose owner keeps it mapped (see [`Lines::from_raw`]).
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a> {
    first: NonNull<Line>,
    mask: u32,
    borrow: PhantomData<&'a [Line]>,
}

// SAFETY: it is a shared reference to lines, and lines consist of atomics, which are Sync.
unsafe impl Send for Lines<'_> {}
// SAFETY: as above.
unsafe impl Sync for Lines<'_> {}

/// Errors about memory that cannot be a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinesError {
    /// The number is not a power of two between [`Lines::MIN`] and [`Lines::MAX`].
    #[error("a ring has a power of two of lines between 2 and 65536, not {0}")]
    Count(usize),
    /// A raw pointer that is not aligned to a line.
    #[error("a ring starts at a multiple of 64 bytes, not at {0:#x}")]
    Unaligned(usize),
}

impl<'a> Lines<'a> {
    /// The fewest lines of a ring.
    pub const MIN: u32 = 2;
    /// The most lines of a ring.
    pub const MAX: u32 = 65_536;

    /// Makes a ring over borrowed lines.
    pub fn new(lines: &'a [Line]) -> Result<Self, LinesError> {
        let count = Self::check(lines.len())?;
        Ok(Self {
            first: NonNull::from(lines).cast(),
            mask: count - 1,
            borrow: PhantomData,
        })
    }

    /// Makes a ring of `count` lines at `first`. The lines may be mapped read-only if they are only consumed.
    ///
    /// # Safety
    /// During `'a`, `count` lines from `first` on stay mapped and readable (for a producer also writable). This process
    /// accesses them only by atomics. Other processes may write anything at any time.
    pub unsafe fn from_raw(first: NonNull<Line>, count: usize) -> Result<Self, LinesError> {
        if !first.is_aligned() {
            return Err(LinesError::Unaligned(first.addr().get()));
        }
        let count = Self::check(count)?;
        Ok(Self {
            first,
            mask: count - 1,
            borrow: PhantomData,
        })
    }

    /// Returns the number of lines.
    #[inline]
    pub fn count(self) -> u32 {
        self.mask + 1
    }

    /// Checks that a ring can have `count` lines, and returns the number.
    pub(crate) fn check(count: usize) -> Result<u32, LinesError> {
        match u32::try_from(count) {
            Ok(n) if n.is_power_of_two() && (Lines::MIN..=Lines::MAX).contains(&n) => Ok(n),
            _ => Err(LinesError::Count(count)),
        }
    }

    /// Returns all lines.
    pub(crate) fn as_slice(self) -> &'a [Line] {
        // SAFETY: as for `at`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count() as usize) }
    }

    /// Extends the lines' lifetime, for a cursor that keeps them mapped by other means.
    ///
    /// # Safety
    /// The lines stay mapped as long as the result is used.
    #[inline]
    pub unsafe fn outlive(self) -> Lines<'static> {
        Lines {
            first: self.first,
            mask: self.mask,
            borrow: PhantomData,
        }
    }

    /// Says whether the line at a position is published.
    #[inline]
    pub(crate) fn has(self, position: u64) -> bool {
        // Ordering: acquire, so that later loads are at least as new; partner: Producer::push.
        self.at(position).words[0].load(Ordering::Acquire) & SEQUENCE == sequence(position)
    }

    /// Returns the line of a position.
    #[inline]
    pub(crate) fn at(self, position: u64) -> &'a Line {
        let index = position & u64::from(self.mask);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most mask, which is below 65536"
        )]
        let index = index as usize;
        // SAFETY: index <= mask = count - 1, and `count` lines are mapped during 'a (new: they are borrowed;
        // from_raw: the caller's promise). A peer can change their contents only, which are atomics.
        unsafe { self.first.add(index).as_ref() }
    }
}

/// Returns the sequence that the line of a position carries.
#[inline]
pub(crate) fn sequence(position: u64) -> u64 {
    position.wrapping_add(1) & SEQUENCE
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_are_checked() {
        let lines: Vec<Line> = (0..8).map(|_| Line::default()).collect();
        for n in [0, 1, 3, 5, 6, 7] {
            assert_eq!(Lines::new(&lines[..n]).unwrap_err(), LinesError::Count(n));
        }
        for n in [2, 4, 8] {
            assert_eq!(Lines::new(&lines[..n]).unwrap().count() as usize, n);
        }
        assert_eq!(Lines::check(131_072), Err(LinesError::Count(131_072)));
        assert_eq!(Lines::check(1 << 40), Err(LinesError::Count(1 << 40)));
    }

    #[test]
    fn raw_lines_are_aligned() {
        let lines: Vec<Line> = (0..4).map(|_| Line::default()).collect();
        let first = NonNull::from(&lines[..]).cast::<Line>();
        // SAFETY: four lines, alive until the end of the test.
        assert_eq!(unsafe { Lines::from_raw(first, 4) }.unwrap().count(), 4);
        // SAFETY: refused before any access.
        let crooked = unsafe { Lines::from_raw(first.byte_add(8), 2) };
        assert!(matches!(crooked, Err(LinesError::Unaligned(_))));
    }

    #[test]
    fn positions_wrap_over_the_lines() {
        let lines: Vec<Line> = (0..4).map(|_| Line::default()).collect();
        let ring = Lines::new(&lines).unwrap();
        for position in [0u64, 1, 3, 4, 7, 1 << 33, u64::MAX] {
            let want = &raw const lines[usize::try_from(position % 4).unwrap()];
            assert_eq!(&raw const *ring.at(position), want);
        }
        assert_eq!(sequence(0), 1);
        assert_eq!(sequence(0xffff_ffff), 0);
    }
}
