//! Decides what is started, stopped and started again. It does no input or output, and takes the time as an argument.
//!
//! ```text
//!                 dependencies ready            READY=1, or at once
//!  Waiting ───────────────────────► Starting ───────────────────────► Ready
//!     ▲                                │ ended, or not ready in time     │ ended
//!     │ the pause is over              ▼                                 ▼
//!  Resting ◄─────────── the rule says "again" ──── else ────────────► Ended
//!                                 Starting, Ready ── stop ──► Stopping ──► Ended
//! ```

use std::time::{Duration, Instant};
use tranship::component::Returns;

/// The machine's rules for a process of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// Processes that must be ready before.
    pub after: Vec<usize>,
    /// When it is started again.
    pub restart: Returns,
    /// Pause before it is started again; it doubles with each failure, up to `longest_pause`.
    pub pause: Duration,
    /// The longest pause. If a process has run for this time, its next pause is the first one again.
    pub longest_pause: Duration,
    /// Failures one after the other after which it is given up; `None`: it never is.
    pub tries: Option<u32>,
    /// Time that it has to say that it is ready; `None`: it is ready as soon as it runs.
    pub ready_in: Option<Duration>,
    /// Time between the request to end and the kill.
    pub stop_in: Duration,
    /// The program does not wait for its end.
    pub background: bool,
    /// Processes that receive what it sends. When all of them have ended in order, it is stopped.
    pub receivers: Vec<usize>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            after: Vec::new(),
            restart: Returns::OnFailure,
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            tries: None,
            ready_in: None,
            stop_in: Duration::from_secs(5),
            background: false,
            receivers: Vec::new(),
        }
    }
}

/// State of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The process waits for its dependencies.
    Waiting,
    /// The process has run since this time, and is not ready.
    Starting(Instant),
    /// The process is ready, and has run since this time.
    Ready(Instant),
    /// The process was told to end, and is killed at this time.
    Stopping(Instant),
    /// The process is started again at this time.
    Resting(Instant),
    /// The process has ended for good, with this exit code.
    Ended(i32),
}

impl State {
    /// Says whether there is a process.
    #[must_use]
    pub fn runs(self) -> bool {
        matches!(
            self,
            State::Starting(_) | State::Ready(_) | State::Stopping(_)
        )
    }

    /// Returns the state in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Starting(_) => "starting",
            State::Ready(_) => "running",
            State::Stopping(_) => "stopping",
            State::Resting(_) => "resting",
            State::Ended(0) => "done",
            State::Ended(_) => "failed",
        }
    }
}

/// A task for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Starts the process.
    Start(usize),
    /// Asks it to end.
    Stop(usize),
    /// Kills it, and all that it started.
    Kill(usize),
}

#[derive(Debug)]
struct Process {
    rules: Rules,
    state: State,
    failures: u32,
    restarts: u32,
    /// The machine told the process to end, so its exit code says nothing.
    told: bool,
    late: bool,
}

/// All processes of a program.
#[derive(Debug)]
pub struct Machine {
    all: Vec<Process>,
    stopping: bool,
    code: i32,
}

impl Machine {
    /// Makes a machine of processes that all wait. Dependencies must form no circle.
    #[must_use]
    pub fn new(rules: Vec<Rules>) -> Machine {
        let all = rules.into_iter().map(|rules| Process {
            rules,
            state: State::Waiting,
            failures: 0,
            restarts: 0,
            told: false,
            late: false,
        });
        Machine {
            all: all.collect(),
            stopping: false,
            code: 0,
        }
    }

    /// Returns the state of a process, and how often it was started again.
    #[must_use]
    pub fn state(&self, at: usize) -> (State, u32) {
        (self.all[at].state, self.all[at].restarts)
    }

    /// Returns the exit code of the program once nothing runs or is going to.
    #[must_use]
    pub fn finished(&self) -> Option<i32> {
        let over =
            |p: &Process| matches!(p.state, State::Ended(_)) || self.stopping && !p.state.runs();
        self.all.iter().all(over).then_some(self.code)
    }

    /// Notes that a process said that it is ready.
    pub fn ready(&mut self, at: usize) {
        if let State::Starting(since) = self.all[at].state {
            self.all[at].state = State::Ready(since);
        }
    }

    /// Notes that a process that is told to end had ended before by itself: its exit code counts.
    pub fn ended_before(&mut self, at: usize) {
        self.all[at].told = false;
    }

