//! Waiting on many links together.

use super::Receiver;
use super::sleep::{LOOK, TIMED};
use std::time::{Duration, Instant};
use tranship_sync::{Point, Slept, Waker};

/// Waits until at least one of the links has a message or has ended, at most `timeout` (`None`: for ever).
/// Returns the index of the first such link, or `None` when the time is over. Sleeps without polling; more than
/// 126 links are waited on in bounded rounds.
pub fn select(receivers: &mut [&mut Receiver], timeout: Option<Duration>) -> Option<usize> {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    loop {
        if let Some(at) = receivers.iter().position(|r| r.may_have_news()) {
            return Some(at);
        }
        let first = receivers.first()?;
        let domain = first.link.domain;
        let look = Instant::now() + LOOK;
        let mut points: Vec<Point<'_>> = receivers
            .iter()
            .map(|r| Point::peer(r.link.their_wake(), r.link.own.asleep()))
            .chain([Point::always(domain.wake_word())])
            .collect();
        let until = deadline.map_or(look, |d| d.min(look));
        let slept = tranship_sync::sleep(&TIMED, &mut points, Waker::Fences, Some(until), || {
            (receivers.iter().any(|r| r.may_have_news()) || domain.has_news()).then_some(())
        });
        drop(points);
        domain.turn_quietly();
        if !matches!(slept, Ok(Slept::Ready(()))) {
            receivers.iter().for_each(|r| r.link.look_for_death());
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return receivers.iter().position(|r| r.may_have_news());
            }
        }
    }
}
