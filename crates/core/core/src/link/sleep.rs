//! Sleeping on a link: its words and the manager's, in rounds that look whether the other side still lives.

use super::shared::LinkShared;
use std::time::{Duration, Instant};
use tranship_ring::{Kernel, Point, Slept, TIMED, Waker};

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
        let mut point = [link.ring.point()];
        if let Ok(Some(())) = tranship_ring::sleep_once(&kernel, &mut point, limit, ready) {
            return;
        }
    }
    let look = Instant::now() + LOOK;
    let mut points = [link.ring.point(), Point::always(link.domain.wake_word())];
    let until = deadline.map_or(look, |d| d.min(look));
    let slept = tranship_ring::sleep(&TIMED, &mut points, waker, Some(until), ready);
    if !matches!(slept, Ok(Slept::Ready(()))) {
        link.look_for_death();
        link.domain.turn_quietly();
    }
}
