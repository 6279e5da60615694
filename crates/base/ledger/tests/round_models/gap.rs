//! Sleeping without flags: a reader sleeps without a limit only when the next publish will wake it.
//!
//! The library's: [`Gaps::wakes`] and [`Quiet::may_sleep`]. The model's own: the order of steps on both sides, which is that of
//! `broadcast::wait` and of a publish. Time is discrete and has no end: readings are ages, and ages stop at a bound. Any
//! delay is possible between two steps. A store becomes visible after at most a number of ticks.

use std::fmt;

use tranship_ring::broadcast::{Gaps, Quiet};

use crate::explorer::{System, breaks, holds};

/// Ages from this on are alike: it is above each quiet time, and above the gap.
const OLD: u8 = 7;
/// Present time of the clock: ages lie before it.
const NOW: u64 = 1 << 32;

/// The broken rule that takes the right one's place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The gap since the reading after the last store but one.
    ReadingBefore,
    /// The clock is read before the store.
    ReadingAfter,
    /// A reader that finds nothing sleeps.
    Quiet,
    /// A reader that takes several messages at once notes one.
    Many,
}

struct Sleeping {
    /// A writer wakes after a gap of more than this, a reader sleeps after this time, a store is visible after this time.
    gap: u64,
    quiet: u64,
    lag: u8,
    messages: u8,
    without: Without,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Writer {
    #[default]
    Idle,
    Stores,
    ReadsClock,
    Decides,
    Raises,
    Wakes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Reader {
    #[default]
    LoadsWord,
    ReadsClock,
    Looks,
    Waits,
    Sleeps,
    Notes,
}

#[derive(Clone, Copy, Debug, Default, Hash)]
struct State {
    /// Messages that were stored, that are visible, and that the reader took.
    stored: u8,
    visible: u8,
    taken: u8,
    /// Age of a store that is not visible yet.
    store: u8,
    /// Ages of the writer's readings, the last one first.
    readings: [u8; 3],
    wakes: bool,
    word: u8,
    writer: Writer,
    seen: u8,
    /// Messages that the reader took and has still to note, as far as two; ages of the last two that it noted.
    took: u8,
    noted: [u8; 2],
    may_sleep: bool,
    reader: Reader,
}

#[derive(Clone, Copy)]
enum Step {
    Tick,
    Visible,
    Writer(Writer),
    Reader(Reader),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Tick => f.write_str("a tick"),
            Step::Visible => f.write_str("the store becomes visible"),
            Step::Writer(at) => write!(f, "writer: {at:?}"),
            Step::Reader(at) => write!(f, "reader: {at:?}"),
        }
    }
}

impl Sleeping {
    /// The library's rule, for readings of these ages.
    fn is_long(&self, readings: [u8; 3]) -> bool {
        let mut gaps = Gaps::new(self.gap);
        for age in readings.into_iter().rev() {
            gaps.wakes(NOW - u64::from(age));
        }
        gaps.wakes(NOW)
    }

    fn writes(&self, state: &State) -> Option<State> {
        let mut next = *state;
        let is_visible = state.visible == state.stored;
        match state.writer {
            Writer::Idle if state.stored < self.messages && is_visible => {
                next.writer = Writer::Stores;
                if self.without == Without::ReadingAfter {
                    let [last, before, _] = state.readings;
                    next.wakes = self.is_long([last, before, before]);
                    next.readings = [0, last, before];
                }
            }
            Writer::Idle => return None,
            Writer::Stores => {
                next.stored += 1;
                next.store = 0;
                next.writer = Writer::ReadsClock;
            }
            Writer::ReadsClock => {
                let Without::ReadingAfter = self.without else {
                    let [last, before, first] = state.readings;
                    let first = match self.without {
                        Without::ReadingBefore => before,
                        _ => first,
                    };
                    next.wakes = self.is_long([last, before, first]);
                    next.readings = [0, last, before];
                    next.writer = Writer::Decides;
                    return Some(next);
                };
                next.writer = Writer::Decides;
            }
            Writer::Decides => {
                next.wakes = false;
                next.writer = if state.wakes {
                    Writer::Raises
                } else {
                    Writer::Idle
                };
            }
            // A locked instruction: the line is visible before.
            Writer::Raises if !is_visible => return None,
            Writer::Raises => {
                next.word += 1;
                next.writer = Writer::Wakes;
            }
            Writer::Wakes => {
                if state.reader == Reader::Sleeps {
                    next.reader = Reader::LoadsWord;
                }
                next.writer = Writer::Idle;
            }
        }
        Some(next)
    }

