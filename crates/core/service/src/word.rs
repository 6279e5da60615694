//! The fields of a message's word.
//!
//! | message | bits 0..16 | bits 16..23 | bit 23 | bits 24..63 | bit 63 |
//! |---|---|---|---|---|---|
//! | request | the call | the method | 1: with streams | its deadline: `CLOCK_MONOTONIC` in us, modulo 2^39; 0: none | 0 |
//! | cancellation, item, end of items, credit | the call | which of them ([`Said`]) | 0 | of a credit: the items | 1 |
//! | answer, item, credit | the call | which of them ([`Answer`]) | 0 | of a credit: the items | 0 |

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const CALLS: u32 = (1 << 16) - 1;
const METHOD_AT: u32 = 16;
/// The highest number of a method.
pub(crate) const MOST_METHOD: u8 = 127;
const STREAMS: u64 = 1 << 23;
const REST_AT: u32 = 24;
const DEADLINES: u64 = (1 << 39) - 1;
const NO_REQUEST: u64 = 1 << 63;

/// The longest time that a deadline can say: 3 days. A longer one is none.
const MOST: u64 = 1 << 38;

/// A client's number of a call.
pub(crate) type CallId = u32;

/// Subject of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) method: u8,
    /// Items may follow, either way.
    pub(crate) streams: bool,
    /// The time until the deadline; zero if that is over.
    pub(crate) left: Option<Duration>,
}

/// Meaning of a message from a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Request {
        call: CallId,
        ask: Ask,
    },
    Cancel {
        call: CallId,
    },
    /// An item of the call's stream.
    Item {
        call: CallId,
    },
    /// No further item comes.
    End {
        call: CallId,
    },
    /// So many further items may be sent.
    Credit {
        call: CallId,
        items: u32,
    },
}

/// Meaning of a message to a client for its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The end, with a result.
    Done = 0,
    /// The end, with an error of the service's own.
    Failed = 1,
    /// The end: the request was let go.
    Dropped = 2,
    /// The end: its time was over before a worker took it.
    Late = 3,
    /// An item of the call's stream. The call goes on.
    Item = 4,
    /// So many further items may be sent. The call goes on.
    Credit = 5,
}

impl Answer {
    /// Whether the call goes on.
    #[inline]
    pub(crate) fn goes_on(self) -> bool {
        matches!(self, Answer::Item | Answer::Credit)
    }
}

/// The first word to a new client: it may call.
pub(crate) const WELCOME: u64 = 0;

#[inline]
pub(crate) fn next(call: CallId) -> CallId {
    (call + 1) & CALLS
}

#[inline]
fn call_of(word: u64) -> CallId {
    u32::try_from(word & u64::from(CALLS)).unwrap_or(0)
}

#[inline]
fn kind_of(word: u64) -> u8 {
    u8::try_from(word >> METHOD_AT & u64::from(MOST_METHOD)).unwrap_or(0)
}

#[inline]
fn items_of(word: u64) -> u32 {
    u32::try_from(word >> REST_AT & DEADLINES).unwrap_or(u32::MAX)
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    s.wrapping_mul(1_000_000).wrapping_add(ns / 1000)
}

#[inline]
pub(crate) fn request(call: CallId, ask: Ask) -> u64 {
    request_at(call, ask, now)
}

#[inline]
fn request_at(call: CallId, ask: Ask, now: impl Fn() -> u64) -> u64 {
    let us = ask
        .left
        .and_then(|left| u64::try_from(left.as_micros()).ok());
    let deadline = match us.filter(|us| *us < MOST) {
        Some(us) => (now().wrapping_add(us) & DEADLINES).max(1),
        None => 0,
    };
    let method = u64::from(ask.method & MOST_METHOD) << METHOD_AT;
    let streams = if ask.streams { STREAMS } else { 0 };
    u64::from(call) | method | streams | deadline << REST_AT
}

fn no_request(call: CallId, kind: u64, items: u32) -> u64 {
    u64::from(call) | kind << METHOD_AT | u64::from(items) << REST_AT | NO_REQUEST
}

pub(crate) fn cancel(call: CallId) -> u64 {
    no_request(call, 0, 0)
}

