//! How a writer is told of releases when it wants to be.
//!
//! | writer | reader |
//! |---|---|
//! | sets `relinquish` in its page, fences | `ref--`, fences |
//! | reads the reader's wake word | if that was the last one, and `relinquish` is set: |
//! | looks at `ref` (collects) | increments its wake word |
//! | waits on the word, if it is still what was read | wakes all waiters of the word |
//!
//! The two fences make it impossible that the writer does not see the `ref` fall *and* the reader does not see
//! `relinquish`. The word, read before the look, makes a wake-up count that comes before the wait.
//!
//! A thread that counts alone ([`Bias`](crate::Bias)) does not fence. What it let go of before it could see
//! `relinquish` is seen as soon as its store is, of which nobody tells: the writer looks again after a time that is
//! many times what that takes.

use tranship_sync::atomic::{AtomicU32, Ordering, fence};
use tranship_sync::{fence_after_rmw, light_fence};

/// The writer's word: whether it wants to hear of releases. Then it reads the wake words, and then looks.
pub fn want_releases(relinquish: &AtomicU32, wanted: bool) {
    // Crash: readers of a dead writer's page make useless wake-ups until they have unmapped it.
    relinquish.store(u32::from(wanted), Ordering::SeqCst);
    // Ordering: partner is the fence in `release_and_tell`.
    fence(Ordering::SeqCst);
}

/// Lowers `ref`. If it was the last reference and the writer wants to be told, this increments the reader's wake word,
/// and `wake_all` wakes the waiters of that word. `alone` releases without a read-modify-write if it can
/// ([`Bias::release`](crate::Bias::release)).
// Crash: a reader that dies before the wake-up leaves the writer asleep for the rest of a round, and leaves the reader
// set with its references.
#[inline(always)]
pub fn release_and_tell(
    refs: &AtomicU32,
    alone: impl FnOnce(&AtomicU32) -> bool,
    is_wanted: impl FnOnce() -> bool,
    wake: &AtomicU32,
    wake_all: impl FnOnce(),
) {
    if alone(refs) {
        // Ordering: `ref--` before the look; the processor's half is left out, and the writer knows it.
        light_fence();
    } else {
        // Ordering: release as in `release`; SeqCst, as the fence below is one only with it.
        if refs.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        // Ordering: partner is the fence in `want_releases`.
        fence_after_rmw();
    }
    if is_wanted() {
        tell(wake, wake_all);
    }
}

#[cold]
fn tell(wake: &AtomicU32, wake_all: impl FnOnce()) {
    // Ordering: release; partner is the writer's acquire load of the word, after which it sees the `ref` fallen.
    wake.fetch_add(1, Ordering::Release);
    wake_all();
}

#[cfg(all(test, not(loom)))]
mod tests;
