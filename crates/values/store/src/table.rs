//! All that a store keeps: decisions alone, without messages, threads or clocks.

use crate::ask::{Ask, Said, Verb};
use crate::lane::{Lane, Left, Outcome};
use crate::values::{Key, Kind, Values};
use crate::wait::{Ending, Line, Waiter, Who};
use std::collections::HashMap;
use std::time::Instant;

/// Most keys that are waited for, and most queues: each is a client's word.
const MOST_KEYS: usize = 1 << 20;

/// An answer, and its receiver.
#[derive(Debug)]
pub(crate) struct Answer<V, R> {
    pub to: R,
    pub what: Content<V>,
}

#[derive(Debug)]
pub(crate) enum Content<V> {
    Said(Said),
    /// A value, and where it goes if it does not arrive.
    Value(V, Origin),
}

/// Where a value was.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// At the front of a queue, and nowhere else now. That domain took it.
    Front(Key, Who),
    /// Parked for one taker by that domain, and nowhere else now.
    Parked(Key, Who),
    /// Under a key, where it still is.
    Kept(Key),
}

/// Content of a store. `V` is a value, `R` leads to the caller that waits for an answer.
#[derive(Debug)]
pub(crate) struct Table<V, R> {
    values: Values<V>,
    lanes: HashMap<Key, Lane<V, R>>,
    /// Callers that wait for a value; whether they take it.
    waiting: HashMap<Key, Line<R, bool>>,
    /// No wait ends before that.
    soonest: Option<Instant>,
}

impl<V: Clone, R> Table<V, R> {
    pub(crate) fn new(quota: u64, end_with_owner: bool) -> Table<V, R> {
        Table {
            values: Values::new(quota, end_with_owner),
            lanes: HashMap::new(),
            waiting: HashMap::new(),
            soonest: None,
        }
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.values.has(key)
    }

