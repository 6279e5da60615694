//! All paths between the states of a small configuration, walked over `shm:`. Each step compares the results, states,
//! permissions and bytes of all domains. Each state also tries everything that must not be possible in it.

use crate::world::World;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use tranship_model::explore::{Case, Does, explore};
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

struct Map {
    ids: HashMap<Model, usize>,
    ways: Vec<Vec<Way>>,
    /// States in which nothing was refused yet.
    unseen: BTreeSet<usize>,
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
            let mut at = map.ids[world.model()];
            if map.unseen.remove(&at) {
                let after = |what| panic!("{what}\nafter\n{}", steps_so_far.join("\n"));
                world.refuses(&case.limits).unwrap_or_else(after);
                // The model may have agreed to pools.
                at = map.ids[world.model()];
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
            if map.ids[world.model()] != to {
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
    let all: usize = map.ways.iter().map(Vec::len).sum();
    let (walked, states) = (map.walked(), map.ways.len());
    let seen = states - map.unseen.len();
    println!(
        "{case:?}: {walked} of {all} ways, {seen} of {states} states, {done} steps, {deaths} deaths"
    );
}

impl Map {
    fn new(case: &Case, amount: &Amount) -> Map {
        let mut ways: BTreeMap<usize, Vec<Way>> = BTreeMap::new();
        let mut random = Random::printed(case.name);
        let mut skips = |op: &Op| match (op, amount) {
            (Op::Kill { .. }, Amount::All { one_death_in }) => !random.one_in(*one_death_in),
            _ => false,
        };
        let ids = explore(case.model(), &case.limits, &mut |from, op, to| {
            if !skips(op) {
                let (op, walked) = (op.clone(), false);
                ways.entry(from).or_default().push(Way { op, to, walked });
            }
        });
        let states = 0..ids.len();
        let mut of = |state| {
            let mut all = ways.remove(&state).unwrap_or_default();
            // The steps are shuffled.
            for last in (1..all.len()).rev() {
                let other = random.below(last as u64 + 1);
                all.swap(last, usize::try_from(other).unwrap_or(0));
            }
            all
        };
        Map {
            ways: states.clone().map(&mut of).collect(),
            ids,
            unseen: states.collect(),
            barred: BTreeSet::new(),
            random,
        }
    }

    fn walked(&self) -> usize {
        let all = self.ways.iter().flatten();
        all.filter(|way| way.walked).count()
    }

    fn takes(&mut self, at: usize, number: usize) -> (Op, usize) {
        let way = &mut self.ways[at][number];
        way.walked = true;
        (way.op.clone(), way.to)
    }

    fn death_at(&self, at: usize) -> Vec<usize> {
        let deaths = |way: &&Way| matches!(way.op, Op::Kill { .. });
        let number = self.ways[at].iter().position(|way| deaths(&way));
        number.into_iter().collect()
    }

    /// Returns any one, rarely towards the end.
    fn any(&mut self, at: usize) -> Option<usize> {
        let ends = |op: &Op| matches!(op, Op::Close { .. });
        let goes_on = !self.random.one_in(20);
        let open = |number: &usize| {
            let kills = matches!(self.ways[at][*number].op, Op::Kill { .. });
            !kills && !self.barred.contains(&(at, *number))
        };
        let mut all: Vec<usize> = (0..self.ways[at].len()).filter(open).collect();
        let of = |number: &usize| &self.ways[at][*number];
        if goes_on && all.iter().any(|number| !ends(&of(number).op)) {
            all.retain(|number| !ends(&of(number).op));
        }
        if all.iter().any(|number| !of(number).walked) {
            all.retain(|number| !of(number).walked);
        }
        let number = self.random.below(all.len() as u64);
        all.get(usize::try_from(number).unwrap_or(0)).copied()
    }

    /// The way to the nearest one that was not walked, and it; deaths, which end much, only where there is no other.
    fn nearest(&self, from: usize) -> Vec<usize> {
        let to = |deaths| self.nearest_of(from, deaths);
        to(false).or_else(|| to(true)).unwrap_or_default()
    }

    fn nearest_of(&self, from: usize, deaths: bool) -> Option<Vec<usize>> {
        let mut came: HashMap<usize, Option<(usize, usize)>> = HashMap::from([(from, None)]);
        let mut open = VecDeque::from([from]);
        while let Some(at) = open.pop_front() {
            for (number, way) in self.ways[at].iter().enumerate() {
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
