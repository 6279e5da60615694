//! Prefetching a cache line before it is needed. These are hints: they touch nothing and never fault.

/// Prefetches a line that will be read.
#[inline(always)]
pub fn prefetch_read(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; any address is allowed.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Prefetches a line for writing: it is fetched for this processor alone.
#[inline(always)]
pub fn prefetch_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; any address is allowed, also one that cannot be written.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
