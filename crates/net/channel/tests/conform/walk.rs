//! All paths between the states of a small configuration, walked over `shm:`. Each step compares the results, states,
//! permissions and bytes of all domains. Each state also tries everything that must not be possible in it.

use crate::world::World;
use std::collections::{BTreeSet, HashMap, VecDeque};
use tranship_model::explore::{Case, Does, Limits, ways};
use tranship_model::{Model, Op};
use tranship_testkit::{Random, Watchdog};

/// Extent of a walk.
pub enum Amount {
    /// Every way. Of the deaths, which each take a new process and a new way there, one in so many, chosen at random.
    All { one_death_in: u64 },
    /// A number of worlds, each with a limited number of steps. Each world first takes random steps. In each, a domain
    /// is killed at a random moment, if any may be killed.
    Some { worlds: u64, steps: u64 },
}

struct Way {
    op: Op,
    to: usize,
    walked: bool,
}

struct State {
    model: Model,
    /// Ways out; none before a walk or a search has come here.
    ways: Option<Vec<Way>>,
    /// Operations that are refused here were tried.
    is_seen: bool,
}

/// Part of the states that walks and searches have reached.
struct Map {
    limits: Limits,
    one_death_in: u64,
    ids: HashMap<Model, usize>,
    states: Vec<State>,
    /// Ways that a world does not go, as it skips them.
    barred: BTreeSet<(usize, usize)>,
    random: Random,
}

pub fn walk<'a>(case: &Case, amount: &Amount, dog: &Watchdog, new: impl Fn() -> World<'a>) {
    let mut map = Map::new(case, amount);
    let (worlds, steps) = match amount {
        Amount::All { .. } => (u64::MAX, u64::MAX),
        Amount::Some { worlds, steps } => (*worlds, *steps),
    };
    let (mut done, mut deaths) = (0, 0);
    for _ in 0..worlds {
        let before = map.walked();
        let (wanders, dies_at) = match amount {
            Amount::All { .. } => (0, u64::MAX),
            Amount::Some { .. } => (map.random.below(steps / 3), map.random.below(steps)),
        };
        let mut world = new();
        (case.start)(&mut world);
        map.barred.clear();
        let mut way = VecDeque::new();
        let mut steps_so_far: Vec<String> = Vec::new();
        for step in 0..steps {
            let mut at = map.state(world.model());
            if !std::mem::replace(&mut map.states[at].is_seen, true) {
                let after = |what| panic!("{what}\nafter\n{}", steps_so_far.join("\n"));
                world.refuses(&case.limits).unwrap_or_else(after);
                // The model may have agreed to pools.
                at = map.state(world.model());
            }
            if step == dies_at {
                way = map.death_at(at).into();
            }
            if way.is_empty() {
                way = match step < wanders {
                    true => map.any(at).into_iter().collect(),
                    false => map.nearest(at).into(),
                };
            }
            let Some(next) = way.pop_front() else { break };
            let (op, to) = map.takes(at, next);
            deaths += u64::from(matches!(op, Op::Kill { .. }));
            steps_so_far.push(format!("{op:?}"));
            // The whole walk has as long as it needs; each step has the watchdog's time.
            dog.step(format_args!("{op:?}"));
            world
                .step(&op)
                .unwrap_or_else(|what| panic!("{what}\nafter\n{}", steps_so_far.join("\n")));
            done += 1;
            if map.state(world.model()) != to {
                map.barred.insert((at, next));
                way.clear();
            }
        }
        world.end().expect("as the model");
        // The rest is beyond the number of states that a world skips.
        if matches!(amount, Amount::All { .. }) && map.walked() == before {
            break;
        }
    }
    let all = map.ways().count();
    let seen = map.states.iter().filter(|state| state.is_seen).count();
    let (walked, states) = (map.walked(), map.states.len());
    println!(
        "{case:?}: {walked} of {all} ways, {seen} of {states} states, {done} steps, {deaths} deaths"
    );
}

impl Map {
    fn new(case: &Case, amount: &Amount) -> Map {
        Map {
            limits: case.limits,
            one_death_in: match amount {
                Amount::All { one_death_in } => *one_death_in,
                Amount::Some { .. } => 1,
            },
            ids: HashMap::new(),
            states: Vec::new(),
            barred: BTreeSet::new(),
            random: Random::printed(case.name),
        }
    }