    /// Notes the end of a process, with its exit code: 128 and the number for a signal.
    pub fn ended(&mut self, at: usize, code: i32, now: Instant) {
        let stopping = self.stopping;
        let process = &mut self.all[at];
        let since = match process.state {
            State::Starting(since) | State::Ready(since) => since,
            _ => now,
        };
        let late = std::mem::take(&mut process.late);
        let failed = (code != 0 && !process.told) || late;
        let again = match process.rules.restart {
            Returns::Never => false,
            Returns::OnFailure => failed,
            Returns::Always => true,
        };
        if now.duration_since(since) >= process.rules.longest_pause {
            process.failures = 0;
        }
        if failed {
            process.failures += 1;
        }
        let given_up = process
            .rules
            .tries
            .is_some_and(|tries| failed && process.failures >= tries);
        if again && !stopping && !process.told && !given_up {
            let doubled = process.failures.saturating_sub(1).min(20);
            let pause = process.rules.pause.saturating_mul(1 << doubled);
            process.state = State::Resting(now + pause.min(process.rules.longest_pause));
            return;
        }
        let code = match (process.told, code) {
            (true, _) => 0,
            (false, 0) if late => 1,
            (false, code) => code,
        };
        process.state = State::Ended(code);
        if code != 0 {
            // The first failure for good ends the program, and is its exit code.
            if self.code == 0 {
                self.code = code;
            }
            self.stopping = true;
        }
    }

    /// Ends the program: nothing is started any more, and what runs is asked to end, dependents first.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Returns whether the program is ending.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Returns what is to be done now. Each order is given once.
    pub fn orders(&mut self, now: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        let over = |p: &Process| p.rules.background || matches!(p.state, State::Ended(_));
        if self.all.iter().all(over) {
            self.stopping = true;
        }
        for at in 0..self.all.len() {
            let process = &self.all[at];
            match process.state {
                State::Waiting | State::Resting(_) if self.stopping => {}
                State::Waiting if self.may_start(at) => self.start(at, now, &mut orders),
                State::Resting(then) if then <= now && self.may_start(at) => {
                    self.all[at].restarts += 1;
                    self.start(at, now, &mut orders);
                }
                State::Starting(_) | State::Ready(_) if self.must_stop(at) => {
                    let process = &mut self.all[at];
                    process.told = true;
                    process.state = State::Stopping(now + process.rules.stop_in);
                    orders.push(Order::Stop(at));
                }
                State::Starting(since)
                    if process
                        .rules
                        .ready_in
                        .is_some_and(|most| since + most <= now) =>
                {
                    let process = &mut self.all[at];
                    process.late = true;
                    orders.push(Order::Kill(at));
                    process.state = State::Ready(since);
                }
                State::Stopping(then) if then <= now => {
                    orders.push(Order::Kill(at));
                    // Not again: a killed process ends.
                    self.all[at].state = State::Stopping(now + Duration::from_secs(3600));
                }
                _ => {}
            }
        }
        orders
    }

