//! Fences that cost nothing: where a locked instruction has just been one, and where another thread pays.

use crate::atomic::Ordering;

/// A sequentially consistent fence for who has just made a `SeqCst` read-modify-write and will load a word that it may
/// not load with `SeqCst` (one in a mapping that is read-only here, of which Rust defines relaxed loads alone).
///
/// On x86-64 every read-modify-write is a full barrier for the processor, so only the compiler is held back.
#[inline(always)]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    crate::atomic::fence(Ordering::SeqCst);
}

/// The cheap half of a fence between a store and a load, of which another thread pays the processor's half: between its own store and load it has
/// every thread pass a fence (`membarrier(2)`).
#[inline(always)]
pub fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    crate::modelled::light_fence();
}
