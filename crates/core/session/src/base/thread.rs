//! Threads of the library's own.

use std::io;

/// Starts a thread with all signals blocked.
pub fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let blocked = tranship_sys::signals::block_all();
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    if let Ok(before) = blocked {
        tranship_sys::signals::restore(&before);
    }
    started.map(drop)
}
