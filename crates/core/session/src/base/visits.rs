//! Marks of threads that are still inside a pool without holding anything of it. A thread that has just released a
//! handle's reference looks at the pool's words once more, and by then nothing else keeps the pool ([`Marks`]; one for
//! each thread). The marks also show which threads count in it by plain stores (`ledger::Bias`).

use std::cell::Cell;
use std::ptr::null;
use tranship_sync::{Mark, Marks};

static MARKS: Marks = Marks::new();

/// A thread's claim to its mark.
struct Lease(Cell<Option<&'static Mark>>);

impl Drop for Lease {
    fn drop(&mut self) {
        MINE.set(null());
        if let Some(mark) = self.0.take() {
            mark.give_back();
        }
    }
}

thread_local! {
    /// The mark in `LEASE`, without the check whether the thread is ending.
    static MINE: Cell<*const Mark> = const { Cell::new(null()) };
    static LEASE: Lease = const { Lease(Cell::new(None)) };
}

/// Runs `what`, which releases the caller's last hold on a pool and then does the rest of the work there. Until it
/// ends, [`nobody`] is false. Calls do not nest.
///
/// Cost: two plain stores to a line of the thread's own.
#[inline(always)]
pub fn visit<P>(pool: *const P, what: impl FnOnce(&Mark)) {
    match mark() {
        Some(mark) => mark.visit(pool, || what(mark)),
        None => visit_first(pool.cast(), what),
    }
}

/// Returns the thread's mark, if the thread was in a pool before and is not about to end.
#[inline(always)]
pub fn mark() -> Option<&'static Mark> {
    // SAFETY: marks are never freed, and this thread has it until its `LEASE` ends, which clears `MINE`.
    unsafe { MINE.get().as_ref() }
}

/// Returns all threads' marks.
pub fn marks() -> &'static Marks {
    &MARKS
}

/// Visits for the first time in this thread. If the thread's other thread-local values are ending, the mark serves for
/// this visit only.
#[cold]
fn visit_first(pool: *const (), what: impl FnOnce(&Mark)) {
    let mark = MARKS.take();
    let kept = LEASE.try_with(|lease| lease.0.set(Some(mark))).is_ok();
    if kept {
        MINE.set(mark);
    }
    mark.visit(pool, || what(mark));
    if !kept {
        mark.give_back();
    }
}

/// Says whether no thread is inside a pool. The caller has seen (Acquire) that nothing holds the pool and nothing can
/// hold it again.
pub fn nobody<P>(pool: *const P) -> bool {
    MARKS.nobody(pool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn a_visit_is_seen_until_its_end() {
        let (pool, other) = (Box::new(1u32), Box::new(2u32));
        let (pool, other) = (&raw const *pool, &raw const *other);
        let [inside, over] = [(); 2].map(|()| Barrier::new(2));
        let at = pool.addr();
        thread::scope(|s| {
            s.spawn(|| {
                visit(std::ptr::without_provenance::<u32>(at), |_| {
                    inside.wait();
                    over.wait();
                });
            });
            inside.wait();
            assert!(!nobody(pool) && nobody(other));
            over.wait();
        });
        assert!(nobody(pool));
    }

    #[test]
    fn marks_are_used_again() {
        let mine = || MINE.get().addr();
        let first = thread::spawn(move || {
            assert_eq!(mine(), 0);
            visit(null::<u8>(), |_| {});
            let first = mine();
            visit(null::<u8>(), |_| {});
            (first, mine())
        });
        let (first, same) = first.join().expect("no panic");
        assert!(first != 0 && first == same);
        let used: std::collections::HashSet<_> = (0..1000)
            .map(|_| {
                let thread = thread::spawn(move || {
                    visit(null::<u8>(), |_| {});
                    mine()
                });
                thread.join().expect("no panic")
            })
            .collect();
        assert!(used.len() < 500, "{}", used.len());
    }

    #[test]
    fn a_thread_that_ends_visits_too() {
        struct AtTheEnd;
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                let mut was_inside = false;
                visit(&raw const *self, |_| was_inside = !nobody(&raw const *self));
                assert!(was_inside && nobody(&raw const *self));
            }
        }
        thread_local! {
            static LATE: AtTheEnd = const { AtTheEnd };
        }
        let ends = thread::spawn(|| {
            // Thread-local values end in the opposite order of their first use, or in this one: once in each order.
            LATE.with(|_| {});
            visit(null::<u8>(), |_| {});
        });
        ends.join().expect("no panic");
        let ends = thread::spawn(|| {
            visit(null::<u8>(), |_| {});
            LATE.with(|_| {});
        });
        ends.join().expect("no panic");
    }
}
