//! malloc(3) and its kin.

use crate::inside::inside;
use crate::next;
use crate::state;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use tranship_sys::errno;

const PAGE: usize = 4096;

/// Returns memory of the twin allocator; none if it has none, and for its own tables.
fn twin(bytes: usize) -> Option<NonNull<u8>> {
    inside(|| state::own()?.alloc_raw(bytes).ok()).flatten()
}

fn is_large(bytes: usize) -> bool {
    bytes >= state::wishes().least && bytes <= isize::MAX.unsigned_abs()
}

/// Asks the program's own allocator, or nobody while that allocator is looked for.
fn rest(ask: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if next::is_looking() {
        errno::set(errno::NO_MEMORY);
        return std::ptr::null_mut();
    }
    ask()
}

/// malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // The environment is read at the first large one: before, the C library may not be ready for it.
    if bytes >= PAGE
        && is_large(bytes)
        && let Some(at) = twin(bytes)
    {
        return at.as_ptr().cast();
    }
    rest(|| {
        // SAFETY: no precondition.
        unsafe { next::malloc(bytes) }
    })
}

/// calloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    if let Some(all) = count.checked_mul(bytes)
        && all >= PAGE
        && is_large(all)
        && let Some(at) = inside(|| state::own()?.alloc_raw_zeroed(all).ok()).flatten()
    {
        return at.as_ptr().cast();
    }
    rest(|| {
        // SAFETY: no precondition.
        unsafe { next::calloc(count, bytes) }
    })
}

/// free(3). Leaves `errno` as it was.
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    let Some(start) = NonNull::new(at.cast::<u8>()) else {
        return;
    };
    match state::arena_of(start.as_ptr()) {
        Some(arena) => {
            let before = errno::get();
            // Memory that an arena frees is never freed inside of it: its own tables are the C library's. SAFETY: the
            // caller promises it.
            unsafe { arena.free_raw(start) };
            errno::set(before);
        }
        None if next::is_looking() => {}
        // SAFETY: the caller promises it.
        None => unsafe { next::free(at) },
    }
}

/// free_sized(3) of C23: as free(3).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(at: *mut c_void, _bytes: usize) {
    // SAFETY: passed on.
    unsafe { free(at) };
}

/// free_aligned_sized(3) of C23: as free(3).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(at: *mut c_void, _align: usize, _bytes: usize) {
    // SAFETY: passed on.
    unsafe { free(at) };
}

/// malloc_trim(3): trims the memory that the twin allocator keeps for later, and calls the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(keep_bytes: usize) -> c_int {
    let ours = inside(|| state::made().is_some_and(zcopy::Arena::trim)).unwrap_or(false);
    // SAFETY: no precondition.
    let theirs = unsafe { next::malloc_trim(keep_bytes) };
    c_int::from(ours) | theirs
}

/// realloc(3).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(start) = NonNull::new(at.cast::<u8>()) else {
        return malloc(bytes);
    };
    let Some(arena) = state::arena_of(start.as_ptr()) else {
        // SAFETY: the caller promises it.
        return unsafe { grown(at, bytes) };
    };
    if bytes == 0 {
        // SAFETY: the caller promises it.
        unsafe { free(at) };
        return std::ptr::null_mut();
    }
    let has = arena.usable(start).unwrap_or(0);
    if bytes <= has && bytes * 2 >= has {
        return at;
    }
    // A block that grows is likely to go on growing, and each time all of it is copied. So it gets addresses for an
    // eighth more, which take no memory before they are written.
    let ahead = bytes.checked_add(has / 8).filter(|_| bytes > has);
    let mut to = ahead.map_or(std::ptr::null_mut(), |ahead| malloc(ahead));
    if to.is_null() {
        to = malloc(bytes);
    }
    if !to.is_null() {
        // SAFETY: both are as long as that; the old one is the caller's to give.
        unsafe { moved(at, to, has.min(bytes)) };
    }
    to
}

/// Copies a block's content to its new place, and frees the block.
///
/// # Safety
/// Both are as long as that, and nobody uses them.
unsafe fn moved(at: *mut c_void, to: *mut c_void, bytes: usize) {
    // SAFETY: passed on.
    unsafe {
        to.cast::<u8>()
            .copy_from_nonoverlapping(at.cast::<u8>(), bytes);
        free(at);
    }
}

