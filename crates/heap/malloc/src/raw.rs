//! The heap by plain addresses, for other faces (`tranship-preload`).

use crate::{account, heap};
use std::ptr::NonNull;

pub use crate::account::Usage;

/// The largest allocation, bytes: the range over which pointers can be subtracted.
const MAX_BYTES: usize = isize::MAX as usize;

/// The heap's figures, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Pages of small and middle allocations, those in caches included.
    pub used_bytes: u64,
    /// Free pages that still have memory.
    pub spare_bytes: u64,
    /// Mappings of large allocations.
    pub mappings: usize,
    /// Their bytes.
    pub mapped_bytes: u64,
}

/// Allocates at least `bytes`, with undefined contents, aligned to `align`. Returns `None` if that is refused, or
/// `align` is no power of two.
#[inline]
#[must_use]
pub fn alloc(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    if bytes > MAX_BYTES || !align.is_power_of_two() {
        return None;
    }
    heap::alloc(bytes, align)
}

/// Allocates a block of zeros.
#[inline]
#[must_use]
pub fn alloc_zeroed(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    if bytes > MAX_BYTES || !align.is_power_of_two() {
        return None;
    }
    heap::alloc_zeroed(bytes, align)
}

/// Takes memory back, on any thread. Leaves `errno` as it was. Aborts, with a line on standard error, if no allocated
/// block begins at `address`.
///
/// # Safety
/// `address` is from this heap and not freed, and nothing uses the memory there any more.
#[inline(always)]
pub unsafe fn free(address: NonNull<u8>) {
    // SAFETY: the caller promises it.
    unsafe { heap::free(address) }
}

/// Gives memory another size; it may move. Returns `None`, and changes nothing, if that is refused. Aborts like
/// [`free`].
///
/// # Safety
/// The rules of [`free`] hold.
#[must_use]
pub unsafe fn resize(address: NonNull<u8>, bytes: usize, align: usize) -> Option<NonNull<u8>> {
    if bytes > MAX_BYTES {
        return None;
    }
    // SAFETY: the caller promises it.
    unsafe { heap::resize(address, bytes, align) }
}

/// Returns how many bytes may be used at `address`; 0 if no allocated block begins there.
///
/// # Safety
/// `address` is from this heap and not freed.
#[must_use]
pub unsafe fn usable(address: NonNull<u8>) -> usize {
    heap::usable(address).unwrap_or(0)
}

/// Gives everything that is not in use back to the kernel and the manager: caches of all threads, empty slabs, free
/// pages.
pub fn trim() {
    heap::trim_all();
}

/// Returns the account's figures.
#[must_use]
pub fn usage() -> Usage {
    account::usage()
}

/// Returns the heap's figures.
#[must_use]
pub fn stats() -> HeapStats {
    let (arena, mappings, mapped_bytes) = heap::stats();
    HeapStats {
        used_bytes: arena.used_pages * tranship_items::PAGE,
        spare_bytes: (arena.committed_pages - arena.used_pages) * tranship_items::PAGE,
        mappings,
        mapped_bytes,
    }
}
