//! Size classes, and how the pages of a pageblock are cut for each.
//!
//! Neighbouring classes differ by a sixteenth at most (by 16 bytes below 256), so rounding wastes at most 6.25 % of a value of
//! 256 bytes or more. No slot of up to a page crosses a page: what a page has left over beside slots of one class is cut
//! into slots of the largest class that fits (a *side* class), so that a page all of whose slots are in use wastes less than 256 bytes, 6.25 %.
//! Classes of several pages leave whole pages over, which take no memory, as nobody touches them.

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// A size class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Class(u8);

/// The largest class below a page, and those of 2, 3, 4, 5 and 8 pages.
const SMALL: usize = 80;
const PAGES: [usize; 5] = [2, 3, 4, 5, 8];
/// How many classes there are.
pub(crate) const CLASSES: usize = SMALL + PAGES.len();
/// The longest value that shares a pageblock with others.
pub(crate) const LARGEST: usize = 8 * PAGE;

impl Class {
    /// The smallest class that holds `len` bytes; `None` above [`LARGEST`].
    pub(crate) fn of(len: usize) -> Option<Class> {
        let index = if len <= 256 {
            len.max(1).div_ceil(16) - 1
        } else if len <= PAGE {
            // Sixteen classes for each doubling: `shift` is the doubling's step.
            let shift = (len - 1).ilog2() - 4;
            let doubling = shift as usize - 4;
            16 + doubling * 16 + ((len - 1) >> shift) - 16
        } else {
            let pages = len.div_ceil(PAGE);
            SMALL + PAGES.iter().position(|&has| has >= pages)?
        };
        Some(Class(u8::try_from(index).ok()?))
    }

    /// The class of a number below [`CLASSES`].
    pub(crate) fn numbered(index: usize) -> Option<Class> {
        let index = u8::try_from(index).ok()?;
        (usize::from(index) < CLASSES).then_some(Class(index))
    }

    /// By number, from 0 to [`CLASSES`].
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Bytes of a slot.
    pub(crate) fn bytes(self) -> usize {
        match self.index() {
            index @ 0..16 => 16 * (index + 1),
            index @ 16..SMALL => {
                let (doubling, step) = ((index - 16) / 16, (index - 16) % 16);
                (17 + step) << (4 + doubling)
            }
            index => PAGES[index - SMALL] * PAGE,
        }
    }

    /// How a pageblock of that many pages is cut for this class.
    pub(crate) fn cut(self, block_pages: usize) -> Cut {
        let bytes = self.bytes();
        if bytes > PAGE {
            let slots = block_pages * PAGE / bytes;
            return Cut {
                main: self,
                per_page: 0,
                slots,
                side: None,
                side_per_page: 0,
                side_slots: 0,
            };
        }
        let per_page = PAGE / bytes;
        let left = PAGE - per_page * bytes;
        // The class that is not larger than what is left.
        let side = (left >= 256).then(|| {
            let above = Class::of(left).expect("less than a page");
            if above.bytes() > left {
                Class(above.0 - 1)
            } else {
                above
            }
        });
        let side_per_page = side.map_or(0, |side| left / side.bytes());
        Cut {
            main: self,
            per_page,
            slots: per_page * block_pages,
            side,
            side_per_page,
            side_slots: side_per_page * block_pages,
        }
    }
}

/// How a pageblock is cut. Slots are numbered: first those of the main class, then those of the side class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The class that the block is for.
    pub(crate) main: Class,
    /// Main slots in each page; 0 if a slot takes several pages.
    per_page: usize,
    /// Main slots in the block.
    pub(crate) slots: usize,
    /// The class of what the pages have left over.
    pub(crate) side: Option<Class>,
    side_per_page: usize,
    side_slots: usize,
}

impl Cut {
    /// Slots of both classes.
    pub(crate) fn all_slots(&self) -> usize {
        self.slots + self.side_slots
    }

    /// Where a slot begins, bytes from the block's start.
    pub(crate) fn offset(&self, slot: usize) -> usize {
        let bytes = self.main.bytes();
        if self.per_page == 0 {
            return slot * bytes;
        }
        if slot < self.slots {
            return slot / self.per_page * PAGE + slot % self.per_page * bytes;
        }
        let slot = slot - self.slots;
        slot / self.side_per_page * PAGE
            + self.per_page * bytes
            + slot % self.side_per_page * self.side_bytes()
    }

    /// The slot that begins exactly there.
    pub(crate) fn slot_at(&self, offset: usize) -> Option<usize> {
        let bytes = self.main.bytes();
        let slot = if self.per_page == 0 {
            offset / bytes
        } else {
            let (page, within) = (offset / PAGE, offset % PAGE);
            if within < self.per_page * bytes {
                page * self.per_page + within / bytes
            } else {
                let side = within - self.per_page * bytes;
                let index = side.checked_div(self.side_bytes())?;
                if index >= self.side_per_page {
                    return None;
                }
                self.slots + page * self.side_per_page + index
            }
        };
        (slot < self.all_slots() && self.offset(slot) == offset).then_some(slot)
    }

    /// Bytes of a slot.
    pub(crate) fn slot_bytes(&self, slot: usize) -> usize {
        if slot < self.slots {
            self.main.bytes()
        } else {
            self.side_bytes()
        }
    }

    fn side_bytes(&self) -> usize {
        self.side.map_or(0, Class::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_it_is_asked_for_and_wastes_a_sixteenth_at_most() {
        let mut last = 0;
        for len in 1..=LARGEST {
            let class = Class::of(len).expect("up to the largest");
            let bytes = class.bytes();
            assert!(bytes >= len && class.index() >= last && class.index() < CLASSES);
            if (256..=PAGE).contains(&len) {
                assert!((bytes - len) * 16 <= bytes, "{len} bytes take {bytes}");
            }
            last = class.index();
        }
        assert_eq!(last, CLASSES - 1);
        assert!(Class::of(LARGEST + 1).is_none());
    }

    const BLOCK_PAGES: usize = 16;
    const BLOCK: usize = BLOCK_PAGES * PAGE;

    #[test]
    fn slots_do_not_overlap_nor_cross_a_page_and_are_found_again() {
        for index in 0..CLASSES {
            let class = Class(u8::try_from(index).expect("few"));
            let cut = class.cut(BLOCK_PAGES);
            let mut taken = vec![false; BLOCK];
            for slot in 0..cut.all_slots() {
                let (at, bytes) = (cut.offset(slot), cut.slot_bytes(slot));
                assert_eq!(cut.slot_at(at), Some(slot), "class {index}");
                assert_eq!(cut.slot_at(at + 1), None);
                if bytes <= PAGE {
                    assert_eq!(at / PAGE, (at + bytes - 1) / PAGE, "class {index} crosses");
                }
                for byte in &mut taken[at..at + bytes] {
                    assert!(!std::mem::replace(byte, true), "class {index} overlaps");
                }
            }
            let wasted = taken.iter().filter(|taken| !**taken).count();
            if class.bytes() <= PAGE {
                assert!(
                    wasted * 16 <= BLOCK,
                    "class of {} wastes {wasted}",
                    class.bytes()
                );
            }
        }
    }
}
