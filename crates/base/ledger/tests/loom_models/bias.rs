//! References counted alone, under weak memory: none is lost, and no thread still reads a buffer that the collector
//! then fills (a data race), while other threads receive, clone and drop.
//!
//! Seen failing, besides what is kept as tests: the fence left out of `share` or of the look; `raise` or `release`
//! without the look at the counter; the load in `release` relaxed; its store relaxed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};
use tranship_ledger::{Bias, hold, raise, receive, release};
use tranship_sync::atomic::{AtomicU32, Ordering};
use tranship_sync::{Mark, Marks};

/// One buffer of somebody else's, which comes over two queues.
struct Pool {
    bytes: UnsafeCell<u32>,
    marks: Marks,
    bias: Bias,
    refs: AtomicU32,
    rcvd: [AtomicU32; 2],
}

impl Pool {
    fn new() -> Arc<Pool> {
        let zero = || AtomicU32::new(0);
        Arc::new(Pool {
            bytes: UnsafeCell::new(0),
            marks: Marks::default(),
            bias: Bias::new(),
            refs: zero(),
            rcvd: [zero(), zero()],
        })
    }

    fn at(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    fn take(&self, mark: &Mark, waits_for: &Marks, queue: usize) {
        let (who, at, refs) = (Some(mark), self.at(), &self.refs);
        let shared = || self.bias.receive_shared(who, waits_for, at, refs, || {});
        let raise = || {
            self.bias.receive(who, at, refs, shared);
            Ok(())
        };
        let unchecked = None::<fn() -> Result<(), ()>>;
        let take = || hold(raise, unchecked, || unreachable!(), |_| {});
        receive(take, &self.rcvd[queue], |_| {}).unwrap();
    }

    fn let_go(&self, mark: &Mark) {
        // SAFETY: what is tested: loom checks that nobody fills it.
        self.bytes.with(|bytes| assert_eq!(unsafe { *bytes }, 0));
        if !mark.visit(self, || self.bias.release(mark, &self.refs)) {
            assert!(release(&self.refs) < 3, "never below none");
        }
    }

    /// The collector's pass.
    fn fill_if_free(&self, messages: u32) {
        let received = self.rcvd.iter().map(|rcvd| rcvd.load(Ordering::Acquire));
        if received.sum::<u32>() == messages && self.refs.load(Ordering::Acquire) == 0 {
            // SAFETY: as in `let_go`.
            self.bytes.with_mut(|bytes| unsafe { *bytes = 1 });
        }
    }
}

/// One that received before, alone, and goes on; what the others do; the collector.
fn explore(
    messages: u32,
    first: fn(&Pool, &Mark),
    other: fn(&Arc<Pool>, &Mark),
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let pool = Pool::new();
        let [mine, theirs] = [(); 2].map(|()| pool.marks.take());
        pool.bias.share(Some(mine), &pool.marks, pool.at(), || {});
        let threads = [
            thread::spawn({
                let pool = Arc::clone(&pool);
                move || first(&pool, mine)
            }),
            thread::spawn({
                let pool = Arc::clone(&pool);
                move || other(&pool, theirs)
            }),
        ];
        pool.fill_if_free(messages);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(pool.refs.load(Ordering::Relaxed), 0);
    }
}

fn holds(system: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(system);
}

fn fails(system: impl Fn() + Send + Sync + 'static) {
    let outcome = catch_unwind(AssertUnwindSafe(|| holds(system)));
    assert!(outcome.is_err(), "nothing went wrong");
}

fn one_message(pool: &Pool, mark: &Mark) {
    pool.take(mark, &pool.marks, 0);
    pool.let_go(mark);
}

#[test]
fn another_thread_receives_the_same_buffer() {
    holds(explore(2, one_message, |pool, mark| {
        pool.take(mark, &pool.marks, 1);
        pool.let_go(mark);
    }));
}

#[test]
fn two_messages_with_one_buffer_after_each_other() {
    let twice = |pool: &Pool, mark: &Mark| {
        one_message(pool, mark);
        one_message(pool, mark);
    };
    holds(explore(3, twice, |pool, mark| {
        pool.take(mark, &pool.marks, 1);
        pool.let_go(mark);
    }));
}

#[test]
fn another_thread_lets_a_clone_go() {
    // The clone is made where the buffer was received, and handed over.
    let system = || {
        let pool = Pool::new();
        let [mine, theirs] = [(); 2].map(|()| pool.marks.take());
        pool.bias.share(Some(mine), &pool.marks, pool.at(), || {});
        pool.take(mine, &pool.marks, 0);
        raise(&pool.refs);
        let other = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.let_go(theirs)
        });
        let collector = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.fill_if_free(2)
        });
        pool.let_go(mine);
        pool.take(mine, &pool.marks, 0);
        pool.let_go(mine);
        other.join().unwrap();
        collector.join().unwrap();
        assert_eq!(pool.refs.load(Ordering::Relaxed), 0);
    };
    holds(system);
}

#[test]
fn who_does_not_wait_for_the_one() {
    fails(explore(2, one_message, |pool, mark| {
        pool.take(mark, &Marks::default(), 1);
        pool.let_go(mark);
    }));
}
