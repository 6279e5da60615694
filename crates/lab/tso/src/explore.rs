//! Every way in which threads and their store buffers can go on, depth first.
//!
//! A thread's code is run anew for each result that it gets. Its position is the list of its results so far. These
//! lists are kept as a tree, so that each is run once, whatever the other threads did meanwhile. A visited state is
//! remembered by 128 bits (for n states the chance that two share them is below n^2 / 2^129).
//!
//! A step that concerns one thread alone is done at once, because its time makes no difference. Such steps are a load
//! of a word that no other thread writes, and a fence with an empty buffer. A store or change of a word that no other
//! thread touches is such a step too. Which thread touches which word is found out on the way. A wrong assumption is
//! explored anew.

use super::session::{self, Next, Op, Word};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;

/// A system: the state that its threads share, and the code of each thread.
pub struct Model<S> {
    shared: S,
    memory: Vec<u64>,
    threads: Vec<Run<S>>,
    at_end: Box<dyn Fn(&S)>,
}

struct Run<S> {
    name: &'static str,
    run: Box<dyn Fn(&S)>,
}

/// The result of an exploration.
#[derive(Debug)]
pub struct Outcome {
    /// How many states.
    pub states: usize,
    /// The error, and the steps that lead to it; `None` if every way is right.
    pub wrong: Option<(String, Vec<String>)>,
}

impl<S> std::fmt::Debug for Model<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.threads.iter().map(|t| t.name).collect();
        f.debug_struct("Model").field("threads", &names).finish()
    }
}

impl<S> Model<S> {
    /// Makes a model. The threads share the result of `setup`, which runs before them.
    pub fn new(setup: impl FnOnce() -> S) -> Model<S> {
        let (shared, memory) = session::direct(Vec::new(), setup);
        Model {
            shared: shared.expect("it can be set up"),
            memory,
            threads: Vec::new(),
            at_end: Box::new(|_| {}),
        }
    }

    /// Adds a thread. With the same results, it must do the same each time.
    #[must_use]
    pub fn thread(mut self, name: &'static str, run: impl Fn(&S) + 'static) -> Model<S> {
        let run = Box::new(run);
        self.threads.push(Run { name, run });
        self
    }

    /// Adds a check for the end, when all threads have ended and all stores are in memory.
    #[must_use]
    pub fn at_end(mut self, check: impl Fn(&S) + 'static) -> Model<S> {
        self.at_end = Box::new(check);
        self
    }

    /// Explores all ways, up to the first wrong one: a thread panics, or no remaining thread can continue.
    #[must_use]
    pub fn explore(&self) -> Outcome {
        let mut explorer = Explorer {
            model: self,
            trees: self.threads.iter().map(|_| Tree::default()).collect(),
            seen: Seen::default(),
            touched: vec![Touched::default(); self.memory.len()],
            was_wrong: false,
        };
        explorer.begin();
        loop {
            let outcome = explorer.run();
            if !std::mem::take(&mut explorer.was_wrong) {
                return outcome;
            }
        }
    }

    /// Explores a system that must be right; prints its number of states, and returns it.
    ///
    /// # Panics
    /// If it is not.
    pub fn holds(&self, name: &str) -> usize {
        let Outcome { states, wrong } = self.explore();
        if let Some((why, way)) = wrong {
            panic!("{name}: {why}, after\n  {}", way.join("\n  "));
        }
        println!("{name}: {states} states, right");
        states
    }

    /// Explores a model that must be wrong, and returns the error.
    ///
    /// # Panics
    /// If the model is right.
    pub fn breaks(&self, name: &str) -> String {
        let Outcome { states, wrong } = self.explore();
        let Some((why, way)) = wrong else {
            panic!("{name}: nothing goes wrong in all {states} states");
        };
        println!(
            "{name}: {why}, in {states} states, after\n  {}",
            way.join("\n  ")
        );
        why
    }
}