/// realloc(3) of a block of the program's own allocator. A block that becomes large moves to the twin allocator, if
/// that has room. A block that was large already stays: moving it is that allocator's work.
///
/// # Safety
/// As realloc(3).
unsafe fn grown(at: *mut c_void, bytes: usize) -> *mut c_void {
    if next::is_looking() {
        errno::set(errno::NO_MEMORY);
        return std::ptr::null_mut();
    }
    if bytes >= PAGE && is_large(bytes) && next::knows_its_blocks() {
        // SAFETY: the caller promises it.
        let has = unsafe { next::malloc_usable_size(at) };
        if !is_large(has)
            && let Some(to) = twin(bytes)
        {
            // SAFETY: the old one is as long as that, and the new one is longer; the old one is the caller's to give.
            unsafe { moved(at, to.as_ptr().cast(), has) };
            return to.as_ptr().cast();
        }
    }
    // SAFETY: the caller promises it.
    unsafe { next::realloc(at, bytes) }
}

/// reallocarray(3).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(at: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: passed on.
        Some(all) => unsafe { realloc(at, all) },
        None => {
            errno::set(errno::NO_MEMORY);
            std::ptr::null_mut()
        }
    }
}

/// malloc_usable_size(3).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> usize {
    match NonNull::new(at.cast::<u8>()) {
        None => 0,
        Some(start) => match state::arena_of(start.as_ptr()) {
            Some(arena) => arena.usable(start).unwrap_or(0),
            // SAFETY: the caller promises it.
            None => unsafe { next::malloc_usable_size(at) },
        },
    }
}

/// Returns a large block of the twin allocator, whose large values begin with a page.
fn aligned_twin(align: usize, bytes: usize) -> Option<*mut c_void> {
    if align > PAGE || bytes < PAGE || !is_large(bytes) {
        return None;
    }
    let at = twin(bytes)?;
    if at.addr().get().is_multiple_of(align.max(1)) {
        return Some(at.as_ptr().cast());
    }
    // SAFETY: just allocated, and nobody knows it.
    unsafe { free(at.as_ptr().cast()) };
    None
}

/// memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    aligned_twin(align, bytes).unwrap_or_else(|| {
        rest(|| {
            // SAFETY: no precondition that a caller could break.
            unsafe { next::memalign(align, bytes) }
        })
    })
}

/// aligned_alloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    aligned_twin(align, bytes).unwrap_or_else(|| {
        rest(|| {
            // SAFETY: no precondition that a caller could break.
            unsafe { next::aligned_alloc(align, bytes) }
        })
    })
}

/// valloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    memalign(PAGE, bytes)
}

/// pvalloc(3): whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(PAGE) {
        Some(whole) => memalign(PAGE, whole),
        None => {
            errno::set(errno::NO_MEMORY);
            std::ptr::null_mut()
        }
    }
}

/// posix_memalign(3).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    let before = errno::get();
    let fits = align.is_power_of_two() && align.is_multiple_of(size_of::<*mut c_void>());
    let at = if fits {
        aligned_twin(align, bytes)
    } else {
        None
    };
    errno::set(before);
    match at {
        Some(at) => {
            // SAFETY: the caller's place for it.
            unsafe { to.write(at) };
            0
        }
        None if next::is_looking() => libc::ENOMEM,
        // SAFETY: the caller promises it.
        None => unsafe { next::posix_memalign(to, align, bytes) },
    }
}

/// Allocates memory of the twin allocator, whatever its size (ZCopy, section 3.2.1). A null pointer and `ENOMEM` if it
/// has none.
#[unsafe(no_mangle)]
pub extern "C" fn zc_malloc(bytes: usize) -> *mut c_void {
    match twin(bytes.max(1)) {
        Some(at) => at.as_ptr().cast(),
        None => {
            errno::set(errno::NO_MEMORY);
            std::ptr::null_mut()
        }
    }
}

/// Frees memory of [`zc_malloc`].
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zc_free(at: *mut c_void) {
    // SAFETY: passed on.
    unsafe { free(at) };
}
