//! A carrier's work in the program's own thread: a sending thread puts the bytes into the socket itself, and a
//! receiving thread waits for the socket. No other thread has to be woken.
//!
//! NOT here: the work itself, and the carrier's thread, which does it while the program is elsewhere (`channel`).

use std::time::Duration;

/// Work of a carrier when the program's end calls it. Several threads of the program may call it at once: the one that
/// has the end, and others that are short of memory ([`look`](Driver::look)). [`stir`](Driver::stir) and `look` wait
/// for no lock: its holder does what is asked.
pub trait Driver: Send + Sync {
    /// Works without waiting, after the program's end has sent, taken or said something, or is gone.
    fn stir(&self);
    /// Looks for arrived data, without waiting.
    fn look(&self);
    /// Looks, and waits until `is_ready`, at most `limit`. It may come back early.
    fn wait(&self, limit: Duration, is_ready: &dyn Fn() -> bool);
}
