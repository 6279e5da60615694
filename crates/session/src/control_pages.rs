//! The manager's board, and up to where its news were taken.

use crate::base::lock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tranship_region::layout::BoardRo;

/// One manager's after the other.
pub(super) struct Boards {
    /// The current one. A new manager's is mapped over it, for a thread may be looking at it.
    now: AtomicPtr<BoardRo>,
    /// All that there were: a thread may be looking at an older one.
    all: Mutex<Vec<Arc<BoardRo>>>,
    /// The board's `wake` up to which events were taken. Changes under the socket's lock.
    seen: AtomicU32,
}

impl Boards {
    pub(super) fn new(board: BoardRo) -> Boards {
        let board = Arc::new(board);
        Boards {
            now: AtomicPtr::new(Arc::as_ptr(&board).cast_mut()),
            all: Mutex::new(vec![board]),
            seen: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> &BoardRo {
        let board = self.now.load(Ordering::Acquire);
        // SAFETY: one of `all`, of which none is taken away as long as the state lives; the manager writes the page, which
        // `BoardRo` reads only through atomics.
        unsafe { &*board }
    }

    /// The new board takes the old one's place; one of another size is put beside it. Nothing of it was seen.
    pub(super) fn set(&self, board: BoardRo) {
        if let Err(board) = self.now().show_instead(board) {
            let board = Arc::new(board);
            let at = Arc::as_ptr(&board).cast_mut();
            lock(&self.all).push(board);
            // Ordering: Release here pairs with the Acquire in `now`.
            self.now.store(at, Ordering::Release);
        }
        self.seen.store(0, Ordering::Relaxed);
    }

    /// The board's `wake` now.
    #[inline]
    pub(super) fn wake(&self) -> u32 {
        // Ordering: Acquire pairs with the manager's Release after its datagram went into our socket.
        self.now().wake().load(Ordering::Acquire)
    }

    /// The same word, for a futex.
    pub(super) fn wake_word(&self) -> &AtomicU32 {
        // SAFETY: boards stay mapped as long as the domain's state lives; the manager writes the word, we only load it.
        unsafe { &*self.now().wake_ptr() }
    }

    pub(super) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Whether the manager has something for us. One load of a line that rarely changes.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.wake() != self.seen.load(Ordering::Acquire)
    }

    /// What was announced up to there has been taken: who finds no news sees what they did.
    pub(super) fn took(&self, wake: u32) {
        // Ordering: Release pairs with the Acquire in `has_news`.
        self.seen.store(wake, Ordering::Release);
    }

    /// It was not, and is not to be looked for at the moment.
    pub(super) fn skip(&self, wake: u32) {
        self.seen.store(wake, Ordering::Relaxed);
    }
}
