//! Leaving: a domain without public handles says goodbye as soon as nothing of it is in use.
//!
//! Its pools, links and buffers may outlive its handles. Such a domain is on a list meanwhile. An object whose end
//! calls code here (a link, a pool, a listener, a heap) checks whether it was the last. The end of a buffer calls none:
//! it is noticed by the next `turn` of any domain of the process, and by the next domain that joins.

use super::state::DomainCore;
use crate::base::{lock, retired};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tranship_proto::Request;

/// How long a goodbye may wait for a manager that does not read. Without it, the process's end serves as goodbye.
const FAREWELL: Duration = Duration::from_secs(1);
/// Time between two looks of `turn` at the list.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a thread that puts a domain on the list tries to take the lock; a forked child may find the lock held for
/// ever.
const TRIES: u32 = 1000;

static LEFT: Mutex<Vec<DomainCore>> = Mutex::new(Vec::new());
/// The number of domains on the list: without any, no thread looks.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// A thread is looking at the whole list.
static LOOKING: AtomicBool = AtomicBool::new(false);
static LOOKED: Mutex<Option<Instant>> = Mutex::new(None);

impl DomainCore {
    /// Puts a domain that is still in use on the list. Returns `false` if the lock stays held.
    pub(super) fn leaves_later(&self) -> bool {
        for _ in 0..TRIES {
            if let Ok(mut left) = LEFT.try_lock() {
                left.push(self.clone());
                WAITING.fetch_add(1, Ordering::Relaxed); // under the lock
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Handles that an object of the domain is gone: perhaps it was the last.
    pub fn let_go(&self) {
        // Ordering: relaxed, partner: the store in `leave`; the registers' locks order them.
        if self.life.left.load(Ordering::Relaxed) && self.is_idle() {
            let Ok(mut left) = LEFT.try_lock() else {
                return; // the next look finds it
            };
            let found = left.iter().position(|core| core.is(self));
            let over = found.map(|at| left.swap_remove(at));
            WAITING.store(left.len(), Ordering::Relaxed);
            drop(left);
            // The thread that took the domain off the list says goodbye.
            if let Some(over) = over {
                over.say_goodbye();
            }
        }
    }

    /// Looks now and then at domains that may have become idle unnoticed; called from `turn`, of any domain.
    #[inline]
    pub(super) fn look_at_left(&self) {
        if WAITING.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Ok(mut looked) = LOOKED.try_lock() {
            let now = Instant::now();
            if looked.is_none_or(|looked| now.duration_since(looked) >= PAUSE) {
                *looked = Some(now);
                drop(looked);
                look();
            }
        }
    }

    /// Says whether nothing of the domain is in use.
    pub(super) fn is_idle(&self) -> bool {
        self.register.is_idle() && !self.exports.has_listener()
    }

    pub(super) fn say_goodbye(&self) {
        let foreign = self.register.all_foreign();
        foreign.iter().for_each(|pool| pool.detach_all());
        drop(foreign);
        let over: Vec<_> = self.register.with_foreign(|all| all.drain().collect());
        over.into_iter().for_each(|(_, over)| retired::retire(over));
        self.life.closed.store(true, Ordering::Release);
        self.tasks.kick();
        let mut conn = lock(&self.conn);
        let _ = conn.send(&Request::Goodbye, &[]);
        conn.flush_for(FAREWELL);
        if let Some(fd) = conn.fd() {
            let _ = self.poller.remove(fd);
        }
        conn.down();
        drop(conn);
        retired::reclaim();
        // An embedded manager ends with its domain.
        drop(lock(&self.life.embedded).take());
    }
}

/// Says goodbye for domains that have become idle unnoticed.
pub fn look() {
    // Ordering: Acquire, partner: the Release at the end; one thread at a time.
    if LOOKING.swap(true, Ordering::Acquire) {
        return; // also in a domain's own `turn`, below
    }
    let all = LEFT.try_lock().map(|left| left.clone()).unwrap_or_default();
    for core in all.iter().filter(|core| !core.fork.is_child()) {
        // No other thread works for the domain any more. Its pools must still be taken down, and their buffers freed
        // that readers release.
        if core.is_managed() {
            let _ = core.work();
        } else {
            core.tend_pools();
        }
        core.let_go();
    }
    LOOKING.store(false, Ordering::Release);
}
