//! Questions that wait for a value, an item, or room.

use std::collections::VecDeque;
use std::time::Instant;

/// A domain, by the manager's number of it.
pub(crate) type Who = u32;

/// A question that waits.
#[derive(Debug)]
pub(crate) struct Waiter<R> {
    pub reply: R,
    pub who: Who,
    /// The number by which its caller ends it.
    pub mark: u64,
    pub until: Option<Instant>,
}

/// Waiters in their order, each with something of its own.
#[derive(Debug)]
pub(crate) struct Line<R, T = ()>(VecDeque<(Waiter<R>, T)>);

impl<R, T> Default for Line<R, T> {
    fn default() -> Self {
        Line(VecDeque::new())
    }
}

impl<R, T> Line<R, T> {
    pub(crate) fn push(&mut self, waiter: Waiter<R>, with: T) {
        self.0.push_back((waiter, with));
    }

    pub(crate) fn pop(&mut self) -> Option<(Waiter<R>, T)> {
        self.0.pop_front()
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.0.front().map(|(_, with)| with)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn soonest(&self) -> Option<Instant> {
        self.0.iter().filter_map(|(waiter, _)| waiter.until).min()
    }

    /// Takes out those for which that is true.
    pub(crate) fn take_if(&mut self, mut is: impl FnMut(&Waiter<R>) -> bool) -> Vec<R> {
        let mut taken = Vec::new();
        if self.0.iter().any(|(waiter, _)| is(waiter)) {
            for (waiter, with) in std::mem::take(&mut self.0) {
                match is(&waiter) {
                    true => taken.push(waiter.reply),
                    false => self.0.push_back((waiter, with)),
                }
            }
        }
        taken
    }
}

/// Which waiters end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// Their time is over.
    Late(Instant),
    /// Their caller ends this one.
    Marked(Who, u64),
    /// Their domain is gone.
    Gone(Who),
}

impl Ending {
    pub(crate) fn ends<R>(self, waiter: &Waiter<R>) -> bool {
        match self {
            Ending::Late(now) => waiter.until.is_some_and(|until| until <= now),
            Ending::Marked(who, mark) => waiter.who == who && waiter.mark == mark,
            Ending::Gone(who) => waiter.who == who,
        }
    }
}
