//! The stages behind a front in a process of its own.

use super::{Behind, Line};
use crate::component::Ends;
use crate::lane::{Ended, Got, In};
use crate::stage::{Outs, To, nothing};
use crate::word::Word;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use tranship::{Body, Message};

/// Bytes of a line for the log.
pub(crate) const LINE: usize = 20;
/// Lines that are sent together.
const LINES: usize = 128;
/// Replies that are taken together.
const BATCH: usize = 64;

/// The stages behind a front in a process of its own: channels.
#[derive(Debug)]
pub struct Channels {
    ends: Ends,
    /// What was passed to each row. A connection stays in one row.
    passed: Vec<Vec<(Word, Body)>>,
    got: Vec<Message>,
    taken: VecDeque<Message>,
    logged: Vec<u8>,
    /// The channel that is looked at next.
    turn: usize,
    woken: bool,
    /// Nothing was taken since then.
    empty: bool,
}

impl Channels {
    /// Makes it of the component's ends.
    #[must_use]
    pub fn new(ends: Ends) -> Channels {
        let rows = ends.outs.iter().filter(|out| out.to == To::Http).count();
        Channels {
            passed: (0..rows.max(1)).map(|_| Vec::new()).collect(),
            ends,
            got: Vec::new(),
            taken: VecDeque::new(),
            logged: Vec::new(),
            turn: 0,
            woken: true,
            empty: false,
        }
    }
}

impl Behind for Channels {
    fn pass(&mut self, word: Word, body: Body) {
        let rows = self.passed.len();
        match word.as_roll() {
            None => self.passed[usize::from(word.slot()) % rows].push((word, body)),
            Some((number, share)) => {
                let words = Word::rolls(number, share, rows);
                for (row, word) in self.passed.iter_mut().zip(words) {
                    row.push((word, nothing()));
                }
            }
        }
    }

    fn send(&mut self) -> Vec<Word> {
        let mut failed = Vec::new();
        let rows = self.ends.outs.iter_mut().filter(|out| out.to == To::Http);
        for (http, passed) in rows.zip(&mut self.passed) {
            let passed = passed.drain(..);
            http.send(&self.ends.pool, passed, |word, _| failed.push(word));
        }
        failed
    }

    fn take(&mut self) -> Got {
        if let Some(message) = self.taken.pop_front() {
            return Got::Message(Word(message.word), message.body);
        }
        for _ in 0..self.ends.ins.len() {
            let end = &mut self.ends.ins[self.turn];
            if self.woken || end.is_ready() {
                let ended = end.take(&mut self.got, BATCH) == Err(Ended);
                self.taken.extend(self.got.drain(..));
                if ended {
                    self.ends.look();
                    return Got::Gone;
                }
                if let Some(message) = self.taken.pop_front() {
                    self.empty = false;
                    return Got::Message(Word(message.word), message.body);
                }
            }
            self.turn = (self.turn + 1) % self.ends.ins.len();
        }
        self.woken = false;
        if std::mem::take(&mut self.empty) {
            // A byte that wakes may come later than its message was taken. It has to go, or it wakes again and again.
            self.ends.ins.iter_mut().for_each(In::disarm);
            // So has news of the manager. A look at an end finds most of it.
            self.look();
        }
        Got::Nothing
    }

    fn arm(&mut self) -> bool {
        self.ends.ins.iter_mut().all(In::arm)
    }

    fn woken(&mut self) {
        self.woken = true;
        self.empty = true;
        if !self.ends.are_there() {
            self.look();
        }
    }

    fn look(&mut self) -> bool {
        // A peer may have ended.
        self.woken = true;
        // What it cannot do now is done the next time.
        let _ = self.ends.domain.turn();
        self.ends.ins.iter_mut().for_each(In::look);
        for out in self.ends.outs.iter_mut().filter(|out| !out.is_there()) {
            out.look(&self.ends.pool);
        }
        self.ends.are_there()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ends.domain.as_fd())
    }

    fn log(&mut self, line: Line) {
        if !self.ends.outs.iter().any(|out| out.to == To::Log) {
            return;
        }
        let micros = u32::try_from(line.took.as_micros()).unwrap_or(u32::MAX);
        self.logged.extend(line.word.0.to_le_bytes());
        self.logged.extend(line.bytes.to_le_bytes());
        self.logged.extend(micros.to_le_bytes());
        if self.logged.len() >= LINES * LINE {
            self.flush_log();
        }
    }

    fn flush_log(&mut self) {
        if self.logged.is_empty() {
            return;
        }
        if let Ok(mut lines) = self.ends.pool.try_alloc(self.logged.len()) {
            lines.copy_from_slice(&self.logged);
            let mut outs = Outs::default();
            outs.send(To::Log, Word(0), Body::Buffer(lines.freeze()));
            self.ends.flush(&mut outs);
        }
        self.logged.clear();
    }
}
