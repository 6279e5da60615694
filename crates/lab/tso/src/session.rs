//! Operations on a modelled word. Outside of an exploration, loom does them. Before and after the threads, they act at
//! once. In a thread, the explorer is asked.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A word of the explored memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(super) index: usize,
    /// The bits of the word's type.
    mask: u64,
}

/// A locked instruction's change of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Swap(u64),
    Add(u64),
    Sub(u64),
    Exchange { from: u64, to: u64 },
}

/// A thread's next operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Load(Word),
    Store(Word, u64),
    Locked(Word, Change),
    Fence,
    /// Make every thread pass a fence, and return after that (`membarrier(2)`).
    FenceEverybody,
    /// Continue when the word that the thread has loaded last has changed.
    Yield(Word, u64),
    /// Sleep in the kernel until one of the words is woken, unless a word has changed already.
    Sleep(Vec<(Word, u64)>),
    Wake(Word),
    /// Wake one sleeper, and return how many were found.
    WakeOne(Word),
}

enum Now {
    /// No exploration runs here.
    Elsewhere,
    /// The setup makes the shared state, or the check at the end reads it.
    Direct(Vec<u64>),
    /// A thread repeats the way that it has gone.
    Thread(Replay),
}

struct Replay {
    results: Vec<u64>,
    done: usize,
    loaded: Option<(Word, u64)>,
    wants: Option<Op>,
}

std::thread_local! {
    static NOW: RefCell<Now> = const { RefCell::new(Now::Elsewhere) };
}

/// The point that a thread reaches with its results so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Op(Op),
    Done,
    Panics(String),
}

/// The panic that ends a thread's code at a result which is not there yet.
struct Stop;

impl Word {
    /// Makes a new word, in an exploration.
    pub(crate) fn new(value: u64, mask: u64) -> Option<Word> {
        NOW.with_borrow_mut(|now| match now {
            Now::Elsewhere => None,
            Now::Direct(memory) => {
                memory.push(value);
                let index = memory.len() - 1;
                Some(Word { index, mask })
            }
            Now::Thread(_) => panic!("threads share what was made before them, and nothing else"),
        })
    }

    pub(super) fn change(self, was: u64, change: Change) -> u64 {
        let is = match change {
            Change::Swap(to) => to,
            Change::Add(by) => was.wrapping_add(by),
            Change::Sub(by) => was.wrapping_sub(by),
            Change::Exchange { from, to } if was == from => to,
            Change::Exchange { .. } => was,
        };
        is & self.mask
    }

    /// Waits, if this thread is explored, until the word that it has loaded last has changed. Returns whether it is
    /// explored.
    pub(crate) fn yields() -> bool {
        let loaded = NOW.with_borrow(|now| match now {
            Now::Thread(replay) => replay.loaded,
            Now::Elsewhere | Now::Direct(_) => None,
        });
        let Some((word, value)) = loaded else {
            return false;
        };
        perform(Op::Yield(word, value));
        true
    }
}

/// Says whether an exploration runs here.
pub(crate) fn is_running() -> bool {
    NOW.with_borrow(|now| !matches!(now, Now::Elsewhere))
}

/// Does an operation in an exploration.
pub(crate) fn perform(op: Op) -> u64 {
    if std::thread::panicking() {
        return 0; // values that are dropped on the way out
    }
    let result = NOW.with_borrow_mut(|now| match now {
        Now::Elsewhere => panic!("a word outlives its exploration"),
        Now::Direct(memory) => Some(at_once(memory, &op)),
        Now::Thread(replay) => {
            let result = replay.results.get(replay.done).copied();
            replay.done += 1;
            match (result, &op) {
                (Some(result), Op::Load(word)) => replay.loaded = Some((*word, result)),
                (Some(_), _) => {}
                (None, _) => replay.wants = Some(op),
            }
            result
        }
    });
    result.unwrap_or_else(|| resume_unwind(Box::new(Stop)))
}

/// Does an operation at once, without a store buffer.
pub(super) fn at_once(memory: &mut [u64], op: &Op) -> u64 {
    match op {
        Op::Load(word) => memory[word.index],
        Op::Store(word, value) => {
            memory[word.index] = *value;
            0
        }
        Op::Locked(word, change) => {
            let was = memory[word.index];
            memory[word.index] = word.change(was, *change);
            was
        }
        Op::Fence | Op::FenceEverybody | Op::Wake(_) | Op::WakeOne(_) => 0,
        Op::Yield(..) | Op::Sleep(_) => panic!("nobody is there to wait for"),
    }
}

/// Runs code outside of the threads over that memory.
pub(super) fn direct<R>(
    memory: Vec<u64>,
    run: impl FnOnce() -> R,
) -> (Result<R, String>, Vec<u64>) {
    NOW.with_borrow_mut(|now| *now = Now::Direct(memory));
    let result = catch_unwind(AssertUnwindSafe(run)).map_err(|why| text(&*why));
    match NOW.replace(Now::Elsewhere) {
        Now::Direct(memory) => (result, memory),
        Now::Elsewhere | Now::Thread(_) => unreachable!("it was that"),
    }
}

/// Finds a thread's next operation after these results.
pub(super) fn next(results: Vec<u64>, run: impl FnOnce()) -> Next {
    let had = results.len();
    let replay = Replay {
        results,
        done: 0,
        loaded: None,
        wants: None,
    };
    NOW.with_borrow_mut(|now| *now = Now::Thread(replay));
    let ended = catch_unwind(AssertUnwindSafe(run));
    let Now::Thread(replay) = NOW.replace(Now::Elsewhere) else {
        unreachable!("it was that")
    };
    match (ended, replay.wants) {
        (Ok(()), None) => {
            assert_eq!(replay.done, had, "a thread went another way than before");
            Next::Done
        }
        (_, Some(op)) => Next::Op(op),
        (Err(why), None) => Next::Panics(text(&*why)),
    }
}

fn text(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<String>().cloned();
    let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_string()));
    text.unwrap_or_else(|| "it panics".into())
}
