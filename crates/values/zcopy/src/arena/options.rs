//! Options of an arena.

use super::classes::{LARGEST, PAGE};
use tranship_core::Domain;
use tranship_core::heap::HeapOptions;

/// The most that a heap may have.
const MOST_BYTES: u64 = 1 << 46;

/// Options of an [`crate::Arena`].
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) max: u64,
    pub(super) block_pages: usize,
    pub(super) large: usize,
    pub(super) domain: Option<Domain>,
}

impl Default for Options {
    /// Returns the defaults: as much memory as the machine has, pageblocks of 16 pages, pages of their own for values
    /// above 32 KiB.
    fn default() -> Options {
        Options {
            max: tranship_sys::machine::memory_total().max(64 << 20),
            block_pages: 16,
            large: LARGEST,
            domain: None,
        }
    }
}

impl Options {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_pages * PAGE
    }

    pub(super) fn large(&self) -> usize {
        self.large.clamp(PAGE, LARGEST).min(self.block_bytes() / 2)
    }

    /// Limits it to that many bytes of pageblocks and large values. Taken when they are needed.
    #[must_use]
    pub fn max(mut self, bytes: u64) -> Options {
        self.max = bytes.max(1 << 20);
        self
    }

    /// Sets the pages of a pageblock, the unit that is protected: a power of two from 4 to 512, else the nearest.
    #[must_use]
    pub fn block_pages(mut self, pages: usize) -> Options {
        self.block_pages = pages.clamp(4, 512).next_power_of_two();
        self
    }

    /// Charges the arena's memory to this domain, as its heap `zcopy`: the manager admits it, and free memory goes back
    /// when the manager wants it. A program that holds values asks [`Arena::excess`](crate::Arena::excess) how many
    /// bytes to free. A value for which the manager admits no memory fails with
    /// [`Error::NotAdmitted`](crate::Error::NotAdmitted). The domain does not end before the arena does.
    #[must_use]
    pub fn charge_to(mut self, domain: &Domain) -> Options {
        self.domain = Some(domain.clone());
        self
    }

    pub(super) fn heap(&self) -> HeapOptions {
        HeapOptions::new(self.max.min(MOST_BYTES)).name("zcopy")
    }

    /// Values above that many bytes have pages of their own (from a page to half a pageblock, at most 32 KiB). Such a
    /// value's memory goes back when it is freed, but it is protected by a call of its own, and takes addresses of a
    /// whole pageblock. The paper's threshold is 4096.
    #[must_use]
    pub fn large_threshold(mut self, bytes: usize) -> Options {
        self.large = bytes;
        self
    }
}
