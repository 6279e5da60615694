//! Private memory that is used page by page and given back page by page.

use crate::map;
use std::io;
use std::ptr::NonNull;

/// Bytes of a page here. If the kernel's pages are larger, it refuses to take one back.
pub const PAGE: usize = 4096;

/// A number of pages of zeros. Each page takes memory when it is first written; the kernel does not merge them into
/// huge pages.
///
/// ```
/// use tranship_sys::pages::Pages;
///
/// let mut pages = Pages::reserve(16)?;
/// pages.get_mut(3).fill(7);
/// assert_eq!(pages.get(3)[4095], 7);
/// pages.discard(3);
/// assert_eq!(pages.get(3)[4095], 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    count: usize,
    len: usize,
}

// SAFETY: memory of this value's alone; `&self` only reads it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Reserves addresses for a number of pages.
    ///
    /// # Errors
    /// If the process, or one of its limits, has no room for this many addresses.
    pub fn reserve(count: usize) -> io::Result<Pages> {
        let unit = crate::page_size();
        let len = count.checked_mul(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let len = len.checked_next_multiple_of(unit);
        let len = len.ok_or(io::ErrorKind::OutOfMemory)?;
        if len == 0 {
            let base = NonNull::dangling();
            return Ok(Pages { base, count, len });
        }
        let base = map::reserve_private(len, unit)?;
        let pages = Pages { base, count, len };
        // SAFETY: the mapping just made. A kernel without huge pages refuses, and needs not be told.
        let _ = unsafe { map::hint(base, len, map::Hint::NoHuge) };
        Ok(pages)
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    fn at(&self, number: usize) -> NonNull<u8> {
        assert!(number < self.count, "page {number} of {}", self.count);
        // SAFETY: inside the mapping, by the line above.
        unsafe { self.base.add(number * PAGE) }
    }

    /// Returns a page.
    ///
    /// # Panics
    /// If there is no page of this number.
    #[must_use]
    pub fn get(&self, number: usize) -> &[u8] {
        // SAFETY: a page of our own mapping, initialised by the kernel; only code with `&mut self` writes it.
        unsafe { std::slice::from_raw_parts(self.at(number).as_ptr(), PAGE) }
    }

    /// Returns a page for writing.
    ///
    /// # Panics
    /// If there is no page of this number.
    pub fn get_mut(&mut self, number: usize) -> &mut [u8] {
        // SAFETY: as in `get`, and there is no other reference to it.
        unsafe { std::slice::from_raw_parts_mut(self.at(number).as_ptr(), PAGE) }
    }

    /// Gives a page's memory to the kernel: it is zeros from then on. The kernel may refuse (a locked page, or larger
    /// pages). The memory then stays, perhaps with its contents.
    ///
    /// # Panics
    /// If there is no page of this number.
    pub fn discard(&mut self, number: usize) {
        // SAFETY: a page of our own mapping, to which there is no reference.
        let _ = unsafe { map::discard(self.at(number), PAGE) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the whole mapping, ours, and there is no reference into it any more.
            let _ = unsafe { map::unmap(self.base, self.len) };
        }
    }
}
