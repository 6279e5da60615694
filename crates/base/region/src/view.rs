//! Reading memory that another process may be writing.
//!
//! No reference into that memory is ever made. Every read copies the bytes out, and only the copy is checked and used.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

mod copy;

/// A range reaches beyond the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{len_bytes} bytes at {offset_bytes} reach beyond the {available_bytes} available bytes")]
pub struct OutOfBounds {
    pub offset_bytes: usize,
    pub len_bytes: usize,
    pub available_bytes: usize,
}

/// A stretch of memory that may change while it is read.
///
/// ```
/// # use tranship_region as tranship;
/// use tranship::View;
///
/// let view = View::from(&[1, 0, 0, 0, 9][..]);
/// assert_eq!((view.read::<u32>(0)?, view.read::<u8>(4)?), (1, 9));
/// assert_eq!(view.sub(4..5)?.to_vec(), [9]); // a copy
/// assert!(view.read::<u64>(0).is_err()); // 8 bytes of 5
/// # Ok::<(), tranship_region::OutOfBounds>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    base: *const u8,
    len: usize,
    lifetime: PhantomData<&'a ()>,
}

// SAFETY: it only reads, in a way that allows any other thread or process to write.
unsafe impl Send for View<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// # Safety
    /// `base..base + len` stays mapped and readable for `'a`, and the file behind it keeps its size (else SIGBUS).
    /// Threads of this process write it only through raw pointers or atomics while the view is read.
    #[inline]
    #[doc(hidden)]
    pub unsafe fn new(base: *const u8, len: usize) -> View<'a> {
        View {
            base,
            len,
            lifetime: PhantomData,
        }
    }

    /// Returns the length, bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Says whether the view is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte, for handing to the kernel. The contents may change at any time.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.base
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result<*const u8, OutOfBounds> {
        match offset.checked_add(len) {
            // SAFETY: `offset <= self.len`, which is mapped.
            Some(end) if end <= self.len => Ok(unsafe { self.base.add(offset) }),
            _ => Err(OutOfBounds {
                offset_bytes: offset,
                len_bytes: len,
                available_bytes: self.len,
            }),
        }
    }

    /// Returns a part of the view.
    #[inline]
    pub fn sub(&self, range: Range<usize>) -> Result<View<'a>, OutOfBounds> {
        let len = range.end.saturating_sub(range.start);
        let base = self.check(range.start, len)?;
        // SAFETY: a part of memory that is mapped for `'a`.
        Ok(unsafe { View::new(base, len) })
    }

    /// Copies out a value, at any offset, of a type for which any bytes are valid: an integer, an array of bytes. Its
    /// parts may come from different moments.
    #[inline]
    pub fn read<T: zerocopy::FromBytes>(&self, offset: usize) -> Result<T, OutOfBounds> {
        let from = self.check(offset, size_of::<T>())?;
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: `from` has `size_of::<T>()` bytes, checked; `value` is ours. FromBytes: any bytes are a `T`.
        unsafe {
            copy::copy(from, value.as_mut_ptr().cast(), size_of::<T>());
            Ok(value.assume_init())
        }
    }

    /// Copies `to.len()` bytes out.
    #[inline]
    pub fn copy_to_slice(&self, offset: usize, to: &mut [u8]) -> Result<(), OutOfBounds> {
        let from = self.check(offset, to.len())?;
        // SAFETY: `from` has `to.len()` bytes, checked; `to` is ours alone, so they do not overlap.
        unsafe { copy::copy(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Copies all of it to `to`, which other processes read, or the caller later.
    ///
    /// # Safety
    /// `to` has as many bytes as this, which are not a part of it, and no reference to them exists.
    #[doc(hidden)]
    pub unsafe fn copy_to(&self, to: *mut u8) {
        // SAFETY: mapped and readable; the rest is the caller's promise.
        unsafe { copy::copy_away(self.base, to, self.len) };
    }

    /// Sends as much of `head`, and then of all of it, into a stream socket as there is room for, without blocking and
    /// without a copy of ours; says how many bytes in all.
    #[doc(hidden)]
    pub fn send_after(
        &self,
        head: &[u8],
        socket: impl std::os::fd::AsFd,
    ) -> std::io::Result<usize> {
        // SAFETY: mapped and readable for as long as the view.
        unsafe { tranship_sys::stream::send_with(socket, head, self.base, self.len) }
    }

    /// Copies all of it out.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::<u8>::with_capacity(self.len);
        // SAFETY: room for `len` bytes was reserved, and the copy fills all of them.
        unsafe {
            copy::copy(self.base, bytes.as_mut_ptr(), self.len);
            bytes.set_len(self.len);
        }
        bytes
    }
}

/// A view of memory that does not change.
impl<'a> From<&'a [u8]> for View<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> View<'a> {
        // SAFETY: borrowed for `'a`, and nothing writes it.
        unsafe { View::new(bytes.as_ptr(), bytes.len()) }
    }
}

#[cfg(test)]
mod tests;