    /// Answers a question, now or later. `value` comes with those that bring one, and has so many bytes.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        ask: &Ask<'_>,
        value: Option<(V, u64)>,
        caller: (Who, R),
        out: &mut Vec<Answer<V, R>>,
    ) {
        let (who, reply) = caller;
        let until = ask.wait.and_then(|wait| now.checked_add(wait));
        if until.is_some_and(|until| until > now) {
            self.soonest = [self.soonest, until].into_iter().flatten().min();
        }
        let waiter = Waiter {
            reply,
            who,
            mark: ask.number,
            until,
        };
        match (ask.verb, value) {
            (Verb::Put | Verb::Park | Verb::Block, Some(value)) => {
                self.put(ask, value, waiter, out);
            }
            (Verb::Get | Verb::Take, None) => self.get(ask, waiter, out),
            (Verb::Push | Verb::Unpop, Some((value, _))) => {
                self.push(now, ask, value, waiter, out);
            }
            (Verb::Pop | Verb::Join | Verb::Finish | Verb::Open | Verb::Close, None) => {
                self.of_lane(now, ask, waiter, out);
            }
            (Verb::Attach, None) => out.push(self.attach(ask.key, waiter)),
            (Verb::Cancel, None) => {
                self.end(Ending::Marked(who, ask.number), out);
                out.push(said(waiter.reply, Said::Done(0)));
            }
            (_, None) => {
                let answer = self.plain(ask, who);
                out.push(said(waiter.reply, answer));
            }
            (_, Some(_)) => out.push(said(waiter.reply, Said::Bad)),
        }
    }

    /// Questions that are answered at once, without a value.
    fn plain(&mut self, ask: &Ask<'_>, who: Who) -> Said {
        let found = |is: bool| if is { Said::Done(0) } else { Said::Absent };
        let key = ask.key;
        match ask.verb {
            Verb::Delete | Verb::Unlink => found(self.values.remove(key).is_some()),
            Verb::Pin => found(self.values.pin(key, true)),
            Verb::Unpin => found(self.values.pin(key, false)),
            Verb::Detach => found(self.values.detach(key, who)),
            Verb::Length => Said::Done(self.lanes.get(key).map_or(0, |lane| lane.len() as u64)),
            Verb::Bytes => Said::Done(self.values.kept_bytes()),
            _ => Said::Bad,
        }
    }

    fn put(
        &mut self,
        ask: &Ask<'_>,
        (value, bytes): (V, u64),
        waiter: Waiter<R>,
        out: &mut Vec<Answer<V, R>>,
    ) {
        if self.values.has(ask.key) {
            return out.push(said(waiter.reply, Said::Exists));
        }
        let kind = match ask.verb {
            Verb::Put => Kind::Kept,
            Verb::Park => Kind::Parked,
            _ => Kind::Block,
        };
        let taken = self.hand_out(ask.key, &value, waiter.who, out);
        let added = match taken {
            true => Ok(()),
            false => self
                .values
                .add(ask.key, value.clone(), bytes, kind, waiter.who),
        };
        match (added, ask.verb) {
            (Ok(()), Verb::Block) => {
                self.values.attach(ask.key, waiter.who);
                out.push(Answer {
                    to: waiter.reply,
                    what: Content::Value(value, Origin::Kept(ask.key.into())),
                });
            }
            (Ok(()), _) => out.push(said(waiter.reply, Said::Done(0))),
            (Err(no), _) => out.push(said(waiter.reply, Said::NoRoom(no.0))),
        }
    }

    /// Gives a new value to those that wait for it. Returns whether one of them took it.
    fn hand_out(&mut self, key: &[u8], value: &V, owner: Who, out: &mut Vec<Answer<V, R>>) -> bool {
        let mut line = self.waiting.remove(key).unwrap_or_default();
        while let Some((waiter, takes)) = line.pop() {
            let what = match takes {
                true => Content::Value(value.clone(), Origin::Parked(key.into(), owner)),
                false => Content::Value(value.clone(), Origin::Kept(key.into())),
            };
            out.push(Answer {
                to: waiter.reply,
                what,
            });
            if takes {
                if !line.is_empty() {
                    self.waiting.insert(key.into(), line);
                }
                return true;
            }
        }
        false
    }

    fn get(&mut self, ask: &Ask<'_>, waiter: Waiter<R>, out: &mut Vec<Answer<V, R>>) {
        let takes = ask.verb == Verb::Take;
        let found = match takes {
            true => self.values.remove(ask.key),
            false => self.values.get(ask.key),
        };
        let what = match found {
            Some(value) if takes => {
                Content::Value(value, Origin::Parked(ask.key.into(), waiter.who))
            }
            Some(value) => Content::Value(value, Origin::Kept(ask.key.into())),
            None if ask.wait.is_some_and(|wait| wait.is_zero()) => Content::Said(Said::Absent),
            None if self.waiting.len() >= MOST_KEYS => Content::Said(Said::Bad),
            None => {
                let line = self.waiting.entry(ask.key.into()).or_default();
                return line.push(waiter, takes);
            }
        };
        out.push(Answer {
            to: waiter.reply,
            what,
        });
    }

    fn attach(&mut self, key: &[u8], waiter: Waiter<R>) -> Answer<V, R> {
        let what = match self.values.attach(key, waiter.who) {
            Some(value) => Content::Value(value, Origin::Kept(key.into())),
            None => Content::Said(Said::Absent),
        };
        Answer {
            to: waiter.reply,
            what,
        }
    }

    fn lane(&mut self, now: Instant, key: &[u8]) -> Option<&mut Lane<V, R>> {
        if self.lanes.len() >= MOST_KEYS && !self.lanes.contains_key(key) {
            return None;
        }
        Some(
            self.lanes
                .entry(key.into())
                .or_insert_with(|| Lane::new(now)),
        )
    }

    fn push(
        &mut self,
        now: Instant,
        ask: &Ask<'_>,
        value: V,
        mut waiter: Waiter<R>,
        out: &mut Vec<Answer<V, R>>,
    ) {
        let Some(lane) = self.lane(now, ask.key) else {
            return out.push(said(waiter.reply, Said::Bad));
        };
        let mut done = Vec::new();
        let wait = ask.wait;
        if ask.verb == Verb::Unpop {
            lane.put_back(value, waiter.who, &mut done);
            done.push(Outcome::Done(waiter.reply));
        } else {
            // The mark of a giver is in the low half, the queue's limit in the high half.
            let most = ask.number >> 32;
            waiter.mark = ask.number & u64::from(u32::MAX);
            lane.push(value, most, waiter, &mut done);
        }
        out.extend(answers(ask.key, done));
        if wait.is_some_and(|wait| wait.is_zero()) {
            self.end_in_lane(ask.key, Ending::Late(now), out);
        }
    }

    fn of_lane(
        &mut self,
        now: Instant,
        ask: &Ask<'_>,
        waiter: Waiter<R>,
        out: &mut Vec<Answer<V, R>>,
    ) {
        let Some(lane) = self.lane(now, ask.key) else {
            return out.push(said(waiter.reply, Said::Bad));
        };
        let mut done = Vec::new();
        match ask.verb {
            Verb::Pop => lane.pop(waiter, &mut done),
            Verb::Join => lane.join(waiter, &mut done),
            Verb::Open => {
                lane.open(waiter.who);
                done.push(Outcome::Done(waiter.reply));
            }
            Verb::Close => {
                lane.close(waiter.who, now);
                done.push(Outcome::Done(waiter.reply));
            }
            _ => match lane.finish(waiter.who, &mut done) {
                true => done.push(Outcome::Done(waiter.reply)),
                false => out.push(said(waiter.reply, Said::Finished)),
            },
        }
        out.extend(answers(ask.key, done));
        if ask.wait.is_some_and(|wait| wait.is_zero()) {
            self.end_in_lane(ask.key, Ending::Late(now), out);
        }
    }

    /// Takes back a value that did not arrive.
    pub(crate) fn take_back(
        &mut self,
        now: Instant,
        (value, bytes): (V, u64),
        place: Origin,
        out: &mut Vec<Answer<V, R>>,
    ) {
        match place {
            Origin::Kept(key) => self.values.replace(&key, value),
            Origin::Parked(key, owner) => {
                if !self.values.has(&key) && !self.hand_out(&key, &value, owner, out) {
                    let parked = self.values.add(&key, value, bytes, Kind::Parked, owner);
                    debug_assert!(parked.is_ok(), "parked values have no quota");
                }
            }
            Origin::Front(key, who) => {
                let mut done = Vec::new();
                if let Some(lane) = self.lane(now, &key) {
                    lane.put_back(value, who, &mut done);
                }
                out.extend(answers(&key, done));
            }
        }
    }

    /// Ends waits, and tells their callers.
    pub(crate) fn end(&mut self, ending: Ending, out: &mut Vec<Answer<V, R>>) {
        let why = why(ending);
        for line in self.waiting.values_mut() {
            let ended = line.take_if(|waiter| ending.ends(waiter));
            out.extend(ended.into_iter().map(|to| said(to, why)));
        }
        self.waiting.retain(|_, line| !line.is_empty());
        for lane in self.lanes.values_mut() {
            end_in(lane, ending, out);
        }
    }

    fn end_in_lane(&mut self, key: &[u8], ending: Ending, out: &mut Vec<Answer<V, R>>) {
        if let Some(lane) = self.lanes.get_mut(key) {
            end_in(lane, ending, out);
        }
    }

    /// Lets go of everything that a domain had, after the domain and its process have gone.
    pub(crate) fn gone(
        &mut self,
        (who, pid): (Who, u32),
        now: Instant,
        out: &mut Vec<Answer<V, R>>,
    ) {
        self.end(Ending::Gone(who), out);
        self.values.gone(who, now);
        for (key, lane) in &mut self.lanes {
            let mut done = Vec::new();
            lane.gone(who, pid, now, &mut done);
            out.extend(answers(key, done));
        }
    }

    /// Ends what is late.
    pub(crate) fn expire(&mut self, now: Instant, out: &mut Vec<Answer<V, R>>) {
        self.end(Ending::Late(now), out);
        self.values.expire(now);
        self.lanes.retain(|_, lane| !lane.is_over(now));
        let keys = self.waiting.values().filter_map(Line::soonest);
        let lanes = self.lanes.values().filter_map(Lane::soonest);
        self.soonest = keys.chain(lanes).min();
    }

    /// Returns a time before which no wait ends.
    pub(crate) fn soonest(&self) -> Option<Instant> {
        self.soonest
    }
}