    fn reads(&self, state: &State) -> Option<State> {
        let mut next = *state;
        match state.reader {
            Reader::LoadsWord => {
                next.seen = state.word;
                next.reader = Reader::ReadsClock;
            }
            Reader::ReadsClock => {
                let [before, last] = state.noted.map(|age| NOW - u64::from(age));
                let mut quiet = Quiet::new(self.quiet, before);
                quiet.saw(last);
                next.may_sleep = quiet.may_sleep(NOW) || self.without == Without::Quiet;
                next.reader = Reader::Looks;
            }
            Reader::Looks if state.visible > state.taken => {
                next.took = (state.visible - state.taken).min(2);
                next.taken = state.visible;
                next.may_sleep = false;
                next.reader = Reader::Notes;
            }
            Reader::Looks => next.reader = Reader::Waits,
            // A wait with a limit ends at any time.
            Reader::Waits => {
                let sleeps = std::mem::take(&mut next.may_sleep) && state.word == state.seen;
                next.reader = if sleeps {
                    Reader::Sleeps
                } else {
                    Reader::LoadsWord
                };
            }
            Reader::Notes => {
                let [_, last] = state.noted;
                let took_many = std::mem::take(&mut next.took) > 1;
                let before = match took_many && self.without != Without::Many {
                    true => 0,
                    false => last,
                };
                next.noted = [before, 0];
                next.reader = Reader::LoadsWord;
            }
            Reader::Sleeps => return None,
        }
        Some(next)
    }
}

impl System for Sleeping {
    type State = State;
    type Step = Step;

    fn initial(&mut self) -> State {
        State::default()
    }

    fn successors(&mut self, state: &State, out: &mut Vec<(Step, State)>) {
        let waits = state.visible < state.stored;
        if !waits || state.store < self.lag {
            let mut next = *state;
            let older = |age: &mut u8| *age = OLD.min(*age + 1);
            if waits {
                older(&mut next.store);
            }
            next.readings.iter_mut().for_each(older);
            next.noted.iter_mut().for_each(older);
            out.push((Step::Tick, next));
        }
        if waits {
            let mut next = *state;
            (next.visible, next.store) = (state.stored, 0);
            out.push((Step::Visible, next));
        }
        out.extend(
            self.writes(state)
                .map(|next| (Step::Writer(state.writer), next)),
        );
        out.extend(
            self.reads(state)
                .map(|next| (Step::Reader(state.reader), next)),
        );
    }

    fn wrong(&mut self, state: &State) -> Option<&'static str> {
        let is_over = state.writer == Writer::Idle && state.visible == state.stored;
        let sleeps = state.reader == Reader::Sleeps && state.visible > state.taken;
        (is_over && sleeps).then_some("a reader sleeps on beside a message")
    }
}

fn rule(quiet: u64, lag: u8, without: Without) -> Sleeping {
    Sleeping {
        gap: 2,
        quiet,
        lag,
        // Fewer show most of the broken rules.
        messages: match without {
            Without::Nothing | Without::Many => 4,
            _ => 3,
        },
        without,
    }
}

#[test]
fn a_reader_that_sleeps_is_woken() {
    holds("the gap rule", &mut rule(4, 1, Without::Nothing));
    holds(
        "the gap rule, later stores",
        &mut rule(5, 2, Without::Nothing),
    );
}

#[test]
fn every_part_of_the_gap_rule() {
    let sleeps_on = |name, mut system| {
        assert_eq!(
            breaks(name, &mut system),
            "a reader sleeps on beside a message"
        );
    };
    sleeps_on(
        "since the reading after the last store but one",
        rule(4, 1, Without::ReadingBefore),
    );
    sleeps_on(
        "the same, a long quiet time",
        rule(6, 1, Without::ReadingBefore),
    );
    sleeps_on(
        "the clock is read before the store",
        rule(4, 1, Without::ReadingAfter),
    );
    sleeps_on(
        "a quiet time shorter than the gap",
        rule(1, 1, Without::Nothing),
    );
    sleeps_on("no quiet time", rule(4, 1, Without::Quiet));
    sleeps_on("several messages are one", rule(4, 1, Without::Many));
}
