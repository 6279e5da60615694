//! A task that awaits a line, under loom: everything that is published after its last look finds its waker. The task's
//! waker is in a place under a lock, as in `session/tasks.rs`; a third thread is the one that sleeps on the bells
//! (`link/reactor.rs`).
//!
//! Seen failing: with the waker stored after the look; with the bell cleared after the waker was taken; without the
//! look.

use crate::model;
use loom::sync::{Arc, Mutex};
use loom::thread;
use tranship_ring::{Consumer, Producer, Publish, Push, Ring};
use tranship_sync::atomic::{AtomicBool, AtomicU32, Ordering};

struct Shared {
    source: Ring,
    sink: Ring,
    /// The descriptor that is readable.
    bell: AtomicBool,
    /// The task's waker.
    waker: Mutex<bool>,
    /// The number of calls.
    woken: AtomicU32,
}

impl Shared {
    fn send(&self, producer: &mut Producer, n: u64) {
        let words = [1 << 32, n, 0, 0, 0, 0, 0, 0];
        let pushed = producer.try_push(self.source.own_lines(), Publish::SeqCst, words, || {
            self.source.their_head()
        });
        assert_eq!(pushed, Ok(Push::Done));
        self.source.notify(|| {
            self.bell.store(true, Ordering::Release);
            true
        });
    }

    /// Does the work of the thread that finds the bell readable, if it is.
    fn react(&self) {
        if self.bell.load(Ordering::Acquire) {
            self.bell.store(false, Ordering::Relaxed);
            if std::mem::take(&mut *self.waker.lock().unwrap()) {
                self.woken.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Makes one look of the task: it takes a message, or sleeps.
    fn poll(&self, consumer: &mut Consumer) -> bool {
        loop {
            if consumer.try_pop(self.sink.their_lines()).is_some() {
                self.sink.give_back(consumer.head());
                self.sink.disarm();
                *self.waker.lock().unwrap() = false;
                return true;
            }
            *self.waker.lock().unwrap() = true;
            self.sink.arm();
            if !consumer.ready(self.sink.their_lines()) {
                return false;
            }
        }
    }
}

#[test]
fn a_task_that_sleeps_is_woken() {
    explore(false);
}

#[test]
fn a_task_that_was_run_again_meanwhile_is_woken() {
    explore(true);
}

/// Runs the task once, and then when it is woken; `again`: a second time for any reason, also a wake-up before that.
fn explore(again: bool) {
    model::explore(3, move || {
        let (source, sink) = Ring::pair(2);
        let shared = Arc::new(Shared {
            source,
            sink,
            bell: AtomicBool::new(false),
            waker: Mutex::new(false),
            woken: AtomicU32::new(0),
        });
        let theirs = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            let mut producer = Producer::new();
            theirs.send(&mut producer, 0);
            theirs.send(&mut producer, 1);
        });
        let theirs = Arc::clone(&shared);
        let reactor = thread::spawn(move || theirs.react());
        let mut consumer = Consumer::new();
        let mut taken = 0;
        let mut run = || {
            while taken < 2 && shared.poll(&mut consumer) {
                taken += 1;
            }
            taken
        };
        run();
        let mut seen = 0;
        if again {
            seen = shared.woken.load(Ordering::Relaxed);
            run();
        }
        sender.join().unwrap();
        reactor.join().unwrap();
        loop {
            // A bell that rings is noticed at some time.
            shared.react();
            let woken = shared.woken.load(Ordering::Relaxed);
            if woken == seen {
                break;
            }
            seen = woken;
            run();
        }
        assert_eq!(taken, 2, "it sleeps beside a message");
    });
}
