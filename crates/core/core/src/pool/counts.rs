//! Counters of queues and readers, as the collector reads them.

use super::run::each_among;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_ledger::{Slots, Words};
use tranship_region::layout::{CountsRo, CountsRw, RefsRo};

/// A view of a queue's counters, or of a reader's references: a pointer at hand, because the collector reads two
/// words a slot and queue.
struct View {
    words: *const AtomicU32,
    count: u32,
}

// SAFETY: atomics in a mapping that the owner of the view keeps (`Counts`, `Refs`).
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    const NOTHING: View = View {
        words: std::ptr::null(),
        count: 0,
    };

    #[inline(always)]
    fn load(&self, slot: u32, otherwise: u32) -> u32 {
        if slot >= self.count {
            return otherwise;
        }
        // SAFETY: below the count of words in a mapping that the owner of this view keeps.
        // Ordering: Acquire pairs with the Release (or stronger) of the counting domain.
        unsafe { &*self.words.add(slot as usize) }.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn load_each<T>(
        &self,
        otherwise: u32,
        slots: impl Slots,
        beside: impl Iterator<Item = T>,
        mut take: impl FnMut(T, u32),
    ) {
        let View { words, count } = *self;
        if words.is_null() {
            return slots
                .each()
                .zip(beside)
                .for_each(|(_, t)| take(t, otherwise));
        }
        debug_assert!(slots.each().all(|slot| slot < count));
        // Ordering: as in `load`.
        let load = |t, word: &AtomicU32| take(t, word.load(Ordering::Acquire));
        // SAFETY: the collector's candidates are slots of the pool (as for `SlotTable::private`), and mappings with fewer words are not opened.
        unsafe { each_among(words, slots, beside, load) };
    }

    #[inline(always)]
    fn prefetch(&self, slot: u32) {
        tranship_sync::prefetch_read(self.words.wrapping_add(slot as usize).cast());
    }
}

/// A queue's counters. If one side cannot be mapped, the two count as never equal, so no buffer of the queue is reused
/// early.
pub(super) struct Counts {
    view: View,
    otherwise: u32,
    _keep: Keep,
}

enum Keep {
    /// Written by another domain.
    Theirs {
        _counts: CountsRo,
    },
    /// Written by this domain: it is source or sink of the queue.
    Ours {
        _counts: Arc<CountsRw>,
    },
    Nothing,
}

impl Counts {
    pub(super) fn theirs(counts: CountsRo) -> Counts {
        let view = View {
            words: counts.counts_ptr(),
            count: counts.count(),
        };
        Counts {
            view,
            otherwise: 0,
            _keep: Keep::Theirs { _counts: counts },
        }
    }
    pub(super) fn ours(counts: Arc<CountsRw>) -> Counts {
        let words = counts.counts();
        let view = View {
            words: words.as_ptr(),
            count: u32::try_from(words.len()).unwrap_or(u32::MAX),
        };
        Counts {
            view,
            otherwise: 0,
            _keep: Keep::Ours { _counts: counts },
        }
    }
    pub(super) fn unknown(value: u32) -> Counts {
        Counts {
            view: View::NOTHING,
            otherwise: value,
            _keep: Keep::Nothing,
        }
    }
}

impl Words for Counts {
    #[inline(always)]
    fn load(&self, slot: u32) -> u32 {
        self.view.load(slot, self.otherwise)
    }
    #[inline(always)]
    fn load_each<T>(
        &self,
        slots: impl Slots,
        beside: impl Iterator<Item = T>,
        take: impl FnMut(T, u32),
    ) {
        self.view.load_each(self.otherwise, slots, beside, take);
    }
    fn prefetch(&self, slot: u32) {
        self.view.prefetch(slot);
    }
}

/// A reader's references, and the word by which it wakes this domain. Without a page everything counts as held.
pub(super) struct Refs {
    view: View,
    pub(super) page: Option<Arc<RefsRo>>,
}

impl Refs {
    pub(super) fn page(page: RefsRo) -> Refs {
        let view = View {
            words: page.counts_ptr(),
            count: page.count(),
        };
        Refs {
            view,
            page: Some(Arc::new(page)),
        }
    }
    pub(super) fn unknown() -> Refs {
        Refs {
            view: View::NOTHING,
            page: None,
        }
    }
}

impl Words for Refs {
    #[inline(always)]
    fn load(&self, slot: u32) -> u32 {
        self.view.load(slot, 1)
    }
    #[inline(always)]
    fn load_each<T>(
        &self,
        slots: impl Slots,
        beside: impl Iterator<Item = T>,
        take: impl FnMut(T, u32),
    ) {
        self.view.load_each(1, slots, beside, take);
    }
    fn prefetch(&self, slot: u32) {
        self.view.prefetch(slot);
    }
}
