//! Open handles and errors. To close one that is not open ends the program, as `free(3)` does, before its memory is
//! looked at.

use std::collections::HashSet;
use std::io::{self, Write};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Their addresses.
static OPEN: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);

/// Process of this list. A forked child keeps no list: another thread of the parent's may have the lock for ever.
static KEEPER: AtomicU32 = AtomicU32::new(0);

fn is_keeper() -> bool {
    let here = process::id();
    // Relaxed: a number alone.
    match KEEPER.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(keeper) => keeper == here,
    }
}

/// Notes a handle that is the caller's from here on.
pub(crate) fn opened<T>(what: Box<T>) -> Box<T> {
    if is_keeper() {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert((&raw const *what).addr());
    }
    what
}

/// Notes that the caller gives a handle back. `by` names the call.
pub(crate) fn closed<T>(what: Option<Box<T>>, by: &str) -> Option<Box<T>> {
    if let Some(what) = &what {
        closed_at(&raw const **what, by);
    }
    what
}

/// Notes that the caller gives back the handle at this address, like [`closed`].
pub(crate) fn closed_at<T>(at: *const T, by: &str) {
    if !is_keeper() {
        return;
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if !open.remove(&at.addr()) {
        drop(open);
        end_program(&format!(
            "{by}: nothing of the kind is open at {at:?}: it was closed before, or never made"
        ));
    }
}

/// Ends the program with a line on standard error. The effects of a use of memory that is not the program's any more
/// cannot be known.
#[cold]
pub(crate) fn end_program(text: &str) -> ! {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "tranship: {text}");
    process::abort()
}
