//! Marks (hazard pointers) that show which threads still read an object that they no longer hold. A thread that
//! releases its hold and then looks once more marks the object first. A thread that would free the object checks the
//! marks. See Michael, IEEE TPDS 15(6), 2004. Each thread has one mark. A mark is set before the hold is released, so
//! it need not be checked afterwards.

use crate::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::ptr::{null, null_mut};

/// One visitor's mark, on a cache line of its own. A mark is never freed: a thread that no longer needs it leaves it to
/// the next thread.
#[derive(Debug)]
#[repr(align(128))]
pub struct Mark {
    /// The object that the visitor is in, or null.
    at: AtomicPtr<()>,
    taken: AtomicBool,
    next: *const Mark,
}

// SAFETY: `next` is written before the mark is shown, and points to another one, which is never freed.
unsafe impl Sync for Mark {}
// SAFETY: as above.
unsafe impl Send for Mark {}

/// All marks that a thread has or had.
#[derive(Debug, Default)]
pub struct Marks {
    first: AtomicPtr<Mark>,
}

impl Marks {
    /// Makes an empty list of marks.
    #[cfg(not(loom))]
    pub const fn new() -> Marks {
        Marks {
            first: AtomicPtr::new(null_mut()),
        }
    }

    /// Takes a free mark, or makes a new one. The caller [gives it back](Mark::give_back).
    pub fn take(&self) -> &'static Mark {
        for mark in self.all() {
            // Ordering: acquire; partner is the release in `give_back`.
            let taken =
                mark.taken
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return mark;
            }
        }
        let new = Box::leak(Box::new(Mark {
            at: AtomicPtr::new(null_mut()),
            taken: AtomicBool::new(true),
            next: null(),
        }));
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            new.next = first;
            // Ordering: release shows the new mark's `next`; partner is the acquire in `all`. Marks of other threads
            // stay visible, because this is a read-modify-write.
            match self
                .first
                .compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return new,
                Err(other) => first = other,
            }
        }
    }

    /// Says whether no visitor is at the object. The caller has seen (with acquire) that nothing holds the object and
    /// nothing can hold it again.
    pub fn nobody<P>(&self, at: *const P) -> bool {
        // Ordering: acquire; partner is the release at the end of a visit.
        self.all()
            .all(|mark| !std::ptr::eq(mark.at.load(Ordering::Acquire), at.cast()))
    }

    /// Waits until each visitor that is there now has left once.
    pub fn wait_out<P>(&self, at: *const P) {
        for mark in self.all() {
            // Ordering: acquire; as in `nobody`: partner is the release at the end of a visit.
            while std::ptr::eq(mark.at.load(Ordering::Acquire), at.cast()) {
                crate::atomic::yield_now();
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &'static Mark> {
        // Ordering: acquire; partner is the release with which a mark is shown.
        let mut at = self.first.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a mark, which is never freed.
            let mark = unsafe { at.as_ref() }?;
            at = mark.next;
            Some(mark)
        })
    }
}

impl Mark {
    /// Runs `what`, which releases the caller's last hold and then does the rest of the work there. Until it ends,
    /// [`nobody`](Marks::nobody) is false. Calls do not nest.
    ///
    /// Cost: two plain stores.
    #[inline(always)]
    pub fn visit<P, R>(&self, at: *const P, what: impl FnOnce() -> R) -> R {
        // Ordering: relaxed: the step that releases the hold is a release, and a thread that learns from it that
        // nothing holds the object sees this mark.
        self.at.store(at.cast_mut().cast(), Ordering::Relaxed);
        let done = what();
        // Ordering: release; partner is the acquire in `nobody`: by then the work at the object is over.
        self.at.store(null_mut(), Ordering::Release);
        done
    }

    /// Gives the mark back for the next thread.
    pub fn give_back(&self) {
        // Ordering: release; partner is the acquire of the next thread that takes it.
        self.taken.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_seen_until_its_end() {
        let (marks, pool, other) = (Marks::new(), 1u32, 2u32);
        let (pool, other) = (&raw const pool, &raw const other);
        let (mine, theirs) = (marks.take(), marks.take());
        assert!(!std::ptr::eq(mine, theirs));
        mine.visit(pool, || {
            theirs.visit(other, || {
                assert!(!marks.nobody(pool) && !marks.nobody(other));
            });
            assert!(!marks.nobody(pool) && marks.nobody(other));
        });
        assert!(marks.nobody(pool));
    }

    #[test]
    fn marks_are_used_again() {
        let marks = Marks::new();
        let [a, b, c] = [(); 3].map(|()| marks.take());
        b.give_back();
        assert!(std::ptr::eq(marks.take(), b));
        c.give_back();
        a.give_back();
        let again = [marks.take(), marks.take()];
        assert!(again.iter().all(|m| !std::ptr::eq(*m, b)));
        assert_eq!(marks.all().count(), 3);
    }
}
