//! A value that one owner uses all the time without a locked instruction, and visitors now and then.
//!
//! ```text
//! owner: busy; [compiler fence]; shut?        visitor: lock; shut; membarrier; busy?
//! ```
//! Either the owner sees that the gate is shut and takes the lock, or the visitor sees that the owner is busy and
//! leaves. The zones' caches use the same order (`zone/cache.rs`).

use crate::atomic::{AtomicU32, Ordering};
use crate::light_fence;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The words by which an owner and a visitor see each other.
#[derive(Debug, Default)]
pub struct Gate {
    /// The owner is inside.
    busy: AtomicU32,
    /// A visitor is inside, or looks whether it may be.
    shut: AtomicU32,
}

impl Gate {
    /// Begins the owner's use. False if a visitor is there: the owner takes the lock instead.
    #[inline(always)]
    pub fn begin(&self) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        // Ordering: `busy` before the look at `shut`; the processor's half is the visitor's fence.
        light_fence();
        // Ordering: acquire; partner: the release in `open`. What a visitor did comes before.
        let is_open = self.shut.load(Ordering::Acquire) == 0;
        if !is_open {
            self.end();
        }
        is_open
    }

    /// Ends the owner's use.
    #[inline(always)]
    pub fn end(&self) {
        // Ordering: release; partner: the acquire in `is_busy`.
        self.busy.store(0, Ordering::Release);
    }

    /// Shuts the gate. The caller has the lock. Before its look at the owner it has every thread pass a fence.
    pub fn shut(&self) {
        // Ordering: relaxed; the fence follows.
        self.shut.store(1, Ordering::Relaxed);
    }

    /// Says whether the owner is inside.
    #[inline(always)]
    pub fn is_busy(&self) -> bool {
        // Ordering: acquire; partner: the release in `end`.
        self.busy.load(Ordering::Acquire) != 0
    }

    /// Opens the gate, before the visitor gives the lock back.
    pub fn open(&self) {
        // Ordering: release; partner: the acquire in `begin`.
        self.shut.store(0, Ordering::Release);
    }
}

struct Shared<T> {
    gate: Gate,
    /// Taken by visitors, by the owner while a visitor is there, and by looks at the value.
    lock: Mutex<()>,
    /// The owner is gone, and the value. Under the lock.
    over: AtomicU32,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: at most one thread at a time has the value: the owner while `busy` with the gate found open, or the thread
// with the lock that shut the gate and found the owner not busy, or the owner itself with the lock.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data that a panic could leave half changed but the value, which its user answers for.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner's handle. There is one.
pub struct Owned<T> {
    shared: Arc<Shared<T>>,
    /// The value is not this process's to drop.
    is_abandoned: bool,
}

/// A visitor's handle. It does not keep the value.
pub struct Visitor<T>(Weak<Shared<T>>);

/// Exclusive use by the owner.
pub struct Entered<'a, T> {
    shared: &'a Shared<T>,
    lock: Option<MutexGuard<'a, ()>>,
}

/// A look at the value by the owner's side.
pub struct Look<'a, T> {
    shared: &'a Shared<T>,
    _lock: MutexGuard<'a, ()>,
}

impl<T> Owned<T> {
    /// Makes a value's owner.
    pub fn new(value: T) -> Owned<T> {
        let shared = Arc::new(Shared {
            gate: Gate::default(),
            lock: Mutex::new(()),
            over: AtomicU32::new(0),
            value: UnsafeCell::new(ManuallyDrop::new(value)),
        });
        Owned {
            shared,
            is_abandoned: false,
        }
    }

