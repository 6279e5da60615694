//! Pools that are over but that a thread is still in: handles point to their pool without counting.

use super::visits;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

/// How often a thread that retires a pool tries to take the lock; a forked child may find the lock held for ever.
const TRIES: u32 = 1000;

/// A pool that is off its domain's register: one of this domain, taken down, or another domain's, of which nothing is
/// held.
pub trait Retired: Send + Sync {
    /// Says whether this process is a forked child. A child keeps inherited pools, because it cannot check them.
    fn is_inherited(&self) -> bool;
    /// Says whether the pool's counters show that nothing of it is held here.
    fn nothing_held(&self) -> bool;
}

/// Says whether only the caller has the pool, and no thread is in it.
fn is_alone(pool: &Arc<dyn Retired>) -> bool {
    !pool.is_inherited()
        && is_last(pool)
        && pool.nothing_held()
        && visits::nobody(Arc::as_ptr(pool).cast::<()>())
}

/// Says whether the given handle is the only counted one.
fn is_last(pool: &Arc<dyn Retired>) -> bool {
    let last = Arc::strong_count(pool) == 1;
    // Ordering: Acquire pairs with the Release of the handles that went before: their counts are seen.
    fence(Ordering::Acquire);
    last
}

static RETIRED: Mutex<Vec<Arc<dyn Retired>>> = Mutex::new(Vec::new());

/// Keeps a pool until only this list has it.
pub fn retire(pool: Arc<dyn Retired>) {
    for _ in 0..TRIES {
        if let Ok(mut retired) = RETIRED.try_lock() {
            return retired.push(pool);
        }
        std::thread::yield_now();
    }
    std::mem::forget(pool);
}

/// Frees the kept pools that are alone; called from `turn`, of any domain.
pub fn reclaim() {
    let Ok(mut retired) = RETIRED.try_lock() else {
        return;
    };
    let over: Vec<_> = retired.extract_if(.., |pool| is_alone(pool)).collect();
    drop(retired);
    drop(over); // unmaps, without the lock
}
