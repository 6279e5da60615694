//! Pools that are over, for a while: handles point to their pool without counting, and a thread that has just let the
//! last one go may still be a few instructions from its last look at the pool.

use super::{ForeignPool, OwnPool};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a pool is kept when nobody can name it any more.
const REST: Duration = Duration::from_secs(1);
/// How often somebody who buries a pool tries to; a forked child may find the lock held for ever.
const TRIES: u32 = 1000;

/// A pool that is off its domain's register.
pub(crate) enum Grave {
    /// One's own, taken down.
    Own(Arc<OwnPool>),
    /// Another's, of which nothing is held.
    Foreign(Arc<ForeignPool>),
}

impl Grave {
    /// Whether nobody has it but we. A forked child keeps what it inherited: it cannot look.
    fn is_alone(&self) -> bool {
        match self {
            Grave::Own(pool) => !pool.domain.fork.is_child() && Arc::strong_count(pool) == 1,
            Grave::Foreign(pool) => {
                !pool.domain.fork.is_child() && Arc::strong_count(pool) == 1 && pool.nothing_held()
            }
        }
    }
}

static GRAVES: Mutex<Vec<(Instant, Grave)>> = Mutex::new(Vec::new());

/// Keeps a pool until it is alone and has rested.
pub(crate) fn bury(grave: Grave) {
    for _ in 0..TRIES {
        if let Ok(mut graves) = GRAVES.try_lock() {
            return graves.push((Instant::now(), grave));
        }
        std::thread::yield_now();
    }
    std::mem::forget(grave);
}

/// Frees those that have rested; called from `turn`, of any domain.
pub(crate) fn decay() {
    let Ok(mut graves) = GRAVES.try_lock() else {
        return;
    };
    let over: Vec<_> = graves
        .extract_if(.., |(since, grave)| {
            since.elapsed() >= REST && grave.is_alone()
        })
        .collect();
    drop(graves);
    drop(over); // unmaps, without the lock
}