fn said<V, R>(to: R, said: Said) -> Answer<V, R> {
    Answer {
        to,
        what: Content::Said(said),
    }
}

/// The answers to callers of a queue.
fn answers<V, R>(queue: &[u8], done: Vec<Outcome<V, R>>) -> impl Iterator<Item = Answer<V, R>> {
    done.into_iter().map(|outcome| match outcome {
        Outcome::Done(to) => said(to, Said::Done(0)),
        Outcome::Item(to, value, who) => Answer {
            to,
            what: Content::Value(value, Origin::Front(queue.into(), who)),
        },
        Outcome::Left(to, Left { items, pid }) => said(to, Said::Left { items, pid }),
    })
}

fn why(ending: Ending) -> Said {
    match ending {
        Ending::Late(_) => Said::Absent,
        Ending::Marked(..) | Ending::Gone(_) => Said::Cancelled,
    }
}

fn end_in<V, R>(lane: &mut Lane<V, R>, ending: Ending, out: &mut Vec<Answer<V, R>>) {
    let (ended, givers) = lane.end(ending);
    out.extend(ended.into_iter().map(|to| said(to, why(ending))));
    let why = match ending {
        Ending::Late(_) => Said::Full(lane.len() as u64),
        _ => why(ending),
    };
    out.extend(givers.into_iter().map(|to| said(to, why)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, VecDeque};
    use std::time::Duration;

    const ZERO: Option<Duration> = Some(Duration::ZERO);

    fn ask(verb: Verb, key: &[u8], wait: Option<Duration>, number: u64) -> Ask<'_> {
        Ask {
            wait,
            number,
            ..Ask::new(verb, key)
        }
    }

    /// Random questions to one queue, and answers that arrive or not: each item goes to one taker, in its order as long as
    /// all arrive, and every question has one answer.
    #[test]
    fn each_item_goes_to_one_taker_in_its_order() {
        let seed = std::env::var("TRANSHIP_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
        println!("TRANSHIP_SEED={seed}");
        for lossy in [false, true] {
            let mut state = seed | 1;
            let mut random = move |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % below
            };
            let (now, most) = (Instant::now(), 3);
            let mut table: Table<u64, u64> = Table::new(0, false);
            let (mut asked, mut open) = (0, BTreeSet::new());
            let (mut pushed, mut got, mut queued) = (0, Vec::new(), VecDeque::new());
            let mut gives = std::collections::HashMap::new();
            for _ in 0..20_000 {
                asked += 1;
                let mut out = Vec::new();
                let wait = if random(2) == 0 { ZERO } else { None };
                match random(5) {
                    0 | 1 => {
                        open.insert(asked);
                        gives.insert(asked, pushed);
                        let number = most << 32 | asked & 0xffff_ffff;
                        let ask = ask(Verb::Push, b"q", wait, number);
                        table.ask(now, &ask, Some((pushed, 8)), (1, asked), &mut out);
                        pushed += 1;
                    }
                    2 | 3 => {
                        open.insert(asked);
                        let ask = ask(Verb::Pop, b"q", wait, asked);
                        table.ask(now, &ask, None, (1, asked), &mut out);
                    }
                    _ => {
                        let mark = open.iter().next().copied().unwrap_or(0);
                        table.end(Ending::Marked(1, mark), &mut out);
                    }
                }
                while let Some(answer) = (!out.is_empty()).then(|| out.remove(0)) {
                    assert!(open.remove(&answer.to), "two answers to {}", answer.to);
                    match answer.what {
                        Content::Value(item, place) if lossy && random(3) == 0 => {
                            table.take_back(now, (item, 8), place, &mut out);
                        }
                        Content::Value(item, _) => got.push(item),
                        Content::Said(Said::Done(_)) => queued.extend(gives.remove(&answer.to)),
                        Content::Said(_) => drop(gives.remove(&answer.to)),
                    }
                }
                assert!(
                    table
                        .lanes
                        .get(&b"q"[..])
                        .is_none_or(|lane| lane.len() as u64 <= most + 1)
                );
            }
            // All waits end, then the queue is emptied.
            let mut out = Vec::new();
            table.end(Ending::Gone(1), &mut out);
            assert_eq!(out.len(), open.len());
            for number in 0..2 * most {
                let last = ask(Verb::Pop, b"q", ZERO, asked + number + 1);
                table.ask(now, &last, None, (1, asked + number + 1), &mut out);
            }
            for answer in out {
                if let Content::Value(item, _) = answer.what {
                    got.push(item);
                }
            }
            if lossy {
                got.sort_unstable();
            }
            assert_eq!(got, Vec::from(queued));
        }
    }
}
