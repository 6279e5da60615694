//! The page map: finds the owner of each page of a window by one load.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tranship_sys::map;

/// Bytes of the map that become writable at once: for 64 MiB of a window.
const STEP: usize = 64 << 10;

const NUMBER_BITS: u32 = 24;
const NUMBERS: u32 = 1 << NUMBER_BITS;

/// The owner of a page: a tag of 8 bits, 0 for no owner, and a number of 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tag: u8,
    pub(crate) number: u32,
}

/// One word for each page, in memory that is taken when it is first written. All words can be read. The words that can
/// be written begin at the first page and end where [`cover`](PageMap::cover) says.
///
/// The map is read without a lock. An entry is written before an item of its page is handed out and after all have come
/// back. A holder of an item therefore reads the right entry for it, however it received the item. For other pages the
/// result is a hint.
#[derive(Debug)]
pub(crate) struct PageMap {
    words: NonNull<AtomicU32>,
    pages: u32,
    /// Bytes that can be written. One thread at a time changes it, by `cover`.
    writable: AtomicUsize,
}

// SAFETY: only atomics, mapped until `drop`.
unsafe impl Send for PageMap {}
// SAFETY: as above.
unsafe impl Sync for PageMap {}

impl PageMap {
    /// Makes a map of `pages` pages without owners.
    pub(crate) fn new(pages: u32) -> io::Result<Self> {
        let words = map::reserve_read_only(Self::len(pages), tranship_sys::page_size())?.cast();
        Ok(Self {
            words,
            pages,
            writable: AtomicUsize::new(0),
        })
    }

    /// Prepares these pages for [`set`](Self::set); returns `false` if there is no memory for that. One thread at a
    /// time.
    pub(crate) fn cover(&self, pages: Range<u64>) -> bool {
        let need =
            usize::try_from(pages.end).map_or(usize::MAX, |end| end * size_of::<AtomicU32>());
        // Relaxed: one thread at a time.
        let have = self.writable.load(Ordering::Relaxed);
        if need <= have {
            return true;
        }
        let len = Self::len(self.pages);
        let next = need.next_multiple_of(STEP).min(len);
        // SAFETY: inside our mapping, whose contents stay.
        let opened = need <= len
            && unsafe {
                let from = self.words.cast::<u8>().add(have);
                map::open_private(from, next - have).is_ok()
            };
        if opened {
            self.writable.store(next, Ordering::Relaxed);
        }
        opened
    }

    fn len(pages: u32) -> usize {
        (pages as usize * size_of::<AtomicU32>()).next_multiple_of(tranship_sys::page_size())
    }

    /// Returns the owner of a page; outside of the window there is none.
    #[inline]
    pub(crate) fn get(&self, page: u64) -> Entry {
        let mut word = 0;
        if page < u64::from(self.pages) {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "below `pages`, which is a u32"
            )]
            let index = page as usize;
            // SAFETY: below `pages`, mapped until `drop`, and zeros are valid.
            word = unsafe { self.words.add(index).as_ref() }.load(Ordering::Relaxed);
        }
        Entry {
            tag: (word >> NUMBER_BITS).to_le_bytes()[0],
            number: word % NUMBERS,
        }
    }

    /// Returns a word by its number, if it is [covered](Self::cover).
    #[inline]
    pub(crate) fn word(&self, index: u64) -> Option<&AtomicU32> {
        let index = usize::try_from(index).ok()?;
        // Ordering: Relaxed: a thread that has an item sees what was covered before it was handed out.
        let covered = self.writable.load(Ordering::Relaxed) / size_of::<AtomicU32>();
        // SAFETY: inside the part that can be written, mapped until `drop`.
        (index < covered).then(|| unsafe { self.words.add(index).as_ref() })
    }

    /// Sets the owner of a page, which is [covered](Self::cover).
    pub(crate) fn set(&self, page: u32, entry: Entry) {
        assert!(page < self.pages && entry.number < NUMBERS, "page {page}");
        let word = u32::from(entry.tag) << NUMBER_BITS | entry.number;
        debug_assert!((page as usize) < self.writable.load(Ordering::Relaxed) / 4);
        // SAFETY: as in `get`.
        unsafe { self.words.add(page as usize).as_ref() }.store(word, Ordering::Relaxed);
    }
}

impl Drop for PageMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        let _ = unsafe { map::unmap(self.words.cast(), Self::len(self.pages)) };
    }
}
