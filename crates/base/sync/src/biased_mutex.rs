//! A lock that its first thread takes by plain stores, as long as no other thread comes.
//!
//! ```text
//! first thread: busy; [compiler fence]; shut?        another: lock; shut, for ever; membarrier; until not busy
//! ```
//! Either the first thread sees that the gate is shut and takes the lock as all do, or the other one waits for its end.
//! The model of [`Gate`] covers both (`tests/tso_biased.rs`).

use crate::atomic::{AtomicU64, Ordering};
use crate::biased::Gate;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread's number. No other thread of the process has it, before or after.
fn me() -> u64 {
    thread_local! { static ME: Cell<u64> = const { Cell::new(0) }; }
    ME.with(|me| match me.get() {
        0 => {
            static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
            me.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
            me.get()
        }
        number => number,
    })
}

/// A value under a lock. The first thread that takes the lock needs no locked instruction for it, until another thread
/// takes it once. From then on it is a mutex for all threads.
///
/// A thread that panics with the lock lets go of it: the value's user answers for what is left half changed.
pub struct BiasedMutex<T> {
    /// The first thread's number. 0: there is none yet.
    first: AtomicU64,
    /// The first thread's gate. It is shut for ever by another thread, under the lock.
    gate: Gate,
    lock: Mutex<()>,
    fence: fn() -> bool,
    value: UnsafeCell<T>,
}

// SAFETY: at most one thread at a time has the value: the first one while `busy` with the gate found open, or the thread
// with the lock, which shut the gate, made every thread pass a fence, and then found the first one not busy.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

/// A thread's turn at the value.
pub struct BiasedGuard<'a, T> {
    mutex: &'a BiasedMutex<T>,
    /// `None`: the first thread's, by its gate. It also keeps the guard in its thread.
    lock: Option<MutexGuard<'a, ()>>,
}

// SAFETY: a shared guard gives a shared value.
unsafe impl<T: Sync> Sync for BiasedGuard<'_, T> {}

impl<T> BiasedMutex<T> {
    /// Makes a lock. `fence` makes every running thread of the process pass a fence; false: it cannot, and the lock is a
    /// mutex from the beginning.
    pub fn new(value: T, fence: fn() -> bool) -> BiasedMutex<T> {
        let gate = Gate::default();
        if !fence() {
            gate.shut();
        }
        BiasedMutex {
            first: AtomicU64::new(0),
            gate,
            lock: Mutex::new(()),
            fence,
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock. Blocks while another thread has it; a thread that has it already waits for ever, or panics.
    #[inline(always)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        // Relaxed: a thread looks for its own number, which only itself has stored.
        let is_first = self.first.load(Ordering::Relaxed) == me();
        match is_first && !self.gate.is_busy() && self.gate.begin() {
            true => BiasedGuard {
                mutex: self,
                lock: None,
            },
            false => self.lock_slow(),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) -> BiasedGuard<'_, T> {
        let none_yet = self
            .first
            .compare_exchange(0, me(), Ordering::Relaxed, Ordering::Relaxed);
        let is_first = none_yet.is_ok() || none_yet == Err(me());
        // Only this thread is ever busy there.
        assert!(
            !(is_first && self.gate.is_busy()),
            "a thread takes a lock that it has"
        );
        if none_yet.is_ok() && self.gate.begin() {
            return BiasedGuard {
                mutex: self,
                lock: None,
            };
        }
        BiasedGuard {
            mutex: self,
            lock: Some(self.lock_as_all()),
        }
    }

    fn lock_as_all(&self) -> MutexGuard<'_, ()> {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.gate.is_shut() {
            self.gate.shut();
            // It could when this was made.
            assert!((self.fence)(), "membarrier does not work any more");
        }
        // From here on the first thread finds the gate shut; it may still be inside, as it came before.
        let mut looks = 0u32;
        while self.gate.is_busy() {
            looks += 1;
            match looks < 64 {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        lock
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Lets go of the lock, sleeps until it is told, at most `limit`, and takes the lock again. It may come back for no
    /// reason: the caller looks again.
    #[must_use = "the lock is gone with it"]
    pub fn wait(mut self, told: &Condvar, limit: Option<Duration>) -> Self {
        let mutex = self.mutex;
        let lock = match self.lock.take() {
            Some(lock) => {
                std::mem::forget(self);
                match limit {
                    Some(limit) => {
                        let woken = told.wait_timeout(lock, limit);
                        woken.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => told.wait(lock).unwrap_or_else(PoisonError::into_inner),
                }
            }
            // The first thread waits for another one: it takes the lock as all do. The value may have changed meanwhile.
            None => {
                drop(self);
                mutex.lock_as_all()
            }
        };
        BiasedGuard {
            mutex,
            lock: Some(lock),
        }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the value, as above.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has the value, as above, and is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.lock.is_none() {
            self.mutex.gate.end();
        }
    }
}

impl<T> fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedMutex").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for BiasedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedGuard").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    // In these tests the other thread comes after what the first one does, or waits for it by other means.
    static FENCES: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn the_first_thread_has_it_by_its_gate_until_another_one_comes() {
        let mutex = BiasedMutex::new(0, || FENCES.fetch_add(1, SeqCst) < 2);
        for _ in 0..3 {
            let mut guard = mutex.lock();
            assert!(guard.lock.is_none());
            *guard += 1;
        }
        assert_eq!(FENCES.load(SeqCst), 1);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut guard = mutex.lock();
                assert!(guard.lock.is_some());
                *guard += 1;
            });
            other.join().expect("the other one");
        });
        assert_eq!(FENCES.load(SeqCst), 2);
        let guard = mutex.lock();
        assert!(guard.lock.is_some());
        assert_eq!(*guard, 4);
    }

    #[test]
    fn without_a_fence_it_is_a_mutex() {
        let mutex = BiasedMutex::new(7, || false);
        assert!(mutex.lock().lock.is_some());
        assert_eq!(*mutex.lock(), 7);
    }

    #[test]
    fn another_thread_waits_until_the_first_one_is_out_and_it_for_the_other() {
        let mutex = BiasedMutex::new(0, || true);
        let told = Condvar::new();
        let guard = mutex.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *mutex.lock() += 5; // not before the first thread waits
                told.notify_all();
            });
            let mut guard = guard;
            assert_eq!(*guard, 0);
            while *guard == 0 {
                guard = guard.wait(&told, None);
            }
            assert_eq!(*guard, 5);
        });
    }

    #[test]
    #[should_panic(expected = "a lock that it has")]
    fn a_thread_that_takes_it_twice_panics() {
        let mutex = BiasedMutex::new((), || true);
        let _first = mutex.lock();
        let _second = mutex.lock();
    }
}
