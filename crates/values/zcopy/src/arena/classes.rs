//! Size classes, and how the pages of a pageblock are cut for each.
//!
//! Neighbouring classes differ by a sixteenth at most (by 16 bytes below 256), so rounding wastes at most 6.25 % of a
//! value of 256 bytes or more. No slot of up to a page crosses a page, and a page has as many slots as values of one
//! length can be in it.
//!
//! The rest of a page is cut into slots of the largest class that fits (a *side* class). A page all of whose slots are
//! in use therefore wastes less than 256 bytes, 6.25 %. Without values of the side class the rest is waste: up to half
//! a page beside values of a little more than half a page, up to a third where two fit, a quarter where three do. No
//! allocator whose values do not cross pages can do better there.
//!
//! Classes of several pages leave whole pages over, which take no memory, as nobody touches them.

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// A size class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Class(u8);

/// Largest class below a page, and those of 2, 3, 4, 5 and 8 pages.
const SMALL: usize = 80;
const PAGES: [usize; 5] = [2, 3, 4, 5, 8];
/// Sizes of a third and a fifth of a page, which lie between two steps of a sixteenth. Without classes of their own a
/// page would hold two of the one and four of the other. They have the last numbers, because one process hands the
/// numbers of the others to another.
const PARTS: [usize; 2] = [816, 1360];
/// Steps below those parts.
const BELOW: [usize; 2] = [800, 1344];
const LATER: usize = SMALL + PAGES.len();
/// Number of classes.
pub(crate) const CLASSES: usize = LATER + PARTS.len();
/// The longest value that shares a pageblock with others.
pub(crate) const LARGEST: usize = 8 * PAGE;

impl Class {
    /// Returns the smallest class that holds `len` bytes; `None` above [`LARGEST`].
    pub(crate) fn of(len: usize) -> Option<Class> {
        let is_part = |part: usize| BELOW[part] < len && len <= PARTS[part];
        let index = if len <= 256 {
            len.max(1).div_ceil(16) - 1
        } else if let Some(part) = (0..PARTS.len()).find(|part| is_part(*part)) {
            LATER + part
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

    /// Returns the class of a number below [`CLASSES`].
    pub(crate) fn numbered(index: usize) -> Option<Class> {
        let index = u8::try_from(index).ok()?;
        (usize::from(index) < CLASSES).then_some(Class(index))
    }

    /// Returns its number, from 0 to [`CLASSES`].
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the bytes of a slot.
    pub(crate) fn bytes(self) -> usize {
        match self.index() {
            index @ 0..16 => 16 * (index + 1),
            index @ 16..SMALL => {
                let (doubling, step) = ((index - 16) / 16, (index - 16) % 16);
                (17 + step) << (4 + doubling)
            }
            index @ SMALL..LATER => PAGES[index - SMALL] * PAGE,
            index => PARTS[index - LATER],
        }
    }

    /// Returns the largest class of at most `bytes` bytes. `bytes` is at least 16.
    fn within(bytes: usize) -> Option<Class> {
        // Classes differ by 16 bytes or more, and lie on multiples of 16.
        let mut lens = (1..=bytes / 16).rev().map(|units| units * 16);
        lens.find_map(|len| Class::of(len).filter(|class| class.bytes() <= bytes))
    }

    /// Returns the division of a pageblock of that many pages for this class.
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
        // The largest class that fits into the rest.
        let side = if left >= 256 {
            Class::within(left)
        } else {
            None
        };
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

/// Division of a pageblock. Slots are numbered: first those of the main class, then those of the side class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The class that the block is for.
    pub(crate) main: Class,
    /// Main slots in each page; 0 if a slot takes several pages.
    per_page: usize,
    /// Main slots in the block.
    pub(crate) slots: usize,
    /// Class of the rest of the pages.
    pub(crate) side: Option<Class>,
    side_per_page: usize,
    side_slots: usize,
}

impl Cut {
    /// Slots of both classes.
    pub(crate) fn all_slots(&self) -> usize {
        self.slots + self.side_slots
    }

    /// Returns the start of a slot, in bytes from the block's start.
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

    /// Returns the slot that begins exactly there.
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

    /// Returns the bytes of a slot.
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
        let (mut last, mut seen) = (0, [false; CLASSES]);
        for len in 1..=LARGEST {
            let class = Class::of(len).expect("up to the largest");
            let bytes = class.bytes();
            assert!(bytes >= len && bytes >= last, "{len} bytes take {bytes}");
            assert_eq!(Class::of(bytes), Some(class), "a class is its own");
            if (256..=PAGE).contains(&len) {
                assert!((bytes - len) * 16 <= bytes, "{len} bytes take {bytes}");
            } else if len < 256 {
                assert!(bytes - len < 16, "{len} bytes take {bytes}");
            }
            (last, seen[class.index()]) = (bytes, true);
        }
        assert!(seen.iter().all(|seen| *seen));
        assert!(Class::of(LARGEST + 1).is_none());
    }

    /// No allocator whose values begin at multiples of 16 and cross no page has more of them in one.
    #[test]
    fn a_page_holds_as_many_values_of_one_length_as_can_be_in_it() {
        for len in 1..=PAGE {
            let cut = Class::of(len).expect("small").cut(BLOCK_PAGES);
            let most = PAGE / len.next_multiple_of(16);
            assert_eq!(cut.slots, most * BLOCK_PAGES, "{len} bytes");
        }
    }

    /// The waste of each length from 256 bytes on, alone and with values of its side class, in thousandths of a page.
    /// The numbers are those of the documentation.
    #[test]
    fn what_is_wasted_is_what_the_documentation_says() {
        let (mut above, mut worst) = (Vec::new(), 0);
        for len in 256..=PAGE {
            let cut = Class::of(len).expect("small").cut(BLOCK_PAGES);
            let of_main = cut.slots / BLOCK_PAGES * len;
            let of_side = cut.side_slots / BLOCK_PAGES * cut.side_bytes();
            // Rounding of the main class, and bytes of no slot.
            let (alone, beside) = (PAGE - of_main, PAGE - of_main - of_side);
            let rounding = cut.slots / BLOCK_PAGES * (cut.main.bytes() - len);
            assert!(
                beside - rounding < PAGE / 16,
                "{len} bytes: {beside} wasted"
            );
            worst = worst.max(alone * 1000 / PAGE);
            if alone * 16 > PAGE && len >= 512 {
                match above.last_mut() {
                    Some((_, to, most)) if *to + 1 == len => {
                        (*to, *most) = (len, alone.max(*most));
                    }
                    _ => above.push((len, len, alone)),
                }
            }
        }
        assert_eq!(worst, 499);
        let ranges: Vec<_> = above
            .iter()
            .map(|(from, to, most)| (*from, *to, most * 1000 / PAGE))
            .collect();
        let documented = [
            (513, 548, 123),
            (577, 639, 154),
            (673, 767, 178),
            (817, 959, 202),
            (1025, 1279, 249),
            (1361, 1919, 335),
            (2049, 3839, 499),
        ];
        assert_eq!(ranges, documented);
    }

    const BLOCK_PAGES: usize = 16;
    const BLOCK: usize = BLOCK_PAGES * PAGE;

    #[test]
    fn slots_do_not_overlap_nor_cross_a_page_and_are_found_again() {
        for index in 0..CLASSES {
            let class = Class::numbered(index).expect("few");
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
