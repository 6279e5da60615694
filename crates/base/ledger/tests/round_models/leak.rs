//! Whether all becomes free again, from any state: every operation ends, all that is held goes, the dead leave, and rounds follow.

use tranship_ring::broadcast::{Hold, Win};

use crate::code::{Op, Private};
use crate::config::Without;
use crate::explorer::fingerprint;
use crate::words;
use crate::world::{HELPER, State, THREADS, WRITER, World};

impl World {
    /// Whether a buffer stays that no line names.
    pub fn leaks(&mut self, state: &State) -> bool {
        let mut state = *state;
        for thread in 1..HELPER {
            if self.is_liar(thread) {
                state.alive &= !(1 << thread);
            }
        }
        for thread in 0..THREADS {
            self.finish(&mut state, thread);
        }
        for reader in 0..self.config().readers.len() {
            let is_asked = self.writer(&state).asked & 1 << reader != 0;
            let is_dead = state.alive & 2 << reader == 0;
            if is_asked && is_dead && !self.config().is(Without::Removal) {
                self.does(
                    &mut state,
                    WRITER,
                    Op::Remove(u8::try_from(reader).expect("few")),
                );
            }
        }
        for thread in [1, 2, HELPER, 1, 2, HELPER] {
            while let Some(op) = self.wind_down(&state, thread) {
                self.does(&mut state, thread, op);
            }
        }
        for reader in 0..self.config().readers.len() {
            let is_asked = self.writer(&state).asked & 1 << reader != 0;
            if is_asked && state.gone & 1 << reader != 0 {
                let number = u8::try_from(reader).expect("few");
                self.does(&mut state, WRITER, Op::RemoveEmpty(number));
            }
        }
        if let Some(both) = self.leaves(&state) {
            self.does(&mut state, WRITER, Op::Leave(both));
        }
        if !self.settled.insert(fingerprint(&state)) {
            return false;
        }
        if self.writer(&state).found != 0 {
            self.does(&mut state, WRITER, Op::Forget);
        }
        for _ in 0..3 {
            while self.writer(&state).rounds.is_under_way() {
                for op in [Op::Look, Op::Table, Op::End] {
                    self.does(&mut state, WRITER, op);
                }
            }
            if self.writer(&state).judged != 0 {
                self.does(&mut state, WRITER, Op::Judge);
            }
            self.does(&mut state, WRITER, Op::Begin);
        }
        let all = (1 << self.config().slots) - 1;
        all & !state.free & !self.writer(&state).named() != 0
    }

    /// What a thread does that goes on to nothing new.
    fn wind_down(&self, state: &State, thread: usize) -> Option<Op> {
        if state.alive & 1 << thread == 0 {
            return None;
        }
        let entry = |entry: usize| u8::try_from(entry).expect("few");
        match self.book.private(state.private[thread]) {
            Private::Reader(reader) => {
                let win = Win::unpack(self.load(state, thread, words::win(thread - 1)));
                let kept = reader.kept.iter().position(|kept| *kept != 0);
                let table = (0..).zip(reader.table).find(|(_, n)| *n != 0);
                if !reader.window.is_empty() {
                    return Some(Op::Finish);
                }
                kept.map(|at| Op::LetGo(Hold::Entry(entry(at))))
                    .or(table.map(|(slot, _)| Op::LetGo(Hold::Table(slot))))
                    .or((win.len != 0).then_some(Op::Rest))
            }
            Private::Receiver(held) => {
                if self.load(state, thread, words::FORWARDED) != 0 && !self.is_liar(1) {
                    return Some(Op::Take);
                }
                held.iter()
                    .position(|n| *n > 0)
                    .map(|slot| Op::Release(entry(slot)))
            }
            Private::Nothing => {
                let is_helper = thread == HELPER && self.config().helper;
                (is_helper && self.load(state, thread, words::HANDED) != 0).then_some(Op::Help)
            }
            Private::Writer(_) => None,
        }
    }

    /// A whole operation, with nothing in between.
    fn does(&mut self, state: &mut State, thread: usize, op: Op) {
        self.starts(state, thread, op);
        self.finish(state, thread);
    }

    fn finish(&mut self, state: &mut State, thread: usize) {
        loop {
            if state.waiting[thread] > 0 {
                self.commit(state, thread);
                self.run(state, thread);
            } else if !self.goes_alone(state, thread) {
                return;
            }
        }
    }
}
