//! The kernel's futexes as models see them: a wait has no limit, so that a wake-up that is lost is a deadlock.

use crate::wait::{Futex, Point, Waited};
use loom::sync::{Condvar, Mutex};
use std::convert::Infallible;
use std::time::Duration;
use tranship_sync::atomic::{AtomicU32, Ordering};

/// A single bucket for all words. As in the kernel, a word is compared under the lock under which wakers search for
/// waiters.
#[derive(Debug)]
struct Bucket {
    held: Mutex<()>,
    woken: Condvar,
}

loom::lazy_static! {
    static ref BUCKET: Bucket = Bucket { held: Mutex::new(()), woken: Condvar::new() };
}

/// The way in which the kernel waits.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    pub timed: bool,
}

/// Every wait bounded by a timer.
pub const TIMED: Kernel = Kernel { timed: true };

impl Futex for Kernel {
    type Error = Infallible;

    fn wait_any(&self, points: &[Point<'_>], _limit: Duration) -> Result<Waited, Infallible> {
        if tranship_tso::sleep_on(points.iter().map(|point| (point.wake, point.seen))) {
            return Ok(Waited::Woken);
        }
        let held = BUCKET.held.lock().expect("no panic");
        let same = |point: &Point<'_>| point.wake.load(Ordering::Relaxed) == point.seen;
        if points.iter().all(same) {
            drop(BUCKET.woken.wait(held));
        }
        Ok(Waited::Woken)
    }
}

/// Wakes all waiters: fewer wait here than a single wake-up wakes.
pub fn wake_some(word: &AtomicU32) {
    if tranship_tso::wake_all(word) {
        return;
    }
    let held = BUCKET.held.lock().expect("no panic");
    BUCKET.woken.notify_all();
    drop(held);
}
