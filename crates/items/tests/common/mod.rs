//! Parts that several of these tests need.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Makes a watchdog that ends the process if a test hangs. It is no bound on speed.
#[must_use]
pub fn watchdog() -> Watchdog {
    let (alive, ended) = channel();
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(300)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("watchdog: {test} hangs");
            std::process::abort();
        }
    });
    Watchdog { _alive: alive }
}

/// Ends the watchdog when it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}
