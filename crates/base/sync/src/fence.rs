//! Fences that cost nothing, because a locked instruction came just before, or because another thread pays.

use crate::atomic::Ordering;

/// Fences sequentially, after a `SeqCst` read-modify-write and before a load that cannot be `SeqCst`. For a word in a
/// mapping that is read-only here, Rust defines relaxed loads only.
///
/// On x86-64 every read-modify-write is a full barrier for the processor, so this holds back only the compiler.
#[inline(always)]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    crate::atomic::fence(Ordering::SeqCst);
}

/// Does the cheap half of a fence between a store and a load. Another thread pays for the processor's half: between its
/// own store and load, it makes every thread pass a fence (`membarrier(2)`).
#[inline(always)]
pub fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    tranship_tso::atomic::light_fence();
}

/// Fences sequentially: all loads and stores before it come before all loads and stores after it.
///
/// On x86-64 it is a locked instruction on the own stack: a third of the time of `mfence`, which is what a
/// `fence(SeqCst)` becomes.
#[inline(always)]
pub fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    // SAFETY: it adds nothing to a word below the stack pointer's red zone or inside it: no value changes.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp - 64], 0", options(nostack));
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    crate::atomic::fence(Ordering::SeqCst);
}
