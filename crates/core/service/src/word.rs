//! What the word of a message says.
//!
//! | message | bits 0..24 | bits 24..63 | bit 63 |
//! |---|---|---|---|
//! | request | the call | its deadline: `CLOCK_MONOTONIC` in us, modulo 2^39; 0: none | 0 |
//! | cancellation | the call | 0 | 1 |
//! | answer | the call | how it was answered ([`Answer`]) | 0 |

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const CALL_BITS: u32 = 24;
const DEADLINE_BITS: u32 = 39;
const CALLS: u32 = (1 << CALL_BITS) - 1;
const DEADLINES: u64 = (1 << DEADLINE_BITS) - 1;
const CANCEL: u64 = 1 << 63;

/// The longest time that a deadline can say: 3 days. A longer one is none.
const MOST: u64 = 1 << (DEADLINE_BITS - 1);

/// A client's number of a call.
pub(crate) type CallId = u32;

/// What a message from a client says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// `left`: the time until the deadline; zero if that is over.
    Request {
        call: CallId,
        left: Option<Duration>,
    },
    Cancel {
        call: CallId,
    },
}

/// How a call was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// With a result.
    Done = 0,
    /// With an error of the service's own.
    Failed = 1,
    /// Not at all: the request was let go.
    Dropped = 2,
    /// Not at all: its time was over before a worker took it.
    Late = 3,
}

/// The first word to a new client: it may call.
pub(crate) const WELCOME: u64 = 0;

pub(crate) fn next(call: CallId) -> CallId {
    (call + 1) & CALLS
}

fn call_of(word: u64) -> CallId {
    u32::try_from(word & u64::from(CALLS)).unwrap_or(0)
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    s.wrapping_mul(1_000_000).wrapping_add(ns / 1000)
}

pub(crate) fn request(call: CallId, left: Option<Duration>) -> u64 {
    request_at(call, left, now)
}

fn request_at(call: CallId, left: Option<Duration>, now: impl Fn() -> u64) -> u64 {
    let us = left.and_then(|left| u64::try_from(left.as_micros()).ok());
    let deadline = match us.filter(|us| *us < MOST) {
        Some(us) => (now().wrapping_add(us) & DEADLINES).max(1),
        None => 0,
    };
    u64::from(call) | deadline << CALL_BITS
}

pub(crate) fn cancel(call: CallId) -> u64 {
    u64::from(call) | CANCEL
}

pub(crate) fn said(word: u64) -> Said {
    said_at(word, now)
}

fn said_at(word: u64, now: impl Fn() -> u64) -> Said {
    let call = call_of(word);
    if word & CANCEL != 0 {
        return Said::Cancel { call };
    }
    let left = match word >> CALL_BITS & DEADLINES {
        0 => None,
        deadline => {
            let left = deadline.wrapping_sub(now()) & DEADLINES;
            // More than half the circle: behind us.
            Some(Duration::from_micros(if left < MOST { left } else { 0 }))
        }
    };
    Said::Request { call, left }
}

pub(crate) fn answer(call: CallId, how: Answer) -> u64 {
    u64::from(call) | (how as u64) << CALL_BITS
}

pub(crate) fn answered(word: u64) -> (CallId, Answer) {
    let how = match word >> CALL_BITS {
        0 => Answer::Done,
        1 => Answer::Failed,
        3 => Answer::Late,
        _ => Answer::Dropped,
    };
    (call_of(word), how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_travel_around_the_circle() {
        let second = Duration::from_secs(1);
        for now in [0, 5, DEADLINES - 500_000, DEADLINES, u64::MAX - 500_000] {
            let word = request_at(7, Some(second), || now);
            let later = |us: u64| said_at(word, || now.wrapping_add(us));
            let left = |us| Said::Request {
                call: 7,
                left: Some(Duration::from_micros(us)),
            };
            // A deadline of 0 is said as 1.
            let close = |said, us| said == left(us) || said == left(us + 1);
            assert!(close(later(0), 1_000_000), "{:?}", later(0));
            assert!(close(later(400_000), 600_000));
            assert_eq!((later(1_000_001), later(1 << 37)), (left(0), left(0)));
        }
        let call = CALLS;
        let none = Said::Request { call, left: None };
        assert_eq!(said(request(call, None)), none);
        assert_eq!(said(request(call, Some(Duration::MAX))), none);
        assert_eq!(said(cancel(call)), Said::Cancel { call });
        assert_eq!(next(call), 0);
        for how in [Answer::Done, Answer::Failed, Answer::Dropped, Answer::Late] {
            assert_eq!(answered(answer(call, how)), (call, how));
        }
    }
}