/// The position of one thread.
#[derive(Clone, Default)]
struct Thread {
    /// The position in the thread's tree.
    at: usize,
    /// Stores of this thread that no other thread sees yet.
    buffer: VecDeque<(usize, u64)>,
    /// The thread is in the kernel until it is woken.
    sleeps: bool,
    /// Whether this thread has asked for a fence on all threads, and the threads that have not passed it yet: bit by
    /// thread.
    asked: bool,
    owed: u32,
}

#[derive(Clone)]
struct State {
    memory: Vec<u64>,
    threads: Vec<Thread>,
}

impl State {
    /// Loads a word as a thread sees it: its own stores are visible to it at once.
    fn load(&self, t: usize, index: usize) -> u64 {
        let own = self.threads[t]
            .buffer
            .iter()
            .rev()
            .find(|(at, _)| *at == index);
        own.map_or(self.memory[index], |(_, value)| *value)
    }

    /// Moves the oldest store of a thread to memory.
    fn drain(&mut self, t: usize) {
        if let Some((index, value)) = self.threads[t].buffer.pop_front() {
            self.memory[index] = value;
        }
        if self.threads[t].buffer.is_empty() {
            self.threads
                .iter_mut()
                .for_each(|other| other.owed &= !(1 << t));
        }
    }

    fn fingerprint(&self) -> u128 {
        let mut lanes = (1u64, 2u64);
        let mut mix = |word: u64| {
            let (a, b) = lanes;
            let a = (a ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let b = (b.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
            lanes = (a ^ a >> 29, b ^ b >> 32);
        };
        self.memory.iter().for_each(|word| mix(*word));
        for thread in &self.threads {
            mix(thread.at as u64);
            mix(u64::from(thread.owed) << 2
                | u64::from(thread.asked) << 1
                | u64::from(thread.sleeps));
            mix(thread.buffer.len() as u64);
            for &(index, value) in &thread.buffer {
                mix(index as u64);
                mix(value);
            }
        }
        mix(0);
        u128::from(lanes.0) << 64 | u128::from(lanes.1)
    }
}

/// All ways of one thread, each as far as it was explored.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
}

struct Node {
    /// The node before, and the result that leads here.
    came: Option<(usize, u64)>,
    next: Next,
    ways: HashMap<u64, usize>,
}

impl Tree {
    fn results(&self, mut at: usize) -> Vec<u64> {
        let mut results = Vec::new();
        while let Some((before, result)) = self.nodes[at].came {
            results.push(result);
            at = before;
        }
        results.reverse();
        results
    }

    fn add(&mut self, came: Option<(usize, u64)>, run: impl FnOnce()) -> usize {
        let mut results = came.map_or(Vec::new(), |(at, _)| self.results(at));
        results.extend(came.map(|(_, result)| result));
        let next = session::next(results, run);
        self.nodes.push(Node {
            came,
            next,
            ways: HashMap::new(),
        });
        self.nodes.len() - 1
    }

    fn go(&mut self, at: usize, result: u64, run: impl FnOnce()) -> usize {
        if let Some(to) = self.nodes[at].ways.get(&result) {
            return *to;
        }
        let to = self.add(Some((at, result)), run);
        self.nodes[at].ways.insert(result, to);
        to
    }
}

type Seen = HashSet<u128>;

/// One step: the thread, and its operation (`None`: a store of the thread reaches memory).
type Step = (usize, Option<Op>);

/// The threads that touch a word, as far as is known: bit by thread.
#[derive(Clone, Copy, Default)]
struct Touched {
    loads: u32,
    stores: u32,
    /// A step was done at once because of that.
    is_relied_on: bool,
}

struct Explorer<'a, S> {
    model: &'a Model<S>,
    trees: Vec<Tree>,
    seen: Seen,
    /// The touched words, by word.
    touched: Vec<Touched>,
    /// A thread touches a word although the exploration relied on it not to.
    was_wrong: bool,
}

