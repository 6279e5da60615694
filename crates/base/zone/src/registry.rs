//! Indices and identities of zones.
//!
//! An index is small and used again after its zone is gone; an identity is never used again, and a thread's cache is
//! checked against it.

use crate::lock::Lock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

struct Registry {
    /// The smallest first: the first indices have places that are found faster.
    free: BinaryHeap<Reverse<usize>>,
    next_index: usize,
    next_identity: u64,
}

static REGISTRY: Lock<Registry> = Lock::new(Registry {
    free: BinaryHeap::new(),
    next_index: 0,
    next_identity: 1,
});

/// An index and an identity of its own, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) index: usize,
    pub(crate) number: u64,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let mut registry = REGISTRY.lock();
        let free = registry.free.pop().map(|Reverse(index)| index);
        let index = free.unwrap_or_else(|| {
            registry.next_index += 1;
            registry.next_index - 1
        });
        let number = registry.next_identity;
        registry.next_identity += 1;
        Self { index, number }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        REGISTRY.lock().free.push(Reverse(self.index));
    }
}

/// Takes the lock before a fork.
pub(crate) fn hold() {
    REGISTRY.hold();
}

/// Releases the lock.
///
/// # Safety
/// The rules of [`Lock::release`] hold.
pub(crate) unsafe fn release() {
    // SAFETY: passed on to the caller.
    unsafe { REGISTRY.release() };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Zone, ZoneConfig};
    use std::sync::mpsc::channel;

    struct Nothing;

    impl Backend for Nothing {
        fn import(&self, _out: &mut Vec<u32>, _want: usize) {}
        fn release(&self, _items: &[u32]) {}
    }

    /// A fork waits for the holder of the lock, even if no zone takes part in reclamation.
    #[test]
    fn a_child_can_make_zones_whatever_its_parents_threads_were_doing() {
        let make = || drop(Zone::new(ZoneConfig::for_item(64), Nothing));
        make();
        let (held, holds) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let registry = REGISTRY.lock();
                held.send(()).expect("awaited");
                (0..10_000).for_each(|_| std::thread::yield_now());
                drop(registry);
            });
            holds.recv().expect("held");
            // SAFETY: the child makes a zone, which is to survive a fork, and ends, by SIGALRM if it hangs.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                // SAFETY: as above.
                unsafe { libc::alarm(60) };
                make();
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: our own child.
            let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!((waited, status), (pid, 0));
        });
    }
}
