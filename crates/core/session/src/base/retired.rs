//! Pools that are over and that somebody is still in: handles point to their pool without counting.

use super::visits;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

/// How often somebody who retires a pool tries to; a forked child may find the lock held for ever.
const TRIES: u32 = 1000;

/// A pool that is off its domain's register: one's own, taken down, or another's, of which nothing is held.
pub trait Retired: Send + Sync {
    /// Whether this process is a forked child, which keeps what it inherited: it cannot look.
    fn is_inherited(&self) -> bool;
    /// Whether its counters say that nothing of it is held here.
    fn nothing_held(&self) -> bool;
}

/// Whether nobody has it but we, and nobody is in it.
fn is_alone(pool: &Arc<dyn Retired>) -> bool {
    !pool.is_inherited()
        && is_last(pool)
        && pool.nothing_held()
        && visits::nobody(Arc::as_ptr(pool).cast::<()>())
}

/// Whether ours is the only counted handle.
fn is_last(pool: &Arc<dyn Retired>) -> bool {
    let last = Arc::strong_count(pool) == 1;
    // Ordering: Acquire pairs with the Release with which the others went: what was counted under them is seen.
    fence(Ordering::Acquire);
    last
}

static RETIRED: Mutex<Vec<Arc<dyn Retired>>> = Mutex::new(Vec::new());

/// Keeps a pool until it is alone.
pub fn retire(pool: Arc<dyn Retired>) {
    for _ in 0..TRIES {
        if let Ok(mut retired) = RETIRED.try_lock() {
            return retired.push(pool);
        }
        std::thread::yield_now();
    }
    std::mem::forget(pool);
}

/// Frees those that are; called from `turn`, of any domain.
pub fn reclaim() {
    let Ok(mut retired) = RETIRED.try_lock() else {
        return;
    };
    let over: Vec<_> = retired.extract_if(.., |pool| is_alone(pool)).collect();
    drop(retired);
    drop(over); // unmaps, without the lock
}