impl<S> Explorer<'_, S> {
    fn begin(&mut self) {
        let model = self.model;
        for (t, thread) in model.threads.iter().enumerate() {
            let at = self.trees[t].add(None, || (thread.run)(&model.shared));
            self.touches(t, at);
        }
    }

    /// Records which words a thread touches, now that its next step is known.
    fn touches(&mut self, t: usize, at: usize) {
        let (words, is_load, is_store) = match &self.trees[t].nodes[at].next {
            Next::Op(Op::Load(word) | Op::Yield(word, _)) => (vec![word.index], true, false),
            Next::Op(Op::Store(word, _)) => (vec![word.index], false, true),
            Next::Op(Op::Locked(word, _)) => (vec![word.index], true, true),
            Next::Op(Op::Sleep(words)) => {
                let words = words.iter().map(|(word, _)| word.index);
                (words.collect(), true, false)
            }
            Next::Op(Op::Fence | Op::FenceEverybody | Op::Wake(_) | Op::WakeOne(_)) => return,
            Next::Done | Next::Panics(_) => return,
        };
        for index in words {
            let before = self.touched[index];
            let touched = &mut self.touched[index];
            touched.loads |= u32::from(is_load) << t;
            touched.stores |= u32::from(is_store) << t;
            let is_new = (touched.loads, touched.stores) != (before.loads, before.stores);
            self.was_wrong |= is_new && before.is_relied_on;
        }
    }

    /// Says whether a thread's step makes no difference to other threads.
    fn is_alone(&mut self, state: &State, t: usize, op: &Op) -> bool {
        let (index, is_load) = match op {
            Op::Load(word) => (word.index, true),
            Op::Store(word, _) => (word.index, false),
            Op::Locked(word, _) if state.threads[t].buffer.is_empty() => (word.index, false),
            Op::Fence => return state.threads[t].buffer.is_empty(),
            _ => return false,
        };
        let touched = &mut self.touched[index];
        let others = touched.stores | if is_load { 0 } else { touched.loads };
        let is_alone = others & !(1 << t) == 0;
        touched.is_relied_on |= is_alone;
        is_alone
    }

    fn run(&mut self) -> Outcome {
        let model = self.model;
        self.seen.clear();
        self.touched.iter_mut().for_each(|t| t.is_relied_on = false);
        let start = State {
            memory: model.memory.clone(),
            threads: vec![Thread::default(); model.threads.len()],
        };
        self.seen.insert(start.fingerprint());
        let mut way: Vec<Step> = Vec::new();
        let mut open = vec![self.successors(&start)];
        let mut wrong = self.judge(&start, &open[0]);
        while let (None, false, Some(steps)) = (&wrong, self.was_wrong, open.last_mut()) {
            let Some((step, state)) = steps.pop() else {
                open.pop();
                way.pop();
                continue;
            };
            if self.seen.insert(state.fingerprint()) {
                let next = self.successors(&state);
                way.push(step);
                wrong = self.judge(&state, &next);
                open.push(next);
            }
        }
        Outcome {
            states: self.seen.len(),
            wrong: wrong.map(|why| (why, way.iter().map(|step| self.describe(step)).collect())),
        }
    }

    fn next(&self, t: usize, state: &State) -> &Next {
        &self.trees[t].nodes[state.threads[t].at].next
    }

    /// Returns the error of a state, if there is one.
    fn judge(&self, state: &State, steps: &[(Step, State)]) -> Option<String> {
        let mut left = String::new();
        for (t, thread) in self.model.threads.iter().enumerate() {
            match self.next(t, state) {
                Next::Panics(why) => return Some(format!("{}: {why}", thread.name)),
                Next::Op(op) => _ = write!(left, " {} waits in {op:?}", thread.name),
                Next::Done => {}
            }
        }
        if !steps.is_empty() {
            return None;
        }
        if !left.is_empty() {
            return Some(format!("nobody goes on:{left}"));
        }
        let check = || (self.model.at_end)(&self.model.shared);
        session::direct(state.memory.clone(), check).0.err()
    }

    fn successors(&mut self, state: &State) -> Vec<(Step, State)> {
        for t in 0..state.threads.len() {
            if let Next::Op(op) = self.next(t, state).clone()
                && self.is_alone(state, t, &op)
            {
                let mut next = state.clone();
                let result = match &op {
                    Op::Load(word) => state.load(t, word.index),
                    op => session::at_once(&mut next.memory, op),
                };
                self.answer(&mut next, t, result);
                return vec![((t, Some(op)), next)];
            }
        }
        let mut out = Vec::new();
        for t in 0..state.threads.len() {
            if !state.threads[t].buffer.is_empty() {
                let mut next = state.clone();
                next.drain(t);
                out.push(((t, None), next));
            }
            if let Next::Op(op) = self.next(t, state).clone()
                && let Some(next) = self.step(state, t, &op)
            {
                out.push(((t, Some(op)), next));
            }
        }
        out
    }

    fn answer(&mut self, state: &mut State, t: usize, result: u64) {
        let model = self.model;
        let at = state.threads[t].at;
        let to = self.trees[t].go(at, result, || (model.threads[t].run)(&model.shared));
        state.threads[t].at = to;
        self.touches(t, to);
    }

    /// Wakes at most so many threads that sleep on a word, and returns how many.
    fn wake(&mut self, state: &State, next: &mut State, word: Word, most: usize) -> u64 {
        let mut woken = 0;
        for other in 0..state.threads.len() {
            let sleeps_on_it = match self.next(other, state) {
                Next::Op(Op::Sleep(words)) => words.iter().any(|(on, _)| *on == word),
                _ => false,
            };
            if woken < most && state.threads[other].sleeps && sleeps_on_it {
                woken += 1;
                next.threads[other].sleeps = false;
                self.answer(next, other, 0);
            }
        }
        woken as u64
    }

    /// Does one step. Returns `None` if the step cannot be done now: a locked instruction or a system call waits until
    /// the thread's stores are in memory.
    fn step(&mut self, state: &State, t: usize, op: &Op) -> Option<State> {
        let thread = &state.threads[t];
        let is_drained = thread.buffer.is_empty();
        let mut next = state.clone();
        let result = match op {
            Op::Load(word) => state.load(t, word.index),
            Op::Store(word, value) => {
                next.threads[t].buffer.push_back((word.index, *value));
                0
            }
            Op::Yield(word, value) if state.load(t, word.index) == *value => return None,
            Op::Yield(..) => 0,
            _ if !is_drained || thread.sleeps => return None,
            Op::Fence => 0,
            Op::Locked(word, change) => {
                let was = state.memory[word.index];
                next.memory[word.index] = word.change(was, *change);
                was
            }
            // Threads with an empty buffer have passed a fence now. The others have when their buffer is empty for the
            // first time.
            Op::FenceEverybody if !thread.asked => {
                let owing = state.threads.iter().enumerate();
                let owing = owing.filter(|(_, other)| !other.buffer.is_empty());
                next.threads[t].owed = owing.fold(0, |bits, (other, _)| bits | 1 << other);
                next.threads[t].asked = true;
                return Some(next);
            }
            Op::FenceEverybody if thread.owed != 0 => return None,
            Op::FenceEverybody => {
                next.threads[t].asked = false;
                0
            }
            Op::Sleep(words) if words.iter().all(|(w, seen)| state.memory[w.index] == *seen) => {
                next.threads[t].sleeps = true;
                return Some(next);
            }
            Op::Sleep(_) => 0,
            Op::Wake(word) => self.wake(state, &mut next, *word, usize::MAX),
            Op::WakeOne(word) => self.wake(state, &mut next, *word, 1),
        };
        self.answer(&mut next, t, result);
        Some(next)
    }

    fn describe(&self, (t, op): &Step) -> String {
        let name = self.model.threads[*t].name;
        match op {
            Some(op) => format!("{name}: {op:?}"),
            None => format!("{name}: a store reaches memory"),
        }
    }
}
