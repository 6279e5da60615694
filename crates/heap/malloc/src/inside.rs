//! Whether the calling thread is at work inside the allocator.
//!
//! Allocations by the allocator's own code meanwhile (tables, messages, needs of the C library) must not come from the
//! zones, whose locks and caches the thread may hold. They come from [`meta`](crate::meta).

use std::cell::Cell;
use tranship_sys::errno;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Says whether the calling thread is inside.
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Marks the calling thread as inside, for as long as this value lives. Leaves `errno` as it was, as `free` has to.
#[derive(Debug)]
pub(crate) struct Inside {
    errno: i32,
}

impl Inside {
    pub(crate) fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside {
            errno: errno::get(),
        }
    }
}

/// Marks a thread that ends as inside, like [`Inside::enter`], until [`leave`]: it gives its caches back.
pub(crate) fn enter() {
    DEPTH.set(DEPTH.get() + 1);
}

/// Ends what [`enter`] began.
pub(crate) fn leave() {
    DEPTH.set(DEPTH.get() - 1);
}

impl Drop for Inside {
    fn drop(&mut self) {
        errno::set(self.errno);
        DEPTH.set(DEPTH.get() - 1);
    }
}
