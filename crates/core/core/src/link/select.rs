//! Waiting on many links together.

use super::Receiver;
use super::sleep::LOOK;
use crate::domain::DomainCore;
use std::time::{Duration, Instant};
use tranship_ring::{Point, Slept, TIMED, Waker};

/// Waits until at least one of the links has a message or has ended, at most `timeout` (`None`: for ever).
/// Returns the index of the first such link, or `None` when the time is over. The links may belong to several
/// domains of this process. Sleeps without polling; more than 126 links are waited on in bounded rounds.
pub fn select(receivers: &mut [&mut Receiver], timeout: Option<Duration>) -> Option<usize> {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let domains = domains(receivers);
    loop {
        if let Some(at) = receivers.iter().position(|r| r.may_have_news()) {
            return Some(at);
        }
        if receivers.is_empty() {
            return None;
        }
        let look = Instant::now() + LOOK;
        let mut points: Vec<Point<'_>> = receivers
            .iter()
            .map(|r| r.link.ring.point())
            .chain(domains.iter().map(|d| Point::always(d.wake_word())))
            .collect();
        let until = deadline.map_or(look, |d| d.min(look));
        let slept = tranship_ring::sleep(&TIMED, &mut points, Waker::Fences, Some(until), || {
            (receivers.iter().any(|r| r.may_have_news()) || domains.iter().any(|d| d.has_news()))
                .then_some(())
        });
        drop(points);
        domains.iter().for_each(|d| d.turn_quietly());
        if !matches!(slept, Ok(Slept::Ready(()))) {
            receivers.iter().for_each(|r| r.link.look_for_death());
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return receivers.iter().position(|r| r.may_have_news());
            }
        }
    }
}

/// The domains of these links, each once.
fn domains(receivers: &[&mut Receiver]) -> Vec<DomainCore> {
    let mut domains: Vec<DomainCore> = Vec::new();
    for receiver in receivers {
        let domain = &receiver.link.domain;
        if !domains.iter().any(|d| d.is(domain)) {
            domains.push(domain.clone());
        }
    }
    domains
}
