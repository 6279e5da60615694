//! `libtranship_malloc.so`: C's `malloc` and related functions, over the heap that the manager admits.
//!
//! `LD_PRELOAD` it, or link with it before the C library. The functions are those of malloc(3), posix_memalign(3),
//! malloc_usable_size(3), malloc_trim(3), malloc_info(3), malloc_stats(3) and mallinfo(3), C23's, and the names that
//! the GNU C library has besides; C++'s operators `new` and `delete` call `malloc` and `free`, and so come here. All of
//! them may be called by any thread and from a forked child; none from a signal handler.
//!
//! `unsafe` is here because these are C functions, with the contracts of their manual pages.
//!
//! NOT here: anything but these contracts.

mod aliases;
mod info;

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use tranship_sys::errno;

/// The tables of the allocator.
#[global_allocator]
static ALLOCATOR: heap::Tranship = heap::Tranship;

/// The least alignment of every block: `max_align_t`.
const ALIGN: usize = 16;
const PAGE: usize = 4096;

#[inline]
fn given(address: Option<NonNull<u8>>) -> *mut c_void {
    match address {
        Some(address) => address.as_ptr().cast(),
        None => refused(),
    }
}

#[cold]
fn refused() -> *mut c_void {
    errno::set(errno::NO_MEMORY);
    null_mut()
}

/// malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    given(heap::alloc(bytes, ALIGN))
}

/// calloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        Some(bytes) => given(heap::alloc_zeroed(bytes, ALIGN)),
        None => refused(),
    }
}

/// free(3). Leaves `errno` as it was.
///
/// # Safety
/// The rules of its manual page hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(address: *mut c_void) {
    if let Some(address) = NonNull::new(address.cast()) {
        // SAFETY: the caller promises it.
        unsafe { heap::free(address) };
    }
}

/// free_sized of C23: the size is not checked.
///
/// # Safety
/// The rules of [`free`] hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(address: *mut c_void, _bytes: usize) {
    // SAFETY: passed on.
    unsafe { free(address) };
}

/// free_aligned_sized of C23: neither is checked.
///
/// # Safety
/// The rules of [`free`] hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(address: *mut c_void, _align: usize, _bytes: usize) {
    // SAFETY: passed on.
    unsafe { free(address) };
}

/// realloc(3); of size 0 it frees, as the GNU C library does.
///
/// # Safety
/// The rules of its manual page hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(address: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = NonNull::new(address.cast()) else {
        return malloc(bytes);
    };
    if bytes == 0 {
        // SAFETY: the caller promises it.
        unsafe { heap::free(old) };
        return null_mut();
    }
    // SAFETY: as above.
    given(unsafe { heap::resize(old, bytes, ALIGN) })
}

/// reallocarray(3).
///
/// # Safety
/// The rules of [`realloc`] hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    address: *mut c_void,
    count: usize,
    bytes: usize,
) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: passed on.
        Some(bytes) => unsafe { realloc(address, bytes) },
        None => refused(),
    }
}

/// posix_memalign(3): returns the error number, and leaves `errno` alone.
///
/// # Safety
/// `result` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    bytes: usize,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return errno::INVALID;
    }
    match heap::alloc(bytes, align.max(ALIGN)) {
        Some(address) => {
            // SAFETY: the caller promises it.
            unsafe { result.write(address.as_ptr().cast()) };
            0
        }
        None => errno::NO_MEMORY,
    }
}

/// aligned_alloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        errno::set(errno::INVALID);
        return null_mut();
    }
    given(heap::alloc(bytes, align.max(ALIGN)))
}

/// memalign(3): an alignment that is no power of two is rounded up to the next one.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => aligned_alloc(align, bytes),
        None => refused(),
    }
}

/// valloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    given(heap::alloc(bytes, PAGE))
}

/// pvalloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(PAGE) {
        Some(bytes) => given(heap::alloc(bytes, PAGE)),
        None => refused(),
    }
}

/// malloc_usable_size(3).
///
/// # Safety
/// The rules of its manual page hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(address: *mut c_void) -> usize {
    // SAFETY: the caller promises it.
    NonNull::new(address.cast()).map_or(0, |address| unsafe { heap::usable(address) })
}
