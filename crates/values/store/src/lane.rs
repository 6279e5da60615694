//! One queue of values: items, and those that wait for an item, for room, or for all to be finished.

use crate::wait::{Ending, Line, Waiter, Who};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a queue that no domain has open is kept: its name may be on its way to one.
pub(crate) const UNOPENED: Duration = Duration::from_secs(60);

/// One queue.
#[derive(Debug)]
pub(crate) struct Lane<V, R> {
    items: VecDeque<V>,
    takers: Line<R>,
    /// With the item of each, and the most items that it lets the queue have.
    givers: Line<R, (V, u64)>,
    unfinished: u64,
    joiners: Line<R>,
    /// Domains that have it open, and how often each.
    open: HashMap<Who, u32>,
    unopened_since: Option<Instant>,
}

/// What is answered, and to whom.
#[derive(Debug)]
pub(crate) enum Outcome<V, R> {
    /// An item to a taker.
    Item(R, V),
    /// The question was done.
    Done(R),
}

impl<V, R> Lane<V, R> {
    pub(crate) fn new(now: Instant) -> Lane<V, R> {
        Lane {
            items: VecDeque::new(),
            takers: Line::default(),
            givers: Line::default(),
            unfinished: 0,
            joiners: Line::default(),
            open: HashMap::new(),
            unopened_since: Some(now),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Appends an item, or hands it to the first taker. A full queue lets the giver wait.
    pub(crate) fn push(
        &mut self,
        value: V,
        most: u64,
        giver: Waiter<R>,
        out: &mut Vec<Outcome<V, R>>,
    ) {
        if self.is_full(most) || !self.givers.is_empty() {
            self.givers.push(giver, (value, most));
            return;
        }
        self.accept(value, giver.reply, out);
    }

    fn is_full(&self, most: u64) -> bool {
        most > 0 && self.items.len() as u64 >= most
    }

    fn accept(&mut self, value: V, giver: R, out: &mut Vec<Outcome<V, R>>) {
        self.unfinished += 1;
        match self.takers.pop() {
            Some((taker, ())) => out.push(Outcome::Item(taker.reply, value)),
            None => self.items.push_back(value),
        }
        out.push(Outcome::Done(giver));
    }

    /// Hands out the first item, or lets the taker wait.
    pub(crate) fn pop(&mut self, taker: Waiter<R>, out: &mut Vec<Outcome<V, R>>) {
        let Some(value) = self.items.pop_front() else {
            self.takers.push(taker, ());
            return;
        };
        out.push(Outcome::Item(taker.reply, value));
        // An item that came back may have taken the room.
        let fits = self
            .givers
            .first()
            .is_some_and(|(_, most)| !self.is_full(*most));
        if fits && let Some((giver, (value, _))) = self.givers.pop() {
            self.accept(value, giver.reply, out);
        }
    }

    /// Puts an item back that its taker did not get.
    pub(crate) fn put_back(&mut self, value: V, out: &mut Vec<Outcome<V, R>>) {
        match self.takers.pop() {
            Some((taker, ())) => out.push(Outcome::Item(taker.reply, value)),
            None => self.items.push_front(value),
        }
    }

    /// Counts an item as finished. `false`: all are.
    pub(crate) fn finish(&mut self, out: &mut Vec<Outcome<V, R>>) -> bool {
        let Some(left) = self.unfinished.checked_sub(1) else {
            return false;
        };
        self.unfinished = left;
        while left == 0
            && let Some((joiner, ())) = self.joiners.pop()
        {
            out.push(Outcome::Done(joiner.reply));
        }
        true
    }

    pub(crate) fn join(&mut self, joiner: Waiter<R>, out: &mut Vec<Outcome<V, R>>) {
        match self.unfinished {
            0 => out.push(Outcome::Done(joiner.reply)),
            _ => self.joiners.push(joiner, ()),
        }
    }

    /// Ends waits: of takers and joiners, then of givers.
    pub(crate) fn end(&mut self, ending: Ending) -> (Vec<R>, Vec<R>) {
        let mut ended = self.takers.take_if(|waiter| ending.ends(waiter));
        ended.extend(self.joiners.take_if(|waiter| ending.ends(waiter)));
        (ended, self.givers.take_if(|waiter| ending.ends(waiter)))
    }

    pub(crate) fn soonest(&self) -> Option<Instant> {
        let all = [
            self.takers.soonest(),
            self.givers.soonest(),
            self.joiners.soonest(),
        ];
        all.into_iter().flatten().min()
    }

    pub(crate) fn open(&mut self, who: Who) {
        *self.open.entry(who).or_default() += 1;
        self.unopened_since = None;
    }

    /// Closes it once, or as often as a domain had it open that is gone.
    pub(crate) fn close(&mut self, who: Who, is_gone: bool, now: Instant) {
        let left = self.open.get(&who).map(|times| times.saturating_sub(1));
        match left {
            None => return,
            Some(times) if times > 0 && !is_gone => self.open.insert(who, times),
            Some(_) => self.open.remove(&who),
        };
        if self.open.is_empty() {
            self.unopened_since = Some(now);
        }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.unopened_since
            .is_some_and(|since| now >= since + UNOPENED)
    }
}
