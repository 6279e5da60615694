//! Whether memory of the program's can be read: a bad pointer is `EFAULT` of the kernel's, not a signal in this
//! library.
//!
//! Only memory that is read here is asked about (lists of pieces, small headers); the kernel reads all else. Pages of
//! the stack that the thread runs on are asked about once: they stay as long as it does. Another page costs a system
//! call that does nothing (70 ns), and that every sandbox allows.

use std::cell::Cell;
use tranship_sys::{errno, map};

const PAGE: usize = 4096;
/// Most bytes of the stack above the caller's frame that are remembered.
const NEAR: usize = 64 << 10;

thread_local!(static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) });

/// Returns whether all of it can be read. Leaves `errno` as it was.
pub(crate) fn is_readable(at: *const u8, len: usize) -> bool {
    let Some(end) = at.addr().checked_add(len) else {
        return false;
    };
    let mark = 0u8;
    let here = (&raw const mark).addr();
    let (low, high) = STACK.try_with(Cell::get).unwrap_or((0, 0));
    let is_on_stack = here < at.addr() && end - here <= NEAR;
    // The thread runs on these pages, so none of them was taken away since.
    if is_on_stack && low <= here && end <= high {
        return true;
    }
    let first = if is_on_stack { here } else { at.addr() } & !(PAGE - 1);
    let before = errno::get();
    let there = (first..end).step_by(PAGE).all(map::can_read);
    errno::set(before);
    if there && is_on_stack {
        let _ = STACK.try_with(|stack| stack.set((first, end.next_multiple_of(PAGE))));
    }
    there
}
