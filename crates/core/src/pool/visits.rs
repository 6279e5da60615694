//! Who is still inside a pool that it holds nothing of: a thread that has just let a handle's reference go has one more look
//! at the pool's words, and by then nothing else keeps the pool. Hazard pointers (Michael, IEEE TPDS 15(6), 2004), one a thread.

use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A thread's mark, on a cache line of its own. Never freed; a thread that ends leaves it to the next one.
#[repr(align(128))]
struct Mark {
    /// The pool that its thread is in, or none.
    pool: AtomicPtr<()>,
    taken: AtomicBool,
    next: *const Mark,
}

// SAFETY: `next` is written before the mark is shown, and points to another one, which is never freed.
unsafe impl Sync for Mark {}

/// All marks.
static FIRST: AtomicPtr<Mark> = AtomicPtr::new(null_mut());

/// A thread's claim to its mark.
struct Lease(Cell<Option<&'static Mark>>);

impl Drop for Lease {
    fn drop(&mut self) {
        MINE.set(null());
        if let Some(mark) = self.0.take() {
            // Ordering: Release pairs with the Acquire of the thread that takes it.
            mark.taken.store(false, Ordering::Release);
        }
    }
}

thread_local! {
    /// What `LEASE` holds, without the question whether the thread is ending.
    static MINE: Cell<*const Mark> = const { Cell::new(null()) };
    static LEASE: Lease = const { Lease(Cell::new(None)) };
}

/// Does what lets the caller's last hold on a pool go, and what is to be done in the pool after that: until the end of it
/// [`nobody`] is false. Not nested.
///
/// Cost: two plain stores to a line of the thread's own.
#[inline(always)]
pub(super) fn visit<P>(pool: *const P, what: impl FnOnce()) {
    let mine = MINE.get();
    if mine.is_null() {
        return visit_first(pool.cast(), what);
    }
    // SAFETY: marks are never freed, and this thread has it until its `LEASE` ends, which clears `MINE`.
    inside(unsafe { &*mine }, pool.cast(), what);
}

#[inline(always)]
fn inside(mark: &Mark, pool: *const (), what: impl FnOnce()) {
    // Ordering: Relaxed: whatever lets the hold go is a Release, and who learns from it that nobody holds the pool sees this.
    mark.pool.store(pool.cast_mut(), Ordering::Relaxed);
    what();
    // Ordering: Release pairs with the Acquire in `nobody`: what was done in the pool is over.
    mark.pool.store(null_mut(), Ordering::Release);
}

/// The first time in this thread; or one of the last, when its other thread-local values end: then for this time only.
#[cold]
fn visit_first(pool: *const (), what: impl FnOnce()) {
    let mark = take();
    let kept = LEASE.try_with(|lease| lease.0.set(Some(mark))).is_ok();
    if kept {
        MINE.set(mark);
    }
    inside(mark, pool, what);
    if !kept {
        mark.taken.store(false, Ordering::Release); // as in `Lease`
    }
}

/// A mark that nobody has, or a new one.
fn take() -> &'static Mark {
    let mut at = FIRST.load(Ordering::Acquire);
    // SAFETY: null, or a mark, which is never freed; here and below.
    while let Some(mark) = unsafe { at.as_ref() } {
        let free = |taken: &AtomicBool| {
            // Ordering: Acquire pairs with the Release of who had it.
            taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
        };
        if free(&mark.taken).is_ok() {
            return mark;
        }
        at = mark.next.cast_mut();
    }
    let new = Box::leak(Box::new(Mark {
        pool: AtomicPtr::default(),
        taken: AtomicBool::new(true),
        next: null(),
    }));
    let mut first = FIRST.load(Ordering::Relaxed);
    loop {
        new.next = first;
        // Ordering: Release shows the new mark's `next`; pairs with the Acquire loads of `FIRST`.
        match FIRST.compare_exchange_weak(first, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return new,
            Err(other) => first = other,
        }
    }
}

/// Whether no thread is inside a pool. For who has seen (Acquire) that nobody holds it and nobody can any more.
pub(super) fn nobody<P>(pool: *const P) -> bool {
    let mut at = FIRST.load(Ordering::Acquire).cast_const();
    // SAFETY: as in `take`.
    while let Some(mark) = unsafe { at.as_ref() } {
        // Ordering: Acquire pairs with the Release at the end of a visit.
        if std::ptr::eq(mark.pool.load(Ordering::Acquire), pool.cast()) {
            return false;
        }
        at = mark.next;
    }
    true
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
                visit(std::ptr::without_provenance::<u32>(at), || {
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
            visit(null::<u8>(), || {});
            let first = mine();
            visit(null::<u8>(), || {});
            (first, mine())
        });
        let (first, same) = first.join().expect("no panic");
        assert!(first != 0 && first == same);
        let count = || {
            let mut at = FIRST.load(Ordering::Acquire).cast_const();
            let mut count = 0;
            // SAFETY: as in `nobody`.
            while let Some(mark) = unsafe { at.as_ref() } {
                (count, at) = (count + 1, mark.next);
            }
            count
        };
        for _ in 0..1000 {
            thread::spawn(|| visit(null::<u8>(), || {}))
                .join()
                .expect("no panic");
        }
        assert!(count() < 500, "{}", count());
    }

    #[test]
    fn a_thread_that_ends_visits_too() {
        struct AtTheEnd;
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                let mut was_inside = false;
                visit(&raw const *self, || was_inside = !nobody(&raw const *self));
                assert!(was_inside && nobody(&raw const *self));
            }
        }
        thread_local! {
            static LATE: AtTheEnd = const { AtTheEnd };
        }
        let ends = thread::spawn(|| {
            // Ended in the opposite order of their first use, or in this one: once each way.
            LATE.with(|_| {});
            visit(null::<u8>(), || {});
        });
        ends.join().expect("no panic");
        let ends = thread::spawn(|| {
            visit(null::<u8>(), || {});
            LATE.with(|_| {});
        });
        ends.join().expect("no panic");
    }
}
