//! Whether a thread is in the library: its allocations and closed descriptors then are the library's.

use std::cell::Cell;

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

/// Runs work whose allocations are not the program's; `None` if this thread already does, or is ending.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> Option<T> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let _ = INSIDE.try_with(|inside| inside.set(false));
        }
    }
    if INSIDE
        .try_with(|inside| inside.replace(true))
        .unwrap_or(true)
    {
        return None;
    }
    let _leave = Leave;
    Some(work())
}

/// Returns whether this thread is inside, or ending.
pub(crate) fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}
