//! The kernel's futexes.

use crate::wait::{Futex, Point, Waited};
use std::io;
use std::time::Duration;
use tranship_sync::atomic::AtomicU32;
use tranship_sys::futex;

/// How the kernel waits.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Whether it bounds a wait on one word by a timer, which costs a seventh of the rest of the wait. Without, somebody else
    /// has to end it now and then ([`Ring::nudge`](crate::Ring::nudge)), unless the peer has moved the sleeper to another word
    /// (`FUTEX_REQUEUE`, for which reading is enough): only where the peer could stop us by a signal just as well.
    pub timed: bool,
}

/// Every wait bounded by a timer.
pub const TIMED: Kernel = Kernel { timed: true };

impl Futex for Kernel {
    type Error = io::Error;

    fn wait_any(&self, points: &[Point<'_>], limit: Duration) -> io::Result<Waited> {
        let woken = match points {
            [one] => futex::wait(one.wake, one.seen, self.timed.then_some(limit))?,
            _ => {
                let mut words = [(std::ptr::null::<AtomicU32>(), 0u32); futex::WAITV_MAX];
                for (word, point) in words.iter_mut().zip(points) {
                    *word = (std::ptr::from_ref(point.wake), point.seen);
                }
                futex::waitv(&words[..points.len().min(futex::WAITV_MAX)], Some(limit))?
            }
        };
        Ok(match woken {
            futex::Woken::Timeout => Waited::TimedOut,
            _ => Waited::Woken,
        })
    }
}

/// Wakes the waiters of a word in this domain's page, but not a walk's worth: the other end may have queued any number.
///
/// No honest waiter is lost: only the two ends can read a half, one end wakes by the word, and one thread at a time sleeps on it in
/// the other. An end that hoards waiters delays nobody but itself, and that by a [`ROUND`](crate::ROUND) at most.
pub fn wake_some(word: &AtomicU32) {
    let _ = futex::wake_some(word);
}
