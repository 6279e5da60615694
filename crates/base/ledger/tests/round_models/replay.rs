//! Functions of the library, run one access to shared memory at a time.
//!
//! A function is deterministic: its private state and the results of its accesses decide the next access. It is run anew for each
//! list of results, up to the first access without a result, which ends the run as an error. The lists are kept as a tree, so
//! that each is run once, whatever the other threads do meanwhile.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

/// A word of shared memory.
pub type Word = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Load(Word),
    Store(Word, u64),
    /// A locked instruction: adds, wrapping around at 32 bits, and returns what was there.
    Add(Word, u32),
    /// A full fence.
    Fence,
}

/// The memory of one run.
pub struct Script<'a> {
    results: &'a [u64],
    done: Cell<usize>,
    next: Cell<Option<Access>>,
}

/// The end of a run at an access without a result.
pub struct Stop;

pub type Run<T> = Result<T, Stop>;

impl Script<'_> {
    pub fn access(&self, access: Access) -> Run<u64> {
        let done = self.done.get();
        if let Some(&result) = self.results.get(done) {
            self.done.set(done + 1);
            return Ok(result);
        }
        self.next.set(Some(access));
        Err(Stop)
    }

    pub fn load(&self, word: Word) -> Run<u64> {
        self.access(Access::Load(word))
    }

    pub fn store(&self, word: Word, value: u64) -> Run<()> {
        self.access(Access::Store(word, value)).map(drop)
    }

    /// Adds 1 to a counter, or takes 1 away.
    pub fn count(&self, word: Word, up: bool) -> Run<()> {
        let by = if up { 1 } else { u32::MAX };
        self.access(Access::Add(word, by)).map(drop)
    }

    pub fn fence(&self) -> Run<()> {
        self.access(Access::Fence).map(drop)
    }
}

/// Operations that threads can run.
pub trait Code {
    type Op: Copy + Eq + Hash + Debug;
    /// Knowledge of a thread between two operations.
    type Private: Clone + Eq + Hash;
    /// Result that an operation gives the model at its end.
    type Said: Copy;

    fn run(
        &self,
        op: Self::Op,
        private: &mut Self::Private,
        memory: &Script<'_>,
    ) -> Run<Self::Said>;
}

/// A place in the tree of a function's runs. 0: in none.
pub type Place = u32;
/// The number of a private state.
pub type Private = u32;

#[derive(Clone, Copy)]
pub enum Next<S> {
    Access(Access),
    Ended(Private, S),
}

struct Node<C: Code> {
    op: C::Op,
    private: Private,
    results: Vec<u64>,
    next: Next<C::Said>,
    after: Vec<(u64, Place)>,
}

pub struct Book<C: Code> {
    pub code: C,
    privates: Vec<C::Private>,
    numbers: HashMap<C::Private, Private>,
    /// Of each private state, where its operations begin.
    starts: Vec<Vec<(C::Op, Place)>>,
    nodes: Vec<Node<C>>,
}

impl<C: Code> Book<C> {
    pub fn new(code: C) -> Self {
        Self {
            code,
            privates: Vec::new(),
            numbers: HashMap::new(),
            starts: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// How many private states and places there are.
    pub fn sizes(&self) -> (usize, usize) {
        (self.privates.len(), self.nodes.len())
    }

    pub fn number(&mut self, private: C::Private) -> Private {
        if let Some(&number) = self.numbers.get(&private) {
            return number;
        }
        let number = u32::try_from(self.privates.len()).expect("few");
        self.privates.push(private.clone());
        self.starts.push(Vec::new());
        self.numbers.insert(private, number);
        number
    }

    pub fn private(&self, number: Private) -> &C::Private {
        &self.privates[number as usize]
    }

    pub fn start(&mut self, op: C::Op, private: Private) -> Place {
        let starts = &self.starts[private as usize];
        if let Some((_, place)) = starts.iter().find(|(known, _)| *known == op) {
            return *place;
        }
        let place = self.run(op, private, Vec::new());
        self.starts[private as usize].push((op, place));
        place
    }

    pub fn after(&mut self, place: Place, result: u64) -> Place {
        let node = self.node(place);
        if let Some((_, next)) = node.after.iter().find(|(known, _)| *known == result) {
            return *next;
        }
        let (op, private) = (node.op, node.private);
        let mut results = node.results.clone();
        results.push(result);
        let next = self.run(op, private, results);
        self.nodes[place as usize - 1].after.push((result, next));
        next
    }

    fn node(&self, place: Place) -> &Node<C> {
        &self.nodes[place as usize - 1]
    }

    pub fn op(&self, place: Place) -> C::Op {
        self.node(place).op
    }

    pub fn next(&self, place: Place) -> Next<C::Said> {
        self.node(place).next
    }

    fn run(&mut self, op: C::Op, before: Private, results: Vec<u64>) -> Place {
        let mut private = self.private(before).clone();
        let script = Script {
            results: &results,
            done: Cell::new(0),
            next: Cell::new(None),
        };
        let next = match self.code.run(op, &mut private, &script) {
            Ok(said) => Next::Ended(self.number(private), said),
            Err(Stop) => Next::Access(script.next.get().expect("an access stopped it")),
        };
        self.nodes.push(Node {
            op,
            private: before,
            results,
            next,
            after: Vec::new(),
        });
        u32::try_from(self.nodes.len()).expect("few")
    }
}