    /// Returns the number of a state.
    fn state(&mut self, model: &Model) -> usize {
        if let Some(known) = self.ids.get(model) {
            return *known;
        }
        let new = self.states.len();
        self.ids.insert(model.clone(), new);
        self.states.push(State {
            model: model.clone(),
            ways: None,
            is_seen: false,
        });
        new
    }

    /// Returns the ways out of a state, in a random order.
    fn ways_from(&mut self, at: usize) -> &mut Vec<Way> {
        if self.states[at].ways.is_none() {
            let mut all = Vec::new();
            for (op, next) in ways(&self.states[at].model, &self.limits) {
                if matches!(op, Op::Kill { .. }) && !self.random.one_in(self.one_death_in) {
                    continue;
                }
                let (to, walked) = (self.state(&next), false);
                all.push(Way { op, to, walked });
            }
            for last in (1..all.len()).rev() {
                let other = self.random.below(last as u64 + 1);
                all.swap(last, usize::try_from(other).unwrap_or(0));
            }
            self.states[at].ways = Some(all);
        }
        self.states[at].ways.get_or_insert_default()
    }

    fn ways(&self) -> impl Iterator<Item = &Way> {
        self.states.iter().flat_map(|state| &state.ways).flatten()
    }

    fn walked(&self) -> usize {
        self.ways().filter(|way| way.walked).count()
    }

    fn takes(&mut self, at: usize, number: usize) -> (Op, usize) {
        let way = &mut self.ways_from(at)[number];
        way.walked = true;
        (way.op.clone(), way.to)
    }

    fn death_at(&mut self, at: usize) -> Vec<usize> {
        let deaths = |way: &Way| matches!(way.op, Op::Kill { .. });
        let number = self.ways_from(at).iter().position(deaths);
        number.into_iter().collect()
    }

    /// Returns any one, rarely towards the end.
    fn any(&mut self, at: usize) -> Option<usize> {
        let goes_on = !self.random.one_in(20);
        self.ways_from(at);
        let all = self.states[at].ways.iter().flatten().enumerate();
        let is_open = |(number, way): &(usize, &Way)| {
            !matches!(way.op, Op::Kill { .. }) && !self.barred.contains(&(at, *number))
        };
        let mut all: Vec<(usize, &Way)> = all.filter(is_open).collect();
        let ends = |way: &Way| matches!(way.op, Op::Close { .. });
        if goes_on && all.iter().any(|(_, way)| !ends(way)) {
            all.retain(|(_, way)| !ends(way));
        }
        if all.iter().any(|(_, way)| !way.walked) {
            all.retain(|(_, way)| !way.walked);
        }
        let number = self.random.below(all.len() as u64);
        let (number, _) = all.get(usize::try_from(number).unwrap_or(0))?;
        Some(*number)
    }

    /// The way to the nearest one that was not walked, and it; deaths, which end much, only where there is no other.
    fn nearest(&mut self, from: usize) -> Vec<usize> {
        let near = self.nearest_of(from, false);
        near.or_else(|| self.nearest_of(from, true))
            .unwrap_or_default()
    }

    fn nearest_of(&mut self, from: usize, deaths: bool) -> Option<Vec<usize>> {
        let mut came: HashMap<usize, Option<(usize, usize)>> = HashMap::from([(from, None)]);
        let mut open = VecDeque::from([from]);
        while let Some(at) = open.pop_front() {
            self.ways_from(at);
            for (number, way) in self.states[at].ways.iter().flatten().enumerate() {
                let kills = matches!(way.op, Op::Kill { .. });
                if self.barred.contains(&(at, number)) || kills && !deaths {
                    continue;
                }
                if !way.walked {
                    let mut steps = vec![number];
                    let mut here = at;
                    while let Some((before, number)) = came[&here] {
                        steps.push(number);
                        here = before;
                    }
                    steps.reverse();
                    return Some(steps);
                }
                came.entry(way.to).or_insert_with(|| {
                    open.push_back(way.to);
                    Some((at, number))
                });
            }
        }
        None
    }
}