    /// Begins the owner's use: two stores and a load, unless a visitor is there. Then it waits for the visitor's end.
    #[inline(always)]
    pub fn enter(&mut self) -> Entered<'_, T> {
        let shared = &*self.shared;
        let lock = match shared.gate.begin() {
            true => None,
            false => Some(shared.lock()),
        };
        Entered { shared, lock }
    }

    /// Looks at the value. Takes the lock: several threads may share this handle.
    pub fn look(&self) -> Look<'_, T> {
        // Nobody is inside by `enter`, which borrows this handle exclusively.
        Look {
            shared: &self.shared,
            _lock: self.shared.lock(),
        }
    }

    /// Makes a visitor's handle.
    pub fn visitor(&self) -> Visitor<T> {
        Visitor(Arc::downgrade(&self.shared))
    }

    /// Leaves the value as it is when this handle goes, in a forked child: a thread that is not there may have been inside.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
    }
}

impl<T> Visitor<T> {
    /// Says whether the owner is gone.
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Runs `visit` on the value, unless the owner is busy or gone. `fence` makes every running thread of the process pass a fence; false: it cannot.
    pub fn visit<R>(
        &self,
        fence: impl FnOnce() -> bool,
        visit: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let shared = self.0.upgrade()?;
        let lock = shared.lock();
        // Relaxed: under the lock.
        if shared.over.load(Ordering::Relaxed) != 0 {
            return None;
        }
        // Opens the gate again, however the visit ends; the lock is given back after it.
        let shut = Shut(&shared.gate);
        shared.gate.shut();
        if !fence() || shared.gate.is_busy() {
            return None;
        }
        // SAFETY: the lock is held, and the owner was not busy after a fence that followed `shut`: from here on it finds
        // the gate shut and waits for the lock.
        let done = visit(unsafe { &mut *shared.value.get() });
        drop(shut);
        drop(lock);
        Some(done)
    }
}

struct Shut<'a>(&'a Gate);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl<T> Drop for Owned<T> {
    /// Waits for a visitor's end. The value goes here, and not with a visitor.
    fn drop(&mut self) {
        if self.is_abandoned {
            return;
        }
        let _lock = self.shared.lock();
        // Relaxed: under the lock.
        self.shared.over.store(1, Ordering::Relaxed);
        // SAFETY: the owner is not inside, the lock excludes visitors and looks, and later ones find `over`.
        unsafe { ManuallyDrop::drop(&mut *self.shared.value.get()) };
    }
}

impl<T> fmt::Debug for Entered<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Look<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as `deref_mut`.
        unsafe { &*self.shared.value.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the owner's handle is borrowed exclusively; it is busy with the gate found open, or has the lock.
        unsafe { &mut *self.shared.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.lock.is_none() {
            self.shared.gate.end();
        }
    }
}

impl<T> Deref for Look<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock excludes visitors and other looks; the owner's handle is borrowed, so nobody has entered.
        unsafe { &*self.shared.value.get() }
    }
}

impl<T> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Visitor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_leaves_where_the_owner_is_busy_or_gone() {
        let mut owned = Owned::new(1);
        let visitor = owned.visitor();
        let visit = || visitor.visit(|| true, |value| std::mem::replace(value, 5));
        assert_eq!(visit(), Some(1));
        let entered = owned.enter();
        assert_eq!((*entered, visit()), (5, None));
        drop(entered);
        assert_eq!(visitor.visit(|| false, |_| ()), None, "no fence");
        let value = *owned.look();
        assert_eq!((value, visit()), (5, Some(5)));
        assert!(!visitor.is_over());
        drop(owned);
        assert!(visitor.is_over());
        assert_eq!(visit(), None);
    }

    #[test]
    fn the_owner_waits_for_a_visitor() {
        let mut owned = Owned::new(0);
        let visitor = owned.visitor();
        let (inside, at) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                visitor.visit(
                    || true,
                    |value| {
                        inside.send(()).expect("the owner waits");
                        std::thread::yield_now();
                        *value = 7;
                    },
                )
            });
            at.recv().expect("a visitor");
            assert_eq!(*owned.enter(), 7);
        });
        assert_eq!(*owned.enter(), 7);
    }
}
