//! A turn for other threads before a sleep.

use std::time::{Duration, Instant};
use tranship_sync::atomic::{AtomicU32, Ordering};

/// A turn that takes longer goes to threads that have other work.
const LONG: Duration = Duration::from_micros(50);
/// Most sleeps without a turn before them.
const MOST: u32 = 1024;

/// The turns that a waiting end gives to other threads (`sched_yield`) before it sleeps, as long as they bring what it
/// waits for.
///
/// If both ends run on one processor, the other end answers in that turn. Neither end sleeps then, and neither is woken.
/// After a turn of no use, the sleeps that follow have none: one at first, and up to 1024 after further such turns.
#[derive(Debug, Default)]
pub struct Turns {
    /// Sleeps until the next turn.
    left: AtomicU32,
    /// Sleeps that were left out after the last turn.
    pause: AtomicU32,
}

impl Turns {
    /// Gives other threads a turn, if turns have been of use. True: `ready` says that the wait is over.
    pub fn give(&self, ready: impl FnOnce() -> bool) -> bool {
        // Relaxed, here and below: a count that another thread changes costs a turn.
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            return false;
        }
        let begun = Instant::now();
        std::thread::yield_now();
        let is_ready = ready();
        let pause = match is_ready && begun.elapsed() < LONG {
            true => 0,
            false => (2 * self.pause.load(Ordering::Relaxed)).clamp(1, MOST),
        };
        self.pause.store(pause, Ordering::Relaxed);
        self.left.store(pause, Ordering::Relaxed);
        is_ready
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn turns_of_no_use_become_rare() {
        let turns = Turns::default();
        let mut given = 0;
        for _ in 0..4 * MOST {
            assert!(!turns.give(|| {
                given += 1;
                false
            }));
        }
        // After 1, 2, 4 sleeps and so on, and then after each 1024.
        assert_eq!(given, 1 + 10 + 2);
    }
}
