//! The C library's own functions, behind ours.
//!
//! glibc exports its allocator under a second name, so that nothing needs to be looked up before the first allocation.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    pub(crate) fn __libc_malloc(bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_realloc(at: *mut c_void, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_free(at: *mut c_void);
    pub(crate) fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
}

/// The C library's allocator, as Rust's.
pub(crate) struct System;

// SAFETY: the C library's allocator; every block is as long and aligned as asked.
unsafe impl GlobalAlloc for System {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no precondition.
        unsafe {
            if layout.align() <= 16 {
                __libc_malloc(layout.size()).cast()
            } else {
                __libc_memalign(layout.align(), layout.size()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: no precondition.
            return unsafe { __libc_calloc(1, layout.size()).cast() };
        }
        // SAFETY: as long as the layout says, if it is there.
        unsafe {
            let at = self.alloc(layout);
            if !at.is_null() {
                at.write_bytes(0, layout.size());
            }
            at
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, _layout: Layout) {
        // SAFETY: from one of the above.
        unsafe { __libc_free(at.cast()) };
    }
}

/// A function that was there before us.
macro_rules! next {
    ($place:expr; $($name:ident: fn($($arg:ident: $of:ty),*) -> $ret:ty;)*) => {
        $(
            pub(crate) unsafe fn $name($($arg: $of),*) -> $ret {
                static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                let name = concat!(stringify!($name), "\0");
                let found = look_up(&FOUND, name, $place);
                // SAFETY: the C library's function of that name, which has this type.
                let call = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($of),*) -> $ret>(found)
                };
                // SAFETY: passed on to the caller.
                unsafe { call($($arg),*) }
            }
        )*
    };
}

fn look_up(
    found: &AtomicPtr<c_void>,
    name: &'static str,
    place: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    // Relaxed: whoever looks twice finds the same.
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a name with its end.
    let known = unsafe { libc::dlsym(place(), name.as_ptr().cast()) };
    assert!(!known.is_null(), "the C library has no {name}");
    found.store(known, Ordering::Relaxed);
    known
}

next! {
    || libc::RTLD_NEXT;
    write: fn(fd: c_int, from: *const c_void, len: usize) -> isize;
    writev: fn(fd: c_int, pieces: *const libc::iovec, count: c_int) -> isize;
    send: fn(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> isize;
    sendto: fn(fd: c_int, from: *const c_void, len: usize, flags: c_int, to: *const libc::sockaddr, to_len: libc::socklen_t) -> isize;
    sendmsg: fn(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize;
    close: fn(fd: c_int) -> c_int;
    close_range: fn(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup2: fn(from: c_int, to: c_int) -> c_int;
    dup3: fn(from: c_int, to: c_int, flags: c_int) -> c_int;
}

// Whose blocks are asked about: the next one may be another allocator's, with which the program is linked.
next! {
    c_library;
    malloc_usable_size: fn(at: *mut c_void) -> usize;
}

/// Where names are looked for in the C library alone; where it goes by another name, behind us.
fn c_library() -> *mut c_void {
    // SAFETY: a name with its end; nothing is loaded.
    let handle =
        unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    match handle.is_null() {
        true => libc::RTLD_NEXT,
        false => handle,
    }
}
