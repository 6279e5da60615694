//! Sleeping on links: their words and the manager's, in rounds that look whether the other sides still live. A carrier's end
//! waits by its [`Driver`].

use super::driver::Driver;
use super::shared::LinkShared;
use crate::domain::DomainCore;
use crate::options::Wait;
use std::time::{Duration, Instant};
use tranship_ring::{Kernel, Point, Slept, TIMED, Waker};

/// Time of a sleep on the link alone, when messages have been coming; after it the manager's word joins. Longer than a
/// timer tick, so that the kernel need not set a timer for it.
const BRIEF: Duration = Duration::from_millis(20);
/// Time of a sleep before a look whether manager and peer are still there.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// Time that a carrier waits for its socket before anything else is looked at.
const SOCKET_LOOK: Duration = Duration::from_secs(1);

/// Sleeps until `ready`, the manager's news, the deadline, or for no reason: the caller looks.
///
/// After a round without news it looks for deaths by itself, because the manager may be away.
pub(crate) fn sleep_on(
    link: &LinkShared,
    waker: Waker,
    deadline: Option<Instant>,
    flowing: bool,
    ready: impl Fn() -> bool,
) {
    let domain = &link.domain;
    sleep_on_any(domain, &[link], &[], waker, deadline, flowing, ready);
}

/// Sleeps as [`sleep_on`] does, on any number of links of one domain, and on other words. `flowing`: messages have been
/// coming on one of the links.
pub(super) fn sleep_on_any(
    domain: &DomainCore,
    links: &[&LinkShared],
    others: &[Point<'_>],
    waker: Waker,
    deadline: Option<Instant>,
    flowing: bool,
    ready: impl Fn() -> bool,
) {
    let is_over = || ready() || domain.has_news();
    let was_brief = match links {
        [link] if flowing && others.is_empty() => sleep_briefly(link, deadline, is_over),
        [link, ..] if flowing => link.turns.give(is_over),
        _ => false,
    };
    if was_brief {
        return;
    }
    let ready = || is_over().then_some(());
    let look = Instant::now() + LOOK;
    let points = links.iter().map(|link| link.ring.point());
    let points = points.chain([Point::always(domain.wake_word())]);
    let mut points: Vec<_> = points.chain(others.iter().copied()).collect();
    let until = deadline.map_or(look, |d| d.min(look));
    let slept = tranship_ring::sleep(&TIMED, &mut points, waker, Some(until), ready);
    if !matches!(slept, Ok(Slept::Ready(()))) {
        links.iter().for_each(|link| link.look_for_death());
        domain.turn_quietly();
    }
}

/// Gives other threads a turn, then sleeps once on the link alone: a wait on two words costs the kernel twice as much.
/// True: `ready` says that the wait is over.
pub(super) fn sleep_briefly(
    link: &LinkShared,
    deadline: Option<Instant>,
    ready: impl Fn() -> bool,
) -> bool {
    if link.turns.give(&ready) {
        return true;
    }
    let kernel = Kernel {
        timed: deadline.is_some() || !link.domain.has_helper() || !link.of_our_user,
    };
    let limit = deadline.map_or(BRIEF, |d| {
        BRIEF.min(d.saturating_duration_since(Instant::now()))
    });
    let ready = || ready().then_some(());
    let slept = tranship_ring::sleep_once(&kernel, &mut [link.ring.point()], limit, ready);
    matches!(slept, Ok(Some(())))
}

impl LinkShared {
    /// Waits once, or looks once for an end that spins.
    pub(super) fn drive(
        &self,
        driver: &dyn Driver,
        how: Wait,
        deadline: Option<Instant>,
        is_ready: &dyn Fn() -> bool,
    ) {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let limit = left.map_or(SOCKET_LOOK, |left| left.min(SOCKET_LOOK));
        match how {
            Wait::Spin => driver.look(),
            Wait::SpinThenSleep(_) | Wait::Sleep => driver.wait(limit, is_ready),
        }
    }
}
