//! Finds out which bitwise copy of a `tranship_buf` still has its content: the copy that was not used yet.
//!
//! A ticket, a place and a turn name the content of a buf. Taking the content out begins the place's next turn, so that a
//! copy with the old turn is found. Places are never freed: a copy of any age can be looked at. Each thread has a list of
//! free places, so that a ticket costs no atomic exchange. A long list gives half to the other threads.

use crate::open::end_program;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Number of places that go from one thread to another at once.
const BATCH: u32 = 32;

/// The place where turns are counted.
#[derive(Debug)]
struct TurnWord {
    turn: AtomicU64,
    /// The next free one, while this one is free.
    next: AtomicPtr<TurnWord>,
}

/// Mark of a buf that has a content.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Ticket {
    place: &'static TurnWord,
    turn: u64,
}

impl Ticket {
    /// Makes the ticket of a content that was just put into a buf.
    #[inline(always)]
    pub(crate) fn begin() -> Ticket {
        let place = FREE.try_with(Free::take).unwrap_or_else(|_| alone());
        // Relaxed: a thread gets a place through a lock or a buf that was passed on.
        let turn = place.turn.load(Ordering::Relaxed);
        Ticket { place, turn }
    }

    /// Returns whether the ticket's content is still in its buf.
    #[inline(always)]
    pub(crate) fn is_good(self) -> bool {
        // Relaxed: as above. Two threads with a copy each are a race of the caller's, which is found as often as not.
        self.place.turn.load(Ordering::Relaxed) == self.turn
    }

    /// Ends the ticket: its content was taken.
    #[inline(always)]
    pub(crate) fn end(self) {
        // Relaxed: as above.
        let next = self.turn.wrapping_add(1);
        self.place.turn.store(next, Ordering::Relaxed);
        // At a thread's end it stays unused: nobody has more than a few then.
        let _ = FREE.try_with(|free| free.put(self.place));
    }
}

/// The calling thread's free places, one behind the other.
struct Free {
    first: Cell<*const TurnWord>,
    count: Cell<u32>,
}

thread_local! {
    static FREE: Free = const {
        Free {
            first: Cell::new(ptr::null()),
            count: Cell::new(0),
        }
    };
}

/// Places that threads have too many of, or had at their end.
static SPARE: Mutex<Vec<(&'static TurnWord, u32)>> = Mutex::new(Vec::new());

impl Free {
    #[inline(always)]
    fn take(&self) -> &'static TurnWord {
        // SAFETY: null, or a place, which is there for ever.
        let place = unsafe { self.first.get().as_ref() };
        let place = place.unwrap_or_else(|| self.fetch());
        self.first.set(place.next.load(Ordering::Relaxed)); // the list is this thread's
        self.count.set(self.count.get().wrapping_sub(1));
        place
    }

    #[inline(always)]
    fn put(&self, place: &'static TurnWord) {
        place
            .next
            .store(self.first.get().cast_mut(), Ordering::Relaxed); // as in `take`
        self.first.set(place);
        self.count.set(self.count.get() + 1);
        if self.count.get() >= 2 * BATCH {
            self.give();
        }
    }

    /// There are none: the first of a list of some.
    #[cold]
    #[inline(never)]
    fn fetch(&self) -> &'static TurnWord {
        let spare = soon(&SPARE).and_then(|mut spare| spare.pop());
        let (first, count) = spare.unwrap_or_else(|| (fresh(), BATCH));
        self.count.set(count);
        first
    }

    /// There are many: a batch of them is for others.
    #[cold]
    #[inline(never)]
    fn give(&self) {
        let Some(mut spare) = soon(&SPARE) else {
            return; // they are given with the next
        };
        // SAFETY: as in `take`; there are more than a batch.
        let next = |place: *const TurnWord| unsafe { &*place }.next.load(Ordering::Relaxed);
        let first = self.first.get();
        let last = (1..BATCH).fold(first, |at, _| next(at));
        self.first.set(next(last));
        self.count.set(self.count.get() - BATCH);
        // SAFETY: as above.
        let (first, last) = unsafe { (&*first, &*last) };
        last.next.store(ptr::null_mut(), Ordering::Relaxed);
        spare.push((first, BATCH));
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        // SAFETY: as in `take`.
        let first = unsafe { self.first.get().as_ref() };
        if let (Some(first), Some(mut spare)) = (first, soon(&SPARE)) {
            spare.push((first, self.count.get()));
        }
    }
}

/// A batch that nobody had yet.
fn fresh() -> &'static TurnWord {
    let mut next = ptr::null_mut();
    for _ in 0..BATCH {
        next = Box::leak(Box::new(TurnWord {
            turn: AtomicU64::new(0),
            next: AtomicPtr::new(next),
        }));
    }
    // SAFETY: the last of them, which is there for ever.
    unsafe { &*next }
}

/// One for a thread whose list is gone already.
#[cold]
fn alone() -> &'static TurnWord {
    Box::leak(Box::new(TurnWord {
        turn: AtomicU64::new(0),
        next: AtomicPtr::default(),
    }))
}

/// The lock, or nothing after many tries: in a forked child the holder may be a thread of the parent's.
fn soon<T>(of: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        match of.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// A copy was used whose contents went by another one.
#[cold]
#[inline(never)]
pub(crate) fn used_up(kind: &str, at: *const std::ffi::c_void, len: usize) -> ! {
    end_program(&format!(
        "a tranship_buf was used after its contents were released, sent or given away through a bitwise copy of it: {kind} of {len} bytes at {at:?}. \
         Use one copy alone, or make a handle that counts by tranship_buf_clone"
    ))
}
