//! All steps of the system as the explorer takes them.

use std::fmt;

use crate::config::Config;
use crate::explorer::System;
use crate::state::State;
use crate::{collector, domain, liar, manager, writer};

/// Collects the successors of one state.
pub struct Steps<'a> {
    next: &'a mut Vec<(Step, State)>,
}

impl Steps<'_> {
    pub fn push(&mut self, what: &'static str, who: u8, whom: u8, state: State) {
        self.next.push((Step { what, who, whom }, state));
    }
}

#[derive(Clone, Copy)]
pub struct Step {
    what: &'static str,
    who: u8,
    whom: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { what, who, whom } = self;
        let names = ["A", "B", "C", "E", "A, second thread"];
        match who {
            100 => write!(f, "collector: {what} {whom}"),
            101 => write!(f, "manager: {what} {whom}"),
            _ => write!(
                f,
                "{}: {what} {whom}",
                names.get(usize::from(*who)).unwrap_or(&"-")
            ),
        }
    }
}

impl System for &Config {
    type State = State;
    type Step = Step;

    fn initial(&mut self) -> State {
        State::initial(self)
    }

    fn successors(&mut self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut out = Steps { next };
        domain::steps(self, state, &mut out);
        writer::steps(self, state, &mut out);
        liar::steps(self, state, &mut out);
        collector::steps(self, state, &mut out);
        manager::steps(self, state, &mut out);
        for (_, next) in next {
            next.normalise(self);
            manager::check_quiescence(self, next);
        }
    }

    fn wrong(&mut self, state: &State) -> Option<&'static str> {
        state.wrong
    }
}
