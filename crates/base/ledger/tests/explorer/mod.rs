//! Breadth first over all reachable states of a system; the shortest way to the first wrong one.
//!
//! Both programs of exhaustive models use it: `models` and `round_models`.

mod fingerprint;

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

pub use fingerprint::{Seen, fingerprint};

/// A system with finitely many states.
pub trait System {
    type State: Copy + Hash;
    /// Step between two states. It is written out only for a trace.
    type Step: Copy + Display;

    fn initial(&mut self) -> Self::State;

    /// Adds everything that can happen next.
    fn successors(&mut self, state: &Self::State, out: &mut Vec<(Self::Step, Self::State)>);

    /// The rule that the state breaks.
    fn wrong(&mut self, state: &Self::State) -> Option<&'static str>;
}

#[derive(Debug)]
pub struct Outcome {
    pub states: usize,
    pub depth: usize,
    pub violation: Option<(&'static str, Vec<String>)>,
}

pub fn explore<S: System>(system: &mut S) -> Outcome {
    let mut seen = Seen::default();
    let mut steps = Vec::new();
    let mut frontier = vec![system.initial()];
    seen.insert(fingerprint(&frontier[0]));
    let mut depth = 0;
    while !frontier.is_empty() {
        let mut next_frontier = Vec::new();
        for state in &frontier {
            steps.clear();
            system.successors(state, &mut steps);
            for &(_, next) in &steps {
                let print = fingerprint(&next);
                if !seen.insert(print) {
                    continue;
                }
                if let Some(why) = system.wrong(&next) {
                    return Outcome {
                        states: seen.len(),
                        depth,
                        violation: Some((why, trace(system, print))),
                    };
                }
                next_frontier.push(next);
            }
        }
        frontier = next_frontier;
        depth += 1;
    }
    Outcome {
        states: seen.len(),
        depth,
        violation: None,
    }
}

/// Goes the way again, this time remembering it.
fn trace<S: System>(system: &mut S, goal: u128) -> Vec<String> {
    let mut came = HashMap::new();
    let mut steps = Vec::new();
    let start = system.initial();
    let mut frontier = vec![start];
    came.insert(fingerprint(&start), None);
    'search: while !frontier.is_empty() {
        let mut next_frontier = Vec::new();
        for state in &frontier {
            let from = fingerprint(state);
            steps.clear();
            system.successors(state, &mut steps);
            for &(step, next) in &steps {
                let print = fingerprint(&next);
                if came.contains_key(&print) {
                    continue;
                }
                came.insert(print, Some((from, step)));
                if print == goal {
                    break 'search;
                }
                next_frontier.push(next);
            }
        }
        frontier = next_frontier;
    }
    let mut path = Vec::new();
    let mut at = goal;
    while let Some((from, step)) = came[&at] {
        path.push(step.to_string());
        at = from;
    }
    path.reverse();
    path
}

/// Explores a system that must be right; prints its size, and returns the number of its states.
pub fn holds<S: System>(name: &str, system: &mut S) -> usize {
    let outcome = explore(system);
    let Outcome { states, depth, .. } = outcome;
    println!("{name}: {states} states, {depth} steps deep, right");
    if let Some((why, trace)) = outcome.violation {
        panic!("{name}: {why}\n{}", trace.join("\n"));
    }
    states
}

/// Explores a system with one rule taken away; returns what goes wrong.
pub fn breaks<S: System>(name: &str, system: &mut S) -> &'static str {
    let Outcome {
        states, violation, ..
    } = explore(system);
    let (why, trace) =
        violation.unwrap_or_else(|| panic!("{name}: nothing went wrong in all {states} states"));
    let steps = trace.len();
    println!(
        "{name}: {why}, after {steps} steps, in {states} states\n  {}",
        trace.join("\n  ")
    );
    why
}

/// Whether the large models were asked for.
pub fn torture() -> bool {
    std::env::var_os("TRANSHIP_TORTURE").is_some()
}