    /// Returns the time of the next order that needs none but time.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let all = self.all.iter().enumerate();
        let when = |(at, p): (usize, &Process)| match p.state {
            // Another component may have to be ready first. Its readiness is an event, not a time.
            State::Resting(then) if !self.stopping && self.may_start(at) => Some(then),
            State::Stopping(then) => Some(then),
            State::Starting(since) => p.rules.ready_in.map(|most| since + most),
            _ => None,
        };
        all.filter_map(when).min()
    }

    fn start(&mut self, at: usize, now: Instant, orders: &mut Vec<Order>) {
        let process = &mut self.all[at];
        process.state = match process.rules.ready_in {
            Some(_) => State::Starting(now),
            None => State::Ready(now),
        };
        orders.push(Order::Start(at));
    }

    /// A process that has ended in order was ready.
    fn may_start(&self, at: usize) -> bool {
        let ready = |on: &usize| matches!(self.all[*on].state, State::Ready(_) | State::Ended(0));
        self.all[at].rules.after.iter().all(ready)
    }

    fn must_stop(&self, at: usize) -> bool {
        let process = &self.all[at];
        if self.stopping {
            let depends = |p: &Process| p.rules.after.contains(&at) && p.state.runs();
            return !self.all.iter().any(depends);
        }
        let receivers = &process.rules.receivers;
        let over = |on: &usize| matches!(self.all[*on].state, State::Ended(_));
        !receivers.is_empty() && receivers.iter().all(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_code_counts_of_a_component_that_had_failed_before_it_was_told_to_end() {
        let now = Instant::now();
        let sends = Rules {
            receivers: vec![1],
            restart: Returns::Never,
            ..Rules::default()
        };
        for (failed_before, code) in [(true, 7), (false, 0)] {
            let mut machine = Machine::new(vec![sends.clone(), Rules::default()]);
            assert_eq!(machine.orders(now), [Order::Start(0), Order::Start(1)]);
            machine.ready(0);
            machine.ended(1, 0, now);
            assert_eq!(machine.orders(now), [Order::Stop(0)]);
            if failed_before {
                machine.ended_before(0);
            }
            machine.ended(0, 7, now);
            assert_eq!(machine.finished(), Some(code));
        }
    }

    #[test]
    fn a_component_is_started_after_those_that_it_needs_and_stopped_before_them() {
        let now = Instant::now();
        let needs = Rules {
            after: vec![1],
            ..Rules::default()
        };
        let slow = Rules {
            ready_in: Some(MS * 50),
            ..Rules::default()
        };
        let mut machine = Machine::new(vec![needs, slow]);
        assert_eq!(machine.orders(now), [Order::Start(1)]);
        assert_eq!(machine.orders(now), []);
        machine.ready(1);
        assert_eq!(machine.orders(now), [Order::Start(0)]);
        machine.stop();
        assert_eq!(machine.orders(now), [Order::Stop(0)]);
        machine.ended(0, 143, now);
        assert_eq!(machine.orders(now), [Order::Stop(1)]);
        machine.ended(1, 143, now);
        assert_eq!(machine.finished(), Some(0));
    }

    #[test]
    fn a_failure_is_followed_by_a_pause_that_doubles_up_to_the_longest() {
        let mut now = Instant::now();
        let mut machine = Machine::new(vec![Rules {
            longest_pause: MS * 300,
            ..Rules::default()
        }]);
        assert_eq!(machine.orders(now), [Order::Start(0)]);
        for pause in [100, 200, 300, 300] {
            machine.ended(0, 137, now);
            assert_eq!(machine.next(), Some(now + MS * pause));
            now += MS * (pause - 1);
            assert_eq!(machine.orders(now), []);
            now += MS;
            assert_eq!(machine.orders(now), [Order::Start(0)]);
        }
        assert_eq!(machine.state(0), (State::Ready(now), 4));
        now += MS * 300;
        machine.ended(0, 137, now);
        assert_eq!(machine.next(), Some(now + MS * 100), "it had run for long");
    }

    #[test]
    fn a_component_is_not_started_again_before_those_that_it_needs() {
        let now = Instant::now();
        let needs = Rules {
            after: vec![1],
            ..Rules::default()
        };
        let needed = Rules {
            ready_in: Some(MS * 5000),
            ..Rules::default()
        };
        let mut machine = Machine::new(vec![needs, needed]);
        machine.orders(now);
        machine.ready(1);
        machine.orders(now);
        machine.ended(1, 137, now);
        machine.ended(0, 9, now);
        assert_eq!(machine.orders(now + MS * 100), [Order::Start(1)]);
        let next = machine.next().expect("the end of its patience");
        assert_eq!(next, now + MS * 5100);
        machine.ready(1);
        assert_eq!(machine.orders(now + MS * 100), [Order::Start(0)]);
    }

    #[test]
    fn the_first_failure_for_good_ends_all_with_its_code() {
        let now = Instant::now();
        let never = Rules {
            restart: Returns::Never,
            ..Rules::default()
        };
        let mut machine = Machine::new(vec![never.clone(), Rules::default(), never]);
        assert_eq!(machine.orders(now).len(), 3);
        machine.ended(0, 3, now);
        machine.ended(2, 4, now);
        assert_eq!(machine.orders(now), [Order::Stop(1)]);
        assert_eq!(machine.finished(), None);
        assert_eq!(machine.orders(now + MS * 5000), [Order::Kill(1)]);
        machine.ended(1, 137, now);
        assert_eq!(machine.finished(), Some(3));
    }

    #[test]
    fn a_component_that_is_never_ready_fails_until_it_is_given_up() {
        let mut now = Instant::now();
        let mut machine = Machine::new(vec![Rules {
            ready_in: Some(MS),
            tries: Some(2),
            ..Rules::default()
        }]);
        for _ in 0..2 {
            assert_eq!(machine.orders(now), [Order::Start(0)]);
            now += MS;
            assert_eq!(machine.orders(now), [Order::Kill(0)]);
            machine.ended(0, 137, now);
            now += MS * 1000;
        }
        assert_eq!(machine.finished(), Some(137));
    }

    #[test]
    fn a_sender_without_receivers_is_stopped_and_background_alone_ends() {
        let now = Instant::now();
        let sends = Rules {
            receivers: vec![1],
            restart: Returns::Always,
            ..Rules::default()
        };
        let store = Rules {
            background: true,
            ..Rules::default()
        };
        let mut machine = Machine::new(vec![sends, Rules::default(), store]);
        machine.orders(now);
        machine.ended(1, 0, now);
        assert_eq!(machine.orders(now), [Order::Stop(0)]);
        machine.ended(0, 143, now);
        assert_eq!(machine.orders(now), [Order::Stop(2)]);
        machine.ended(2, 0, now);
        assert_eq!(machine.finished(), Some(0));
    }
}
