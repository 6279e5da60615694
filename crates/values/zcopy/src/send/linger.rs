//! Buffers whose socket the program has let go of: a thread keeps them until the kernel is done with them, and ends
//! when there are none.
//!
//! As the thread has a descriptor of each such connection, its end (FIN) goes out when all bytes are acknowledged. A
//! reader that takes nothing cannot have the buffers for ever: after [`LONGEST`] its connection is reset.

use super::held::{AGAIN, Held, wait};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait, equal to the kernel's own for an other end that does nothing (tcp(7): `tcp_fin_timeout`).
const LONGEST: Duration = Duration::from_secs(60);
/// Time between two checks for new connections.
const ROUND: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Incoming {
    new: Vec<Held>,
    /// The thread is there.
    running: bool,
}

static INCOMING: Mutex<Incoming> = Mutex::new(Incoming {
    new: Vec::new(),
    running: false,
});

fn incoming() -> MutexGuard<'static, Incoming> {
    INCOMING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps them until nobody needs them.
pub(super) fn keep(mut held: Held) {
    let _ = held.reap();
    if held.is_empty() {
        return held.end_if_empty();
    }
    let mut incoming = incoming();
    if !incoming.running {
        let thread = std::thread::Builder::new().name("zcopy-linger".to_owned());
        if thread.spawn(run).is_err() {
            // No thread would check it again, and releasing it would be a guess.
            return std::mem::forget(held);
        }
        incoming.running = true;
    }
    incoming.new.push(held);
}

fn run() {
    let mut all: Vec<(Held, Instant)> = Vec::new();
    loop {
        let mut incoming = incoming();
        let new = std::mem::take(&mut incoming.new);
        all.extend(new.into_iter().map(|held| (held, Instant::now())));
        if all.is_empty() {
            incoming.running = false;
            return;
        }
        drop(incoming);
        let mut fds: Vec<_> = all.iter().filter_map(|(held, _)| held.poll_fd()).collect();
        let ready = wait(&mut fds, ROUND).unwrap_or(0);
        let mut any = false;
        for (held, since) in &mut all {
            any |= held.reap().unwrap_or(false);
            if since.elapsed() >= LONGEST {
                let _ = held.abort();
            }
        }
        all.retain(|(held, _)| !held.is_empty());
        if ready > 0 && !any {
            std::thread::sleep(AGAIN);
        }
    }
}
