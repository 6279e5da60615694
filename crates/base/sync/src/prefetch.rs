//! Prefetching a cache line before it is needed. These are hints: they change nothing and never fault.

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

/// Drops a line from all caches, before [`prefetch_write`], if the processor needs that. The contents stay.
///
/// An AMD processor keeps a line that it wrote, and that others have read since by a read-only mapping, as a shared one.
/// Its prefetch for writing does nothing for a shared line. Other processors do nothing here, and the result is false.
#[inline(always)]
pub fn drop_shared<T>(line: &T) -> bool {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    if shared::is_kept() {
        // SAFETY: the line is mapped, as the reference says; no value changes.
        unsafe {
            std::arch::asm!("clflushopt [{}]", in(reg) std::ptr::from_ref(line), options(nostack, preserves_flags));
        }
        return true;
    }
    let _ = line;
    false
}

/// Whether the processor keeps shared lines.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod shared {
    use std::arch::x86_64::__cpuid_count;
    use std::sync::atomic::{AtomicU8, Ordering};

    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;

    static KEPT: AtomicU8 = AtomicU8::new(UNKNOWN);

    #[inline(always)]
    pub(super) fn is_kept() -> bool {
        // Ordering: relaxed; every thread finds the same value.
        match KEPT.load(Ordering::Relaxed) {
            UNKNOWN => ask(),
            kept => kept == YES,
        }
    }

    /// Asks the processor for its maker, and whether it has the instruction.
    #[cold]
    fn ask() -> bool {
        let (most, amd) = {
            let leaf = __cpuid_count(0, 0);
            let maker = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
            (leaf.eax, maker.as_flattened() == b"AuthenticAMD")
        };
        let is_kept = amd && most >= 7 && __cpuid_count(7, 0).ebx & 1 << 23 != 0;
        // Ordering: as above.
        KEPT.store(if is_kept { YES } else { NO }, Ordering::Relaxed);
        is_kept
    }
}
