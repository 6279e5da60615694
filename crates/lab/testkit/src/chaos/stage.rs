//! Stage: the parties, the flows between them, and the blows.

use super::bystanders::Bystanders;
use super::recovery::{Rate, Recoveries, Recovery};
use super::{Gauge, Harm, Party, Schedule, Step};
use crate::Watchdog;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Flow that goes on, as long as certain parties are up.
#[derive(Debug)]
pub struct Flow {
    pub name: &'static str,
    /// Number in the gauge that counts it.
    pub counts: usize,
    /// Numbers of the parties without which it stands still. Those that only begin it (a manager) are not among them.
    pub needs: Vec<usize>,
}

/// The manager's number among the parties.
pub const MANAGER: usize = 0;

/// Number of further messages that prove that a flow goes on.
const SOME: u64 = 5;

/// Whether all parties are done with the effects of the last step.
pub type Settled = Box<dyn Fn(&[Party]) -> bool>;

/// All of a scene.
pub struct Stage {
    pub parties: Vec<Party>,
    flows: Vec<Flow>,
    gauge: Gauge,
    dog: Watchdog,
    settled: Settled,
    recoveries: Recoveries,
    /// Whether rates have to come back, and not only something flow: on a machine that is busy with nothing else, so no
    /// other scene plays meanwhile.
    rated: Option<MutexGuard<'static, ()>>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// Returns whether rates have to come back here; waits until no other scene plays then.
#[must_use]
pub fn alone() -> Option<MutexGuard<'static, ()>> {
    let rated = std::env::var_os("TRANSHIP_TORTURE").is_some();
    rated.then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { parties, flows, .. } = self;
        f.debug_struct("Stage")
            .field("parties", parties)
            .field("flows", flows)
            .finish()
    }
}

impl Stage {
    /// Starts all parties, and waits until everything flows. `dog` is told of every step; `rated` is the result of
    /// [`alone`].
    #[must_use]
    pub fn new(
        parties: Vec<Party>,
        flows: Vec<Flow>,
        gauge: Gauge,
        settled: Settled,
        dog: Watchdog,
        rated: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        let mut stage = Self {
            parties,
            flows,
            gauge,
            dog,
            settled,
            recoveries: Recoveries::default(),
            rated,
        };
        stage.parties.iter_mut().for_each(Party::start);
        stage.all_flow();
        stage
    }

    /// Strikes so many times.
    ///
    /// # Panics
    /// When a party ends by itself; in a torture run on a machine that does nothing else, when half of the recoveries
    /// take longer than 2 s. A flow that stands still, or does not get as fast as before, is the watchdog's.
    pub fn run(&mut self, schedule: Schedule, rounds: usize) {
        let begun = Bystanders::now(&self.parties);
        for step in schedule.take(rounds) {
            self.dog.step(format_args!("{step}: {:?}", self.parties));
            eprintln!("{step}");
            self.step(&step);
        }
        if self.rated.is_some() {
            self.recoveries.report();
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            self.recoveries.judge(begun.used(&self.parties), processors);
        }
    }

    fn step(&mut self, step: &Step) {
        let rates = self.rates();
        if step.looks {
            // A flow that is still being set up may stand still together with its parties.
            self.dog.step("waiting for calm");
            while !(self.settled)(&self.parties) {
                self.parties.iter_mut().for_each(Party::check);
            }
        }
        for blow in &step.blows {
            pass(&self.parties, blow.after);
            let victim = &mut self.parties[blow.victim];
            match blow.harm {
                Harm::Kill => victim.kill(),
                Harm::Stop => victim.stop(),
            }
        }
        // A manager that stands still while it takes a dead reader from a reader set makes writers wait for memory
        // until it goes on.
        if step.looks && !step.stops_amid_a_death(MANAGER) {
            self.some_flow();
        }
        for (victim, pause) in &step.recovery {
            pass(&self.parties, *pause);
            self.parties[*victim].recover();
        }
        let up = Instant::now();
        self.all_flow();
        let flowing = up.elapsed();
        self.as_fast_as(&rates);
        let names: Vec<&str> = self.parties.iter().map(Party::name).collect();
        let recovery = Recovery::of(step, &names, flowing, up.elapsed());
        self.recoveries.add(recovery);
    }

    /// Returns the rate of each flow, where that matters.
    fn rates(&mut self) -> Vec<f64> {
        let Self {
            parties,
            flows,
            gauge,
            rated,
            ..
        } = self;
        let flows = flows.iter().filter(|_| rated.is_some());
        let begun: Vec<Rate> = flows.map(|f| Rate::begin(gauge, f.counts)).collect();
        let ended = |rate: Rate| {
            let mut found = None;
            wait(parties, || {
                found = rate.look(gauge);
                found.is_some()
            });
            found.unwrap_or(0.0)
        };
        begun.into_iter().map(ended).collect()
    }

    /// Waits until rates are as before: half of the old rate is enough. A flow without a rate must only flow.
    fn as_fast_as(&mut self, rates: &[f64]) {
        let Self {
            parties,
            flows,
            gauge,
            ..
        } = self;
        let begin = |flow: &Flow| Rate::begin(gauge, flow.counts);
        // All are looked at together.
        let flows = flows.iter().zip(rates);
        let mut slow: Vec<_> = flows
            .map(|(flow, before)| (flow, *before, begin(flow)))
            .collect();
        wait(parties, || {
            slow.retain_mut(|(flow, before, rate)| match rate.look(gauge) {
                Some(now) if now >= *before / 2.0 => false,
                Some(_) => {
                    *rate = begin(flow);
                    true
                }
                None => true,
            });
            slow.is_empty()
        });
    }

    /// Checks that flows go on that do not depend on the parties that are down.
    fn some_flow(&mut self) {
        let up: Vec<bool> = self.parties.iter().map(Party::is_up).collect();
        self.await_flows(|flow| flow.needs.iter().all(|party| up[*party]));
    }

    /// Checks that everything goes on.
    pub fn all_flow(&mut self) {
        self.await_flows(|_| true);
    }

    fn await_flows(&mut self, wanted: impl Fn(&Flow) -> bool) {
        let Self {
            parties,
            flows,
            gauge,
            dog,
            ..
        } = self;
        let flows = flows.iter().filter(|flow| wanted(flow));
        let goals: Vec<(&Flow, u64)> = flows
            .map(|flow| (flow, gauge.read(flow.counts) + SOME))
            .collect();
        for (flow, goal) in goals {
            dog.step(format_args!("waiting for {}", flow.name));
            wait(parties, || gauge.read(flow.counts) >= goal);
        }
    }
}

/// Waits, and notes the parties that end meanwhile.
fn wait(parties: &mut [Party], mut done: impl FnMut() -> bool) {
    while !done() {
        parties.iter_mut().for_each(Party::check);
        pass(parties, Duration::from_millis(1));
    }
}

/// Lets some time pass, in which the parties have the processor; ends early when one of them does.
fn pass(parties: &[Party], time: Duration) {
    let peers = parties.iter().filter_map(Party::peer);
    let pidfds: Vec<_> = peers.map(crate::Peer::pidfd).collect();
    let polled = pidfds.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(0),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let _ = poll(&mut polled, Some(&time));
}
