//! Sleeping on a link: its words and the manager's, in rounds that look whether the other side still lives.

use super::shared::LinkShared;
use std::io;
use std::time::{Duration, Instant};
use tranship_sync::atomic::AtomicU32;
use tranship_sync::{Futex, Point, Slept, Waited, Waker};
use tranship_sys::futex;

/// The kernel's futexes, for the sleeping protocol of `sync`.
pub(crate) struct Kernel {
    /// Whether the kernel bounds a wait on one word by a timer, which costs a seventh of the rest of the wait. Without, the
    /// domain's helper thread ends it (`LinkShared::nudge`), unless the peer has moved the sleeper to another word
    /// (`FUTEX_REQUEUE`, for which reading is enough): only where the peer could stop us by a signal just as well.
    pub(crate) timed: bool,
}

/// Every wait bounded by a timer.
pub(crate) const TIMED: Kernel = Kernel { timed: true };

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
        Ok(if woken == futex::Woken::Timeout {
            Waited::TimedOut
        } else {
            Waited::Woken
        })
    }
    fn wake_all(&self, word: &AtomicU32) {
        let _ = futex::wake(word, u32::MAX >> 1);
    }
}

/// How long to sleep on the link alone, when messages have been coming; then also on the manager's word. Longer than a
/// timer tick, so that the kernel need not set a timer for it.
const BRIEF: Duration = Duration::from_millis(20);
/// How long to sleep before looking whether manager and peer are still there.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// Sleeps until `ready`, the manager has news, the deadline, or for no reason: the caller looks.
///
/// After a round without either it looks for deaths by itself, for the manager may be away.
pub(crate) fn sleep_on(
    link: &LinkShared,
    waker: Waker,
    deadline: Option<Instant>,
    flowing: bool,
    ready: impl Fn() -> bool,
) {
    let ready = || (ready() || link.domain.has_news()).then_some(());
    if flowing {
        // On the link alone: a wait on two words costs the kernel twice as much.
        let kernel = Kernel {
            timed: deadline.is_some() || !link.domain.has_helper() || !link.of_our_user,
        };
        let limit = deadline.map_or(BRIEF, |d| {
            BRIEF.min(d.saturating_duration_since(Instant::now()))
        });
        let mut point = [Point::peer(link.their_wake(), link.own.asleep())];
        if let Ok(Some(())) = tranship_sync::sleep_once(&kernel, &mut point, limit, ready) {
            return;
        }
    }
    let look = Instant::now() + LOOK;
    let mut points = [
        Point::peer(link.their_wake(), link.own.asleep()),
        Point::always(link.domain.wake_word()),
    ];
    let until = deadline.map_or(look, |d| d.min(look));
    let slept = tranship_sync::sleep(&TIMED, &mut points, waker, Some(until), ready);
    if !matches!(slept, Ok(Slept::Ready(()))) {
        link.look_for_death();
        link.domain.turn_quietly();
    }
}
