//! The kernel's futexes.

use crate::wait::{Futex, Point, Waited};
use std::io;
use std::time::Duration;
use tranship_sync::atomic::AtomicU32;
use tranship_sys::futex;

/// The way in which the kernel waits.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Whether a timer bounds a wait on one word. The timer costs a seventh of the rest of the wait. Without a timer,
    /// another thread must end the wait now and then ([`Ring::nudge`](crate::Ring::nudge)). That does not help if the
    /// peer has moved the sleeper to another word (`FUTEX_REQUEUE`, which needs read access only). The timer is
    /// therefore left out only if the peer could stop this process by a signal just as well.
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

/// Wakes a bounded number of waiters of a word in this domain's page, because the other end may have queued any number.
///
/// No honest waiter is lost. Only the two ends can read a half: one end wakes by the word, and in the other one thread
/// at a time sleeps on it. An end that collects waiters delays nothing but itself, by at most a
/// [`ROUND`](crate::ROUND).
pub fn wake_some(word: &AtomicU32) {
    let _ = futex::wake_some(word);
}
