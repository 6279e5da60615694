//! Whether standard output was closed when the program was started (`>&-`). Rust's runtime opens /dev/null in its place before `main`,
//! so that has to be looked at before the runtime begins.
#![allow(unsafe_code)] // an attribute of the linker's, and nothing else

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: asks for the flags of a descriptor, which may be closed; nothing is opened or changed.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    // Ordering: relaxed; there is no other thread yet.
    CLOSED.store(closed, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions that the C library calls before `main`; `look` needs nothing of the runtime's.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// See above.
pub(super) fn stdout_was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
