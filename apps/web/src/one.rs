//! The stages in one process, linked by calls: what the server costs without isolation.

use crate::front::{Behind, Line};
use crate::lane::Got;
use crate::stage::{Outs, Stage, To};
use crate::word::Word;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use tranship::Body;

/// Stages behind a front of the same process.
#[derive(Default)]
pub struct Calls {
    stages: Vec<(To, Box<dyn Stage>)>,
    replies: VecDeque<(Word, Body)>,
    outs: Outs,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.stages.iter().map(|(to, _)| to.name());
        f.debug_list().entries(names).finish()
    }
}

impl Calls {
    /// Adds a stage.
    pub fn add(&mut self, to: To, stage: impl Stage + 'static) {
        self.stages.push((to, Box::new(stage)));
    }

    fn run(&mut self, from: To, to: To, word: Word, body: Body) {
        let mut from = from;
        let mut next = Some((to, word, body));
        while let Some((to, word, body)) = next.take() {
            match self.stages.iter_mut().find(|(known, _)| *known == to) {
                Some((_, stage)) => {
                    stage.take(from, word, body, &mut self.outs);
                    from = to;
                }
                None if to == To::Front => self.replies.push_back((word, body)),
                None => {}
            }
            // In order, and the path of one request to its end before the next one.
            if self.outs.0.len() == 1 {
                next = self.outs.0.pop();
            } else {
                let several = std::mem::take(&mut self.outs.0);
                for (to, word, body) in several {
                    self.run(from, to, word, body);
                }
            }
        }
    }
}

impl Behind for Calls {
    fn pass(&mut self, word: Word, body: Body) {
        self.run(To::Front, To::Http, word, body);
    }

    fn send(&mut self) -> Vec<Word> {
        Vec::new()
    }

    fn take(&mut self) -> Got {
        match self.replies.pop_front() {
            Some((word, body)) => Got::Message(word, body),
            None => Got::Nothing,
        }
    }

    fn arm(&mut self) -> bool {
        self.replies.is_empty()
    }

    fn woken(&mut self) {}

    fn look(&mut self) -> bool {
        true
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn log(&mut self, _: Line) {}

    fn flush_log(&mut self) {}
}
