//! References that one thread counts without locked instructions: biased reference counting (Choi, Shull and Torrellas,
//! PACT 2018), with one word for a counter.
//!
//! A receipt of the buffer and a clone of a handle raise a domain's `ref` of a slot; the drop of a handle lowers it. As
//! long as one thread alone receives out of a pool:
//! * Only that thread raises a `ref` of 0, because a thread that clones or drops has a handle, which is counted.
//! * Only that thread changes a `ref` of 1 whose handle it drops, because there is no other handle, and no other thread
//!   receives.
//!
//! These two changes are therefore a load and a store. All other changes, and all changes by other threads, are
//! read-modify-writes. Another thread that is about to receive ends that first, for ever:
//!
//! | the thread that received alone | the other one |
//! |---|---|
//! | marks that it is in the pool | says that no thread is alone any more |
//! | (the compiler keeps the order) | has every thread of the process pass a fence |
//! | looks whether it is alone | waits until each thread that is marked to be in the pool has been out once |

use std::ptr;
use tranship_sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use tranship_sync::{Mark, Marks, light_fence};

use crate::transfer::raise;

/// The thread that receives out of a pool without locked instructions: none yet, the thread that has a mark, or none
/// any more.
#[derive(Debug)]
pub struct Bias {
    who: AtomicPtr<Mark>,
}

/// Two threads receive, or have received.
const SHARED: *mut Mark = ptr::without_provenance_mut(1);
/// No thread receives alone soon; a thread that has not seen this may still be in the pool.
const ENDING: *mut Mark = ptr::without_provenance_mut(2);

