//! A memory allocator whose heap the manager admits, limits and rebalances like a pool.
//!
//! ```text
//!   malloc, Vec, Box          fast path: the calling thread's buckets, nothing else
//!        │
//!   ┌────▼────┬──────────┬─────────────┐
//!   │ zones   │ pages    │ mappings    │  up to 1 MiB; the same, aligned to more than a page; above
//!   │   └── kegs ── arena│             │
//!   └────┬────┴─────┬────┴──────┬──────┘
//!        └──────────┴───────────┤
//!                            account ── link ──► manager: Admit, GiveBack, in steps of 1 MiB and more
//! ```
//!
//! ```
//! # mod tranship { pub mod malloc { pub use tranship_malloc::*; } }
//! #[global_allocator]
//! static ALLOCATOR: tranship::malloc::Tranship = tranship::malloc::Tranship;
//!
//! assert_eq!(vec![7; 1000].iter().sum::<i32>(), 7000);
//! ```
//!
//! The allocator joins the manager that `TRANSHIP_SOCKET` names. It starts none, and without a manager its memory is
//! not accounted for. `TRANSHIP_HEAP_MAX` (bytes, or with `KiB`, `MiB`, `GiB`) limits the heap, with a manager and
//! without. A refused allocation gives back all cached memory, and returns a null pointer. The allocator aborts in one
//! case only: memory is freed or resized that is not allocated (freed before, or not the beginning of a block).
//!
//! Free memory goes back while other memory is freed. A thread gives back the rest when the program falls silent. It
//! exists only while the heap is larger than 8 MiB (`docs/malloc.md`).
//!
//! `unsafe` is here because it is an allocator.
//!
//! NOT here: slabs, buckets and pages (`zone`), the C functions (`tranship-preload`), decisions about the division of
//! memory (the manager's).

#![warn(missing_docs, clippy::missing_errors_doc)]

mod account;
mod budget;
mod classes;
mod environment;
mod fork;
mod heap;
mod helper;
mod huge;
mod inside;
mod link;
mod marks;
mod meta;
mod raw;
mod window;
mod wrong;

pub use account::Usage;
pub use raw::{HeapStats, alloc, alloc_zeroed, free, resize, stats, trim, usable, usage};

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{NonNull, null_mut};

/// The process's heap, as Rust's allocator.
///
/// ```
/// # mod tranship { pub mod malloc { pub use tranship_malloc::*; } }
/// use tranship::malloc::{Tranship, usage};
///
/// #[global_allocator]
/// static ALLOCATOR: Tranship = Tranship;
///
/// let frame = vec![0u8; 8 << 20];
/// assert!(usage().used_bytes >= 8 << 20); // and within the admitted bytes, if there is a manager
/// # drop(frame);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Tranship;

// SAFETY: every block is at least as long and aligned as its layout says, no other code gets it until it is freed, and
// nothing here unwinds.
unsafe impl GlobalAlloc for Tranship {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let address = if inside::is_inside() {
            meta::alloc(layout.size(), layout.align())
        } else {
            heap::alloc(layout.size(), layout.align())
        };
        address.map_or(null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        if !inside::is_inside() {
            return heap::alloc_zeroed(bytes, align).map_or(null_mut(), NonNull::as_ptr);
        }
        let Some(address) = meta::alloc(bytes, align) else {
            return null_mut();
        };
        if !meta::is_zeroed(bytes, align) {
            // SAFETY: `bytes` that no other code knows.
            unsafe { address.write_bytes(0, bytes) };
        }
        address.as_ptr()
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, _layout: Layout) {
        if let Some(address) = NonNull::new(address) {
            // SAFETY: the caller promises it.
            unsafe { heap::free(address) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Some(address) = NonNull::new(address) else {
            return null_mut();
        };
        let align = layout.align();
        // SAFETY: the caller promises it.
        let address = unsafe {
            if !inside::is_inside() {
                heap::resize(address, bytes, align)
            } else if meta::owns(address.as_ptr()) {
                meta::resize(address, bytes, align)
            } else {
                heap::move_out(address, bytes, align)
            }
        };
        address.map_or(null_mut(), NonNull::as_ptr)
    }
}
