//! A program: callers that go round through pools.

use super::curve::Curve;
use super::memory::Memory;
use super::num::{bytes, real};

/// The longest request, in steps.
const WHEEL: usize = 128;
/// The share by which the time of a request varies, up or down.
const VARIES: f64 = 0.2;

/// A program of a scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct App {
    /// The program's name.
    pub name: String,
    /// The pools that a request passes, in this order, a page of each: places in the scenario's list.
    pub stages: Vec<usize>,
    /// The time of a stage, ms. A caller holds a page of each stage for its time, and begins its next request when one
    /// is done.
    pub hold_ms: f64,
    /// The number of callers over time.
    pub demand: Curve,
    /// The share of a processor that it takes from all others when it works without waiting.
    pub processor: f64,
}

/// A program in a running simulation.
#[derive(Debug)]
pub(super) struct Player {
    pub app: App,
    /// By stage: how many requests end at each later step.
    wheels: Vec<[u64; WHEEL]>,
    callers: u64,
    pub done: u64,
    /// The program's share of work in the last step, 1: it did not wait.
    pub busy: f64,
    random: u64,
}

impl Player {
    pub fn new(app: &App, seed: u64) -> Player {
        Player {
            app: app.clone(),
            wheels: vec![[0; WHEEL]; app.stages.len()],
            callers: 0,
            done: 0,
            busy: 0.0,
            random: seed | 1,
        }
    }

    pub fn callers(&self) -> u64 {
        self.callers.max(1)
    }

    /// Does one step. `speed` is the share of a processor that it gets.
    pub fn step(&mut self, ms: u64, speed: f64, pools: &mut [Memory], room: &mut u64) {
        let demand = bytes(self.app.demand.at(ms).round());
        self.round(ms, demand, self.app.hold_ms / speed.max(0.05), pools, room);
    }

    fn round(&mut self, ms: u64, demand: u64, hold: f64, pools: &mut [Memory], room: &mut u64) {
        let now = usize::try_from(ms).unwrap_or(0) % WHEEL;
        let last = self.app.stages.len().saturating_sub(1);
        let stages = self.app.stages.clone();
        let stage = |i: usize| stages[i];
        // From the last to the first, so that no request passes two stages at once.
        for i in (0..=last).rev() {
            let ended = std::mem::take(&mut self.wheels[i][now]);
            pools[stage(i)].release(ended);
            if i < last {
                pools[stage(i + 1)].waiting += ended;
            } else {
                self.done += ended;
                pools[stage(0)].waiting += ended;
            }
        }
        // New callers come to the first stage, and callers leave there.
        let first = &mut pools[stage(0)];
        if self.callers < demand {
            first.waiting += demand - self.callers;
            self.callers = demand;
        } else {
            let leave = (self.callers - demand).min(first.waiting);
            first.waiting -= leave;
            self.callers -= leave;
        }
        for i in 0..=last {
            let pool = stage(i);
            while pools[pool].waiting > 0 && pools[pool].alloc(room) {
                pools[pool].waiting -= 1;
                let end = self.takes(hold);
                self.wheels[i][(now + end) % WHEEL] += 1;
            }
            pools[pool].blocked_ns += pools[pool].waiting.saturating_mul(1_000_000);
        }
        let waiting: u64 = stages.iter().map(|p| pools[*p].waiting).sum();
        self.busy = match self.callers {
            0 => 0.0,
            all => 1.0 - (real(waiting) / real(all)).min(1.0),
        };
    }

    /// Returns how many steps a request takes, at least one.
    fn takes(&mut self, hold: f64) -> usize {
        // Knuth's linear congruential generator.
        self.random = (self.random.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        let part = real(self.random >> 40) / real(1 << 24);
        let steps = hold * (1.0 + VARIES * (2.0 * part - 1.0));
        let steps = usize::try_from(bytes(steps.round())).unwrap_or(WHEEL);
        steps.clamp(1, WHEEL - 1)
    }
}
