//! Whether the calling thread is at work inside the allocator.
//!
//! What the allocator's own code allocates meanwhile (tables, messages, what the C library needs for it) must not come back
//! to the zones, whose locks and caches it may hold: it comes from [`meta`](crate::meta).

use std::cell::Cell;
use tranship_sys::errno;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Is it?
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// It is for as long as this lives. Leaves `errno` as it was, as `free` has to.
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

/// A thread that ends gives its caches back: as [`Inside::enter`], until [`leave`].
pub(crate) fn enter() {
    DEPTH.set(DEPTH.get() + 1);
}

/// See [`enter`].
pub(crate) fn leave() {
    DEPTH.set(DEPTH.get() - 1);
}

impl Drop for Inside {
    fn drop(&mut self) {
        errno::set(self.errno);
        DEPTH.set(DEPTH.get() - 1);
    }
}