pub(crate) fn item(call: CallId) -> u64 {
    no_request(call, 1, 0)
}

pub(crate) fn end(call: CallId) -> u64 {
    no_request(call, 2, 0)
}

pub(crate) fn credit(call: CallId, items: u32) -> u64 {
    no_request(call, 3, items)
}

/// `None`: no message says that.
#[inline]
pub(crate) fn said(word: u64) -> Option<Said> {
    said_at(word, now)
}

#[inline]
fn said_at(word: u64, now: impl Fn() -> u64) -> Option<Said> {
    let (call, kind) = (call_of(word), kind_of(word));
    if word & NO_REQUEST != 0 {
        return match kind {
            0 => Some(Said::Cancel { call }),
            1 => Some(Said::Item { call }),
            2 => Some(Said::End { call }),
            3 => Some(Said::Credit {
                call,
                items: items_of(word),
            }),
            _ => None,
        };
    }
    let left = match word >> REST_AT & DEADLINES {
        0 => None,
        deadline => {
            let left = deadline.wrapping_sub(now()) & DEADLINES;
            // More than half the circle: behind us.
            Some(Duration::from_micros(if left < MOST { left } else { 0 }))
        }
    };
    let (method, streams) = (kind, word & STREAMS != 0);
    let ask = Ask {
        method,
        streams,
        left,
    };
    Some(Said::Request { call, ask })
}

#[inline]
pub(crate) fn answer(call: CallId, how: Answer) -> u64 {
    u64::from(call) | (how as u64) << METHOD_AT
}

pub(crate) fn answer_credit(call: CallId, items: u32) -> u64 {
    answer(call, Answer::Credit) | u64::from(items) << REST_AT
}

/// The call, what came for it, and the items of a credit.
#[inline]
pub(crate) fn answered(word: u64) -> (CallId, Answer, u32) {
    let how = match kind_of(word) {
        0 => Answer::Done,
        1 => Answer::Failed,
        3 => Answer::Late,
        4 => Answer::Item,
        5 => Answer::Credit,
        _ => Answer::Dropped,
    };
    (call_of(word), how, items_of(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_travel_around_the_circle() {
        let second = Duration::from_secs(1);
        for now in [0, 5, DEADLINES - 500_000, DEADLINES, u64::MAX - 500_000] {
            let ask = |left| Ask {
                method: 127,
                streams: true,
                left: Some(left),
            };
            let word = request_at(7, ask(second), || now);
            let later = |us: u64| said_at(word, || now.wrapping_add(us));
            let left = |us| {
                let ask = ask(Duration::from_micros(us));
                Some(Said::Request { call: 7, ask })
            };
            // A deadline of 0 is said as 1.
            let close = |said, us| said == left(us) || said == left(us + 1);
            assert!(close(later(0), 1_000_000), "{:?}", later(0));
            assert!(close(later(400_000), 600_000));
            assert_eq!((later(1_000_001), later(1 << 37)), (left(0), left(0)));
        }
        let call = CALLS;
        let none = Some(Said::Request {
            call,
            ask: Ask::default(),
        });
        assert_eq!(said(request(call, Ask::default())), none);
        let left = Some(Duration::MAX);
        assert_eq!(
            said(request(
                call,
                Ask {
                    left,
                    ..Ask::default()
                }
            )),
            none
        );
        let items = u32::MAX;
        assert_eq!(said(cancel(call)), Some(Said::Cancel { call }));
        assert_eq!(said(item(call)), Some(Said::Item { call }));
        assert_eq!(said(end(call)), Some(Said::End { call }));
        assert_eq!(
            said(credit(call, items)),
            Some(Said::Credit { call, items })
        );
        assert_eq!(said(no_request(call, 4, 0)), None);
        assert_eq!(next(call), 0);
        for how in [
            Answer::Done,
            Answer::Failed,
            Answer::Dropped,
            Answer::Late,
            Answer::Item,
        ] {
            assert_eq!(answered(answer(call, how)), (call, how, 0));
        }
        let word = answer_credit(call, items);
        assert_eq!(answered(word), (call, Answer::Credit, items));
    }
}
