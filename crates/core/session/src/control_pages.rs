//! The manager's control page, and the position up to which its news were taken.

use crate::base::lock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tranship_region::layout::ControlPageRo;

/// The control pages of one manager after another.
pub(super) struct ControlPages {
    /// The current page. A new manager's page is mapped over it, because a thread may be reading it.
    now: AtomicPtr<ControlPageRo>,
    /// All pages so far: a thread may be reading an older one.
    all: Mutex<Vec<Arc<ControlPageRo>>>,
    /// The control page's `wake` up to which events were taken. Changes under the socket's lock.
    seen: AtomicU32,
}

impl ControlPages {
    pub(super) fn new(control_page: ControlPageRo) -> ControlPages {
        let control_page = Arc::new(control_page);
        ControlPages {
            now: AtomicPtr::new(Arc::as_ptr(&control_page).cast_mut()),
            all: Mutex::new(vec![control_page]),
            seen: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> &ControlPageRo {
        let control_page = self.now.load(Ordering::Acquire);
        // SAFETY: one of `all`, of which none is taken away as long as the state lives; the manager writes the page,
        // which `ControlPageRo` reads only through atomics.
        unsafe { &*control_page }
    }

    /// Puts the new control page in the old one's place; one of another size is put beside it. Nothing of the new page
    /// was seen yet.
    pub(super) fn set(&self, control_page: ControlPageRo) {
        if let Err(control_page) = self.now().show_instead(control_page) {
            let control_page = Arc::new(control_page);
            let at = Arc::as_ptr(&control_page).cast_mut();
            lock(&self.all).push(control_page);
            // Ordering: Release here pairs with the Acquire in `now`.
            self.now.store(at, Ordering::Release);
        }
        self.seen.store(0, Ordering::Relaxed);
    }

    /// Returns the control page's `wake` now.
    #[inline]
    pub(super) fn wake(&self) -> u32 {
        // Ordering: Acquire pairs with the manager's Release after its datagram went into this domain's socket.
        self.now().wake().load(Ordering::Acquire)
    }

    /// Returns the word as an address for a futex.
    pub(super) fn wake_word(&self) -> &AtomicU32 {
        // SAFETY: control pages stay mapped as long as the domain's state lives; the manager writes the word, we only
        // load it.
        unsafe { &*self.now().wake_ptr() }
    }

    pub(super) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Says whether the manager has news for this domain. Cost: one load of a line that rarely changes.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.wake() != self.seen.load(Ordering::Acquire)
    }

    /// Says that all news up to `wake` have been taken: a thread that finds no news sees their effects.
    pub(super) fn took(&self, wake: u32) {
        // Ordering: Release pairs with the Acquire in `has_news`.
        self.seen.store(wake, Ordering::Release);
    }

    /// Says that the news up to `wake` were not taken, and are not to be looked for at the moment.
    pub(super) fn skip(&self, wake: u32) {
        self.seen.store(wake, Ordering::Relaxed);
    }
}
