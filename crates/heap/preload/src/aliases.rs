//! Further names of the same functions in the GNU C library: a block of one of them can be freed by another.

use std::ffi::{c_int, c_void};

/// See [`malloc`](crate::malloc).
#[unsafe(no_mangle)]
pub extern "C" fn __libc_malloc(bytes: usize) -> *mut c_void {
    crate::malloc(bytes)
}

/// See [`calloc`](crate::calloc).
#[unsafe(no_mangle)]
pub extern "C" fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void {
    crate::calloc(count, bytes)
}

/// Does the work of [`realloc`](crate::realloc).
///
/// # Safety
/// The rules of its manual page hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_realloc(address: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: passed on.
    unsafe { crate::realloc(address, bytes) }
}

/// Does the work of [`free`](crate::free).
///
/// # Safety
/// The rules of its manual page hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_free(address: *mut c_void) {
    // SAFETY: passed on.
    unsafe { crate::free(address) };
}

/// Does the work of [`free`](crate::free).
///
/// # Safety
/// The rules of its manual page hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(address: *mut c_void) {
    // SAFETY: passed on.
    unsafe { crate::free(address) };
}

/// See [`memalign`](crate::memalign).
#[unsafe(no_mangle)]
pub extern "C" fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void {
    crate::memalign(align, bytes)
}

/// See [`valloc`](crate::valloc).
#[unsafe(no_mangle)]
pub extern "C" fn __libc_valloc(bytes: usize) -> *mut c_void {
    crate::valloc(bytes)
}

/// See [`pvalloc`](crate::pvalloc).
#[unsafe(no_mangle)]
pub extern "C" fn __libc_pvalloc(bytes: usize) -> *mut c_void {
    crate::pvalloc(bytes)
}

/// See [`mallopt`](crate::info::mallopt).
#[unsafe(no_mangle)]
pub extern "C" fn __libc_mallopt(option: c_int, value: c_int) -> c_int {
    crate::info::mallopt(option, value)
}
