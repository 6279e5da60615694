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
    /// How many items each domain has taken, and has neither finished nor put back.
    taken: HashMap<Who, u64>,
    /// Items that ended domains had taken. They count as finished; a domain that finishes one of them later counts nothing.
    forgiven: u64,
    /// Those of them that no joiner was told of.
    left: Option<Left>,
    /// Domains that have it open, and how often each.
    open: HashMap<Who, u32>,
    unopened_since: Option<Instant>,
}

/// Items that processes had taken and not finished when they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub items: u32,
    /// The process that ended last.
    pub pid: u32,
}

/// An answer, and its receiver.
#[derive(Debug)]
pub(crate) enum Outcome<V, R> {
    /// An item to a taker, and the taker's domain.
    Item(R, V, Who),
    /// All items are finished, or went with processes that ended.
    Left(R, Left),
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
            taken: HashMap::new(),
            forgiven: 0,
            left: None,
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
            Some((taker, ())) => self.hand_out(taker, value, out),
            None => self.items.push_back(value),
        }
        out.push(Outcome::Done(giver));
    }

    fn hand_out(&mut self, taker: Waiter<R>, value: V, out: &mut Vec<Outcome<V, R>>) {
        *self.taken.entry(taker.who).or_default() += 1;
        out.push(Outcome::Item(taker.reply, value, taker.who));
    }

    /// Hands out the first item, or lets the taker wait.
    pub(crate) fn pop(&mut self, taker: Waiter<R>, out: &mut Vec<Outcome<V, R>>) {
        let Some(value) = self.items.pop_front() else {
            self.takers.push(taker, ());
            return;
        };
        self.hand_out(taker, value, out);
        // An item that came back may have taken the room.
        let fits = self
            .givers
            .first()
            .is_some_and(|(_, most)| !self.is_full(*most));
        if fits && let Some((giver, (value, _))) = self.givers.pop() {
            self.accept(value, giver.reply, out);
        }
    }

    /// Puts an item back that its taker did not get, or has no use for.
    pub(crate) fn put_back(&mut self, value: V, who: Who, out: &mut Vec<Outcome<V, R>>) {
        if !self.let_go(who) {
            self.unforgive();
        }
        match self.takers.pop() {
            Some((taker, ())) => self.hand_out(taker, value, out),
            None => self.items.push_front(value),
        }
    }

    /// An item of a domain that is gone comes back, so it was not left.
    fn unforgive(&mut self) {
        if let Some(forgiven) = self.forgiven.checked_sub(1) {
            self.forgiven = forgiven;
            self.unfinished += 1;
            let less = |left: Left| Left {
                items: left.items - 1,
                ..left
            };
            self.left = self.left.map(less).filter(|left| left.items > 0);
        }
    }

    /// A domain has one item less. `false`: it had none.
    fn let_go(&mut self, who: Who) -> bool {
        let Some(items) = self.taken.get_mut(&who) else {
            return false;
        };
        *items -= 1;
        if *items == 0 {
            self.taken.remove(&who);
        }
        true
    }

    /// Counts an item as finished. `false`: all are.
    pub(crate) fn finish(&mut self, who: Who, out: &mut Vec<Outcome<V, R>>) -> bool {
        if !self.taken.contains_key(&who) && self.forgiven > 0 {
            self.forgiven -= 1;
            return true;
        }
        let Some(left) = self.unfinished.checked_sub(1) else {
            return false;
        };
        self.unfinished = left;
        if !self.let_go(who) {
            // Another domain took the item, most likely the one that has most.
            let most = self.taken.iter().max_by_key(|(_, items)| **items);
            if let Some((most, _)) = most.map(|(who, items)| (*who, *items)) {
                self.let_go(most);
            }
        }
        self.tell_joiners(out);
        true
    }

    fn tell_joiners(&mut self, out: &mut Vec<Outcome<V, R>>) {
        let mut told = false;
        while self.unfinished == 0
            && let Some((joiner, ())) = self.joiners.pop()
        {
            out.push(finished(joiner.reply, self.left));
            told = true;
        }
        if told {
            self.left = None;
        }
    }

    pub(crate) fn join(&mut self, joiner: Waiter<R>, out: &mut Vec<Outcome<V, R>>) {
        match self.unfinished {
            0 => out.push(finished(joiner.reply, self.left.take())),
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

    /// Closes it once.
    pub(crate) fn close(&mut self, who: Who, now: Instant) {
        let left = self.open.get(&who).map(|times| times.saturating_sub(1));
        match left {
            None => return,
            Some(0) => self.open.remove(&who),
            Some(times) => self.open.insert(who, times),
        };
        self.look_open(now);
    }

    fn look_open(&mut self, now: Instant) {
        if self.open.is_empty() {
            self.unopened_since.get_or_insert(now);
        }
    }

    /// Closes it for a domain that is gone. Items that the domain had taken count as finished: no process will finish them.
    pub(crate) fn gone(&mut self, who: Who, pid: u32, now: Instant, out: &mut Vec<Outcome<V, R>>) {
        self.open.remove(&who);
        self.look_open(now);
        let items = self.taken.remove(&who).unwrap_or(0).min(self.unfinished);
        if items == 0 {
            return;
        }
        self.unfinished -= items;
        self.forgiven += items;
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        let before = self.left.map_or(0, |left| left.items);
        let items = before.saturating_add(items);
        self.left = Some(Left { items, pid });
        self.tell_joiners(out);
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.unopened_since
            .is_some_and(|since| now >= since + UNOPENED)
    }
}

/// Says to a joiner that all items are finished.
fn finished<V, R>(joiner: R, left: Option<Left>) -> Outcome<V, R> {
    match left {
        Some(left) => Outcome::Left(joiner, left),
        None => Outcome::Done(joiner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVER: Who = 1;
    const TAKER: Who = 2;
    const OTHER: Who = 3;
    const PID: u32 = 77;

    struct Case {
        lane: Lane<u32, &'static str>,
        now: Instant,
    }

    impl Case {
        /// A queue with so many items.
        fn new(items: u32) -> Case {
            let now = Instant::now();
            let lane = Lane::new(now);
            let mut case = Case { lane, now };
            for item in 0..items {
                case.said(|lane, out| lane.push(item, 0, waiter(GIVER, "put"), out));
            }
            case
        }

        fn said(
            &mut self,
            what: impl FnOnce(&mut Lane<u32, &'static str>, &mut Vec<Outcome<u32, &'static str>>),
        ) -> Vec<String> {
            let mut out = Vec::new();
            what(&mut self.lane, &mut out);
            let said = out.into_iter().map(|outcome| match outcome {
                Outcome::Item(_, item, who) => format!("{item} to {who}"),
                Outcome::Done(reply) => reply.to_owned(),
                Outcome::Left(reply, left) => format!("{reply}: {left:?}"),
            });
            said.collect()
        }

        fn take(&mut self, who: Who) -> Vec<String> {
            self.said(|lane, out| lane.pop(waiter(who, "take"), out))
        }

        fn finish(&mut self, who: Who) -> (bool, Vec<String>) {
            let mut counted = false;
            let said = self.said(|lane, out| counted = lane.finish(who, out));
            (counted, said)
        }

        fn join(&mut self) -> Vec<String> {
            self.said(|lane, out| lane.join(waiter(GIVER, "joined"), out))
        }

        fn gone(&mut self, who: Who) -> Vec<String> {
            let now = self.now;
            self.said(|lane, out| lane.gone(who, PID, now, out))
        }
    }

    fn waiter(who: Who, reply: &'static str) -> Waiter<&'static str> {
        Waiter {
            reply,
            who,
            mark: 0,
            until: None,
        }
    }

    fn left(items: u32) -> Vec<String> {
        vec![format!("joined: {:?}", Left { items, pid: PID })]
    }

    #[test]
    fn a_taker_that_ends_stops_no_join_and_is_told_of_once() {
        let mut case = Case::new(3);
        assert_eq!(case.take(TAKER), ["0 to 2"]);
        assert_eq!(case.take(OTHER), ["1 to 3"]);
        assert_eq!(case.take(OTHER), ["2 to 3"]);
        assert!(case.join().is_empty());
        assert!(case.gone(TAKER).is_empty());
        assert_eq!(case.finish(OTHER), (true, vec![]));
        assert_eq!(case.finish(OTHER), (true, left(1)));
        assert_eq!(case.join(), ["joined"]);
        // The item of the ended process may have gone on to another one.
        assert_eq!(case.finish(GIVER), (true, vec![]));
        assert_eq!(case.finish(GIVER), (false, vec![]));
    }

    #[test]
    fn the_last_taker_that_ends_ends_the_join() {
        let mut case = Case::new(2);
        case.take(TAKER);
        case.take(TAKER);
        assert!(case.join().is_empty());
        assert_eq!(case.gone(TAKER), left(2));
        let mut case = Case::new(1);
        case.take(TAKER);
        case.gone(TAKER);
        assert_eq!(case.join(), left(1));
        assert_eq!(case.join(), ["joined"]);
    }

    #[test]
    fn what_a_taker_gave_back_or_another_finished_is_not_left() {
        let mut case = Case::new(2);
        case.take(TAKER);
        case.said(|lane, out| lane.put_back(0, TAKER, out));
        assert!(case.gone(TAKER).is_empty());
        case.take(TAKER);
        assert_eq!(case.finish(OTHER), (true, vec![]));
        case.take(TAKER);
        assert_eq!(case.finish(TAKER), (true, vec![]));
        assert!(case.gone(TAKER).is_empty());
        assert_eq!(case.join(), ["joined"]);
    }

    #[test]
    fn an_item_that_did_not_reach_a_taker_that_ended_is_not_left() {
        let mut case = Case::new(1);
        case.take(TAKER);
        assert!(case.gone(TAKER).is_empty());
        case.said(|lane, out| lane.put_back(0, TAKER, out));
        assert!(case.join().is_empty());
        assert_eq!(case.take(OTHER), ["0 to 3"]);
        assert_eq!(case.finish(OTHER), (true, vec!["joined".to_owned()]));
    }
}
