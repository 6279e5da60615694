//! A sender's place on the page.

use super::layout::{HEAD, HEAD_UNSEEN, LEFT, OWNER, PLACE, PLACES};
use super::own;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_sys::{ForkGuard, process};

#[derive(Debug)]
pub(crate) struct Tally(Option<Claimed>);

#[derive(Debug)]
struct Claimed {
    words: &'static [AtomicU64],
    /// A forked child has no such memory.
    guard: ForkGuard,
    file: RawFd,
}

// All relaxed: counts, on which nothing else depends.
impl Tally {
    /// Takes a place of one's own, or none if all are taken.
    pub(crate) fn claim() -> Tally {
        Tally(own::page().and_then(|page| {
            let places = page.words[HEAD..].chunks_exact(PLACE).take(PLACES);
            let me = u64::from(process::gettid());
            for words in places {
                let owner = words[OWNER].load(Ordering::Relaxed);
                let free = owner == 0 || owner == LEFT;
                // Ordering: acquire, partner of the release in `drop`: its counts are added to.
                if free
                    && words[OWNER]
                        .compare_exchange(owner, me, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    return Some(Claimed {
                        words,
                        guard: page.guard,
                        file: page.file.as_raw_fd(),
                    });
                }
            }
            page.words[HEAD_UNSEEN].fetch_add(1, Ordering::Relaxed);
            None
        }))
    }

    /// Returns the descriptor by which others find the page.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.0.as_ref().map(|place| place.file)
    }

    /// Returns the word at a position: it may be of a sender that had the place before.
    pub(crate) fn get(&self, at: usize) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |place| place.words[at].load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, at: usize, to: u64) {
        if let Some(place) = &self.0 {
            place.words[at].store(to, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(&self, at: usize, by: u64) {
        if let Some(place) = &self.0 {
            let word = &place.words[at];
            word.store(
                word.load(Ordering::Relaxed).wrapping_add(by),
                Ordering::Relaxed,
            );
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some(place) = &self.0
            && !place.guard.is_child()
        {
            // Ordering: release, see `claim`.
            place.words[OWNER].store(LEFT, Ordering::Release);
        }
    }
}
