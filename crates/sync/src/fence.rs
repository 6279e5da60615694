//! A fence that is free where a locked instruction has just been one.

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
