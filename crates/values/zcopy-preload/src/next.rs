//! The functions behind ours: the C library's, and of the allocator that the program is linked with.
//!
//! Memory that is not the twin allocator's is that allocator's, whichever it is: blocks that it gave under other names
//! (`mallocx`, `valloc`) come to our free(3), and go to its. This library's own tables are the C library's, which glibc
//! exports under second names too.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_free(at: *mut c_void);
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
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

/// Functions that were there before us.
macro_rules! next {
    ($($name:ident: fn($($arg:ident: $of:ty),*) -> $ret:ty;)*) => {
        /// Addresses of the functions, once they were looked up.
        #[allow(non_upper_case_globals, reason = "names of functions")]
        mod found {
            $(pub(super) static $name: super::Found = super::Found::new(std::ptr::null_mut());)*
        }

        $(
            pub(crate) unsafe fn $name($($arg: $of),*) -> $ret {
                let found = look_up(&found::$name, concat!(stringify!($name), "\0"));
                // SAFETY: the next function of that name, which has this type.
                let call = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($of),*) -> $ret>(found)
                };
                // SAFETY: passed on to the caller.
                unsafe { call($($arg),*) }
            }
        )*

        /// Looks all up at once, as soon as the library is there: later a thread may hold a lock that the dynamic
        /// linker waits for.
        extern "C" fn look_all_up() {
            $(let _ = looked_up(&found::$name, concat!(stringify!($name), "\0"));)*
        }
    };
}

type Found = AtomicPtr<c_void>;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = look_all_up;

thread_local!(static LOOKING: Cell<bool> = const { Cell::new(false) });
/// Threads that look something up.
static LOOKERS: AtomicUsize = AtomicUsize::new(0);

/// Returns whether this thread is looking a function up. The dynamic linker of an old glibc asks for memory meanwhile:
/// the request is refused, because the linker has a place of its own. Memory that it frees then is left, because its
/// allocator is not known yet.
pub(crate) fn is_looking() -> bool {
    // Relaxed: a thread sees its own.
    LOOKERS.load(Ordering::Relaxed) > 0 && LOOKING.try_with(Cell::get).unwrap_or(false)
}

#[inline]
fn look_up(found: &Found, name: &'static str) -> *mut c_void {
    // Relaxed: a thread that looks twice finds the same.
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let known = looked_up(found, name);
    assert!(!known.is_null(), "no library behind this one has {name}");
    known
}

#[cold]
fn looked_up(found: &Found, name: &'static str) -> *mut c_void {
    let set = |looking| {
        LOOKING
            .try_with(|cell| cell.replace(looking))
            .unwrap_or(false)
    };
    let before = set(true);
    // Relaxed: see `is_looking`.
    LOOKERS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: a name with its end.
    let known = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    LOOKERS.fetch_sub(1, Ordering::Relaxed);
    set(before);
    found.store(known, Ordering::Relaxed);
    known
}

/// Returns whether the allocator is one library's, so that its blocks can be asked about. Some have no
/// `malloc_usable_size`, and the next one is the C library's, which would look into a block that is not its own.
pub(crate) fn knows_its_blocks() -> bool {
    static KNOWS: AtomicU8 = AtomicU8::new(0);
    // Relaxed: a thread that looks twice finds the same.
    match KNOWS.load(Ordering::Relaxed) {
        0 => {
            let malloc = library_of(look_up(&found::malloc, "malloc\0"));
            let asked = library_of(look_up(&found::malloc_usable_size, "malloc_usable_size\0"));
            KNOWS.store(1 + u8::from(malloc == asked), Ordering::Relaxed);
            malloc == asked
        }
        known => known == 2,
    }
}

/// Returns the address of the library that a function belongs to.
fn library_of(function: *mut c_void) -> usize {
    // SAFETY: all zeros is a library of no name at no place.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about.
    match unsafe { libc::dladdr(function, &raw mut about) } {
        0 => 0,
        _ => about.dli_fbase.addr(),
    }
}

next! {
    malloc: fn(bytes: usize) -> *mut c_void;
    calloc: fn(count: usize, bytes: usize) -> *mut c_void;
    realloc: fn(at: *mut c_void, bytes: usize) -> *mut c_void;
    free: fn(at: *mut c_void) -> ();
    memalign: fn(align: usize, bytes: usize) -> *mut c_void;
    aligned_alloc: fn(align: usize, bytes: usize) -> *mut c_void;
    posix_memalign: fn(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int;
    malloc_trim: fn(keep_bytes: usize) -> c_int;
    malloc_usable_size: fn(at: *mut c_void) -> usize;
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
