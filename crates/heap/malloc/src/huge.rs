//! Blocks that are too large for the arena: a mapping for each, charged like everything else.

use crate::account;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use tranship_items::lock::Lock;
use tranship_sys::map;

/// Addresses and lengths.
static MAPPINGS: Lock<BTreeMap<usize, usize>> = Lock::new(BTreeMap::new());

/// Makes a mapping of zeros, aligned to `align`; `None` if it is refused.
pub(crate) fn alloc(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let page = tranship_sys::page_size();
    let len = bytes.checked_next_multiple_of(page)?;
    if !account::charge(len as u64) {
        return None;
    }
    let Ok(address) = map::reserve_private(len, align.max(page)) else {
        account::discharge(len as u64);
        return None;
    };
    MAPPINGS.lock().insert(address.addr().get(), len);
    Some(address)
}

/// Returns the length of the mapping that begins there.
pub(crate) fn len(address: NonNull<u8>) -> Option<usize> {
    MAPPINGS.lock().get(&address.addr().get()).copied()
}

/// Unmaps a block; returns `false` if no mapping of the heap begins there.
///
/// # Safety
/// Nothing uses the block any more.
pub(crate) unsafe fn free(address: NonNull<u8>) -> bool {
    let Some(len) = MAPPINGS.lock().remove(&address.addr().get()) else {
        return false;
    };
    // SAFETY: our own mapping, which nothing uses any more.
    if unsafe { map::unmap(address, len) }.is_ok() {
        account::discharge(len as u64);
    }
    true
}

/// Gives a mapping another length; it may move. Returns `None`, and changes nothing, if that is refused.
///
/// # Safety
/// `address` is from [`alloc`]. Nothing uses the mapping meanwhile, nor, if it moves, the old address afterwards.
pub(crate) unsafe fn resize(address: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
    let new = bytes.checked_next_multiple_of(tranship_sys::page_size())?;
    let old = len(address)?;
    if new > old && !account::charge((new - old) as u64) {
        return None;
    }
    // The mapping is not listed under its old address while it moves: another thread may get that address for a mapping
    // of its own.
    MAPPINGS.lock().remove(&address.addr().get());
    // SAFETY: a whole mapping of ours; the caller promises the rest.
    let moved = unsafe { map::resize_private(address, old, new) };
    let (at, len) = match moved {
        Ok(at) => (at, new),
        Err(_) => (address, old),
    };
    MAPPINGS.lock().insert(at.addr().get(), len);
    let unused = if moved.is_ok() {
        old.saturating_sub(new)
    } else {
        new.saturating_sub(old)
    };
    account::discharge(unused as u64);
    moved.ok()
}

/// Returns the number of mappings, and their bytes.
pub(crate) fn usage() -> (usize, u64) {
    let mappings = MAPPINGS.lock();
    (
        mappings.len(),
        mappings.values().map(|len| *len as u64).sum(),
    )
}

/// Takes the lock before a fork.
pub(crate) fn hold() {
    MAPPINGS.hold();
}

/// Releases the lock after a fork.
///
/// # Safety
/// The rules of [`Lock::release`] hold.
pub(crate) unsafe fn release() {
    // SAFETY: passed on.
    unsafe { MAPPINGS.release() };
}
