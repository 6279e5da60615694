//! Total store order, explored exhaustively: all that x86-64 may do with a few threads that run code over
//! [`atomic`].
//!
//! Each thread has a store buffer, out of which its stores reach memory one by one, in their order, at any later
//! moment. It sees them at once. Locked instructions and fences wait until it is empty. A fence that [all
//! threads](fence_everybody) pass is over when each buffer was empty once since it began. This model covers a case that
//! loom cannot: code that leaves a fence out because another thread pays for it. loom covers a case that this model
//! cannot: orders that the compiler may change.
//!
//! The code is the product's own. Only the threads' actions are bounded. `tranship-sync` takes its atomics from here
//! under `--cfg loom`; without it this crate is empty.
//!
//! NOT here: the models themselves (each crate's `tests/tso_models`), weaker memory than x86-64's (loom).
#![cfg(loom)]
#![deny(unsafe_code)]

pub mod atomic;
mod explore;
mod session;

pub use explore::{Model, Outcome};

use atomic::AtomicU32;
use session::{Op, is_running, perform};

/// Returns when every thread has passed a fence: `membarrier(2)`. Under loom it does nothing: there
/// [`light_fence`](atomic::light_fence) is a full one.
pub fn fence_everybody() {
    if is_running() {
        perform(Op::FenceEverybody);
    }
}

/// Sleeps until one of the words is woken, unless a word differs from the value that was seen, as the kernel does. The
/// sleep has no time limit, so that a lost wake-up is noticed. Returns false at once if no exploration runs here.
pub fn sleep_on<'a>(words: impl Iterator<Item = (&'a AtomicU32, u32)>) -> bool {
    let is_running = is_running();
    if is_running {
        let words = words.filter_map(|(word, seen)| Some((word.word()?, u64::from(seen))));
        perform(Op::Sleep(words.collect()));
    }
    is_running
}

/// Wakes one thread that sleeps on the word: the first of the model's. Returns how many were found, or `None` if no exploration
/// runs here.
pub fn wake_one(word: &AtomicU32) -> Option<usize> {
    let word = word.word()?;
    usize::try_from(perform(Op::WakeOne(word))).ok()
}

/// Wakes all threads that sleep on the word. Returns false at once if no exploration runs here.
pub fn wake_all(word: &AtomicU32) -> bool {
    word.word().is_some_and(|word| {
        perform(Op::Wake(word));
        true
    })
}
