//! A lock that survives `fork`.
//!
//! A mutex that another thread holds at a fork stays locked in the child for ever. These locks are all taken before a
//! fork and released on both sides after it (see `fork`). The mutexes of the standard library offer that only with a
//! guard that lives across the fork. There is no poisoning: code under these locks panics only if an invariant is
//! broken.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_sys::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// The lock is held, and a thread may sleep for it.
const WAITED: u32 = 2;

const SPINS: u32 = 100;

/// Mutual exclusion; not fair, not recursive.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches `value`.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    /// Makes a lock that is free.
    pub const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free and takes it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if !self.take() {
            self.wait();
        }
        Guard { lock: self }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.take().then(|| Guard { lock: self })
    }

    #[inline]
    fn take(&self) -> bool {
        // Ordering: Acquire pairs with the release in `give`.
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
            std::hint::spin_loop();
        }
        // Ordering: Acquire pairs with the release in `give`.
        while self.word.swap(WAITED, Ordering::Acquire) != FREE {
            // After a failure (another word, interrupted) the loop just looks again.
            let _ = futex::private::wait(&raw const self.word, WAITED, None);
        }
    }

    #[inline]
    fn give(&self) {
        // Ordering: Release pairs with the acquire of the thread that takes the lock next.
        if self.word.swap(FREE, Ordering::Release) == WAITED {
            let _ = futex::private::wake(&raw const self.word, 1);
        }
    }

    /// Takes the lock without a guard, before a fork.
    pub fn hold(&self) {
        std::mem::forget(self.lock());
    }

    /// Releases a lock that [`hold`](Self::hold) took.
    ///
    /// # Safety
    /// The calling thread (or the one it was forked from) called `hold`, and there is no guard.
    pub unsafe fn release(&self) {
        self.give();
    }
}

impl<T> Lock<T> {
    /// Returns the value, while the lock is held without a guard.
    ///
    /// # Safety
    /// The rules of [`release`](Self::release) hold, and there is no other reference to the value.
    #[allow(clippy::mut_from_ref, reason = "who holds the lock has the value")]
    pub unsafe fn held(&self) -> &mut T {
        // SAFETY: passed on to the caller.
        unsafe { &mut *self.value.get() }
    }
}

/// The lock is held for as long as this lives.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `self` is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.give();
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock")
            .field("word", &self.word)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_of_many_threads_are_not_lost() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(
            lock.try_lock().is_none(),
            "a failed attempt does not unlock"
        );
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