impl Bias {
    /// Makes a bias whose first receiving thread receives alone.
    #[cfg(not(loom))]
    pub const fn new() -> Bias {
        Bias {
            who: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Makes such a bias in a model.
    #[cfg(loom)]
    pub fn new() -> Bias {
        Bias {
            who: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Makes a bias by which no thread ever receives alone: where threads cannot be made to pass a fence.
    pub fn never() -> Bias {
        Bias {
            who: AtomicPtr::new(SHARED),
        }
    }

    /// Says whether the thread with this mark receives alone. In a visit to the pool by that mark; it stays so until
    /// the visit's end.
    #[inline(always)]
    fn is_of(&self, mark: &Mark) -> bool {
        // Ordering: the mark before the look (partner: `share`). The processor's half is the fence that the thread
        // which ends this makes all threads pass.
        light_fence();
        // Relaxed: the thread looks for its own mark, stored by itself or by the thread that had the mark before.
        ptr::eq(self.who.load(Ordering::Relaxed), mark)
    }

    /// Counts a reference that is received and that needs no check: by plain stores, if the thread with the mark
    /// receives alone; otherwise by `shared`, which is [`receive_shared`](Bias::receive_shared). `at` is the value by
    /// which visits to the pool are marked.
    #[inline(always)]
    pub fn receive(
        &self,
        mark: Option<&Mark>,
        at: *const (),
        refs: &AtomicU32,
        shared: impl FnOnce(),
    ) {
        let alone = |mark: &Mark| mark.visit(at, || self.raise(mark, refs));
        if !mark.is_some_and(alone) {
            shared();
        }
    }

    /// Counts a received reference by a read-modify-write, after which a fence may come
    /// ([`still_names`](crate::still_names)). Arguments and blocking are those of [`share`](Bias::share).
    #[inline]
    pub fn receive_shared(
        &self,
        mark: Option<&Mark>,
        marks: &Marks,
        at: *const (),
        refs: &AtomicU32,
        fence_all: impl FnOnce(),
    ) {
        self.share(mark, marks, at, fence_all);
        raise(refs);
    }

    /// Counts a reference that is received; false, and nothing is done, if it takes a read-modify-write. In a visit to the pool.
    #[inline(always)]
    fn raise(&self, mark: &Mark, refs: &AtomicU32) -> bool {
        // Ordering: acquire; partner is the release with which other handles went: the collector, which sees only what is stored next, sees what was
        // read under them.
        let alone = self.is_of(mark) && refs.load(Ordering::Acquire) == 0;
        if alone {
            // Ordering: relaxed; the release of `rcvd` shows it.
            refs.store(1, Ordering::Relaxed);
        }
        alone
    }

    /// Drops the last reference, in a visit to the pool. Returns false, and does nothing, if this needs a
    /// read-modify-write.
    #[inline(always)]
    pub fn release(&self, mark: &Mark, refs: &AtomicU32) -> bool {
        // Ordering: acquire, as in `raise`: of handles that went before this last one.
        let alone = self.is_of(mark) && refs.load(Ordering::Acquire) == 1;
        if alone {
            // Ordering: release; partner is the collector's acquire of `ref`, as in `release` of `transfer.rs`.
            refs.store(0, Ordering::Release);
        }
        alone
    }

    /// Prepares a receipt by a read-modify-write. Afterwards only the caller, with or without the mark, may receive
    /// alone. The caller is in no visit. `at` is the value by which visits to the pool are marked; `fence_all` makes
    /// every thread of the process pass a fence.
    ///
    /// Blocks once in the pool's life: for a system call, and for a few instructions of another thread.
    pub fn share(
        &self,
        mark: Option<&Mark>,
        marks: &Marks,
        at: *const (),
        fence_all: impl FnOnce(),
    ) {
        let mine = mark.map_or(SHARED, |mark| ptr::from_ref(mark).cast_mut());
        // Ordering: acquire; partner is the release at the end of this: every thread in the pool knows of it.
        let mut who = self.who.load(Ordering::Acquire);
        if who.is_null() {
            match self
                .who
                .compare_exchange(who, mine, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(other) => who = other,
            }
        }
        if who == SHARED || who == mine {
            return;
        }
        // Ordering: relaxed; the fences order it. A thread that finds it ending does all of this too.
        self.who.store(ENDING, Ordering::Relaxed);
        // Ordering: partner: the compiler's fence in `is_of`, which this makes a whole one.
        fence(Ordering::SeqCst);
        fence_all();
        // A thread that comes in later finds it ending.
        marks.wait_out(at);
        // Ordering: release; partner is the acquire above.
        self.who.store(SHARED, Ordering::Release);
    }
}

impl Default for Bias {
    fn default() -> Bias {
        Bias::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_counts_alone_until_another_one_receives() {
        let marks = Marks::new();
        let (mine, theirs) = (marks.take(), marks.take());
        let (bias, refs) = (Bias::new(), AtomicU32::new(0));
        let at = ptr::from_ref(&bias).cast();
        let share = |mark| {
            let mut fenced = false;
            bias.share(mark, &marks, at, || fenced = true);
            fenced
        };
        assert!(!bias.raise(mine, &refs), "nobody is the one yet");
        assert!(!share(Some(mine)) && !share(Some(mine)));
        assert!(!bias.raise(theirs, &refs) && bias.raise(mine, &refs));
        assert!(!bias.raise(mine, &refs), "one is held");
        refs.fetch_add(1, Ordering::Relaxed);
        assert!(!bias.release(mine, &refs), "two are held");
        refs.fetch_sub(1, Ordering::Relaxed);
        assert!(!bias.release(theirs, &refs) && bias.release(mine, &refs));
        assert_eq!(refs.load(Ordering::Relaxed), 0);
        assert!(share(Some(theirs)), "the first one is told by a fence");
        assert!(!share(Some(theirs)) && !share(Some(mine)) && !share(None));
        for mark in [mine, theirs] {
            assert!(!bias.raise(mark, &refs));
        }
        assert!(!Bias::never().raise(mine, &refs));
    }

    #[test]
    fn who_has_no_mark_ends_it_too() {
        let marks = Marks::new();
        let mine = marks.take();
        let (bias, refs) = (Bias::new(), AtomicU32::new(0));
        let at = ptr::from_ref(&bias).cast();
        bias.share(None, &marks, at, || panic!("nobody was the one"));
        bias.share(Some(mine), &marks, at, || panic!("nobody can become it"));
        assert!(!bias.raise(mine, &refs));
    }
}
