//! Collector against receivers, forwarders and a liar, under weak memory.
//!
//! The buffer's bytes are a cell that loom watches: a collector that hands it out while somebody may still read it,
//! or before it has seen that they are done, is a data race. Each ordering is also taken away once, and must then
//! fail.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tranship-ledger --release --test loom_models collect --target-dir target/loom`

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};
use tranship_ledger::{
    Batch, NoWords, ReaderSet, Sent, Source, Words, hold, is_named, pass_back, raise, receive,
    release, send_again, still_names, take_return,
};
use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A word that a collector reads with an ordering to be tried.
struct View(Arc<System>, fn(&System) -> &AtomicU32, Ordering);

impl Words for View {
    fn load(&self, _slot: u32) -> u32 {
        self.1(&self.0).load(self.2)
    }
}

/// Variant that is tried instead of the library's rule.
#[derive(Clone, Copy)]
struct Rules {
    rcvd: Ordering,
    refs: Ordering,
    receiver_fences: bool,
    collector_fences: bool,
    /// The verdict of one pass alone, as the manager's about an orphan.
    one_pass: bool,
    /// The verdict where the writer is the source of every queue.
    direct: bool,
    epoch: bool,
}

const AS_BUILT: Rules = Rules {
    rcvd: Ordering::Acquire,
    refs: Ordering::Acquire,
    receiver_fences: true,
    collector_fences: true,
    one_pass: false,
    direct: false,
    epoch: true,
};

const DIRECT: Rules = Rules {
    direct: true,
    ..AS_BUILT
};

/// One buffer of A's, that goes to B and from there to C.
struct System {
    bytes: UnsafeCell<u32>,
    table: [AtomicU32; 1],
    sent_b: AtomicU32,
    rcvd_b: AtomicU32,
    sent_c: AtomicU32,
    rcvd_c: AtomicU32,
    refs_b: AtomicU32,
    refs_c: AtomicU32,
    /// The rings: the generation of the id on its way, or 0.
    ring_b: AtomicU32,
    ring_c: AtomicU32,
    epoch: AtomicU64,
}

impl System {
    fn new() -> Arc<Self> {
        let zero = || AtomicU32::new(0);
        Arc::new(Self {
            bytes: UnsafeCell::new(0),
            table: [AtomicU32::new(1)],
            sent_b: zero(),
            rcvd_b: zero(),
            sent_c: zero(),
            rcvd_c: zero(),
            refs_b: zero(),
            refs_c: zero(),
            ring_b: zero(),
            ring_c: zero(),
            epoch: AtomicU64::new(0),
        })
    }

    fn fill(&self) {
        // SAFETY: what is tested: loom checks that nobody else is at it.
        self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
    }

    fn look(&self) {
        // SAFETY: as above.
        self.bytes
            .with(|bytes| assert_eq!(unsafe { *bytes }, 1, "another buffer than was sent"));
    }

    /// A sends to B.
    fn send(&self) {
        self.fill();
        let words = Sent {
            generation: Some(&self.table[0]),
            sent: &self.sent_b,
        };
        let publish = || {
            let generation = self.table[0].load(Ordering::Relaxed);
            self.ring_b.store(generation, Ordering::Release);
        };
        send_again(words, publish, || {}, |_| {});
    }

    /// B, which has it, sends it on to C, and lets its reference go.
    fn forward(&self) {
        let words = Sent {
            generation: None,
            sent: &self.sent_c,
        };
        let publish = || self.ring_c.store(2, Ordering::Release);
        send_again(words, publish, || _ = release(&self.refs_b), |_| {});
    }

    fn reader_set(
        self: &Arc<Self>,
        rules: Rules,
        with_c: bool,
        with_queue_c: bool,
    ) -> ReaderSet<View, View> {
        let view = |word, ordering| View(Arc::clone(self), word, ordering);
        let mut reader_set = ReaderSet::new(0);
        reader_set
            .add_reader(1, view(|s| &s.refs_b, rules.refs))
            .unwrap();
        reader_set
            .add_queue(
                1,
                Source::Writer,
                view(|s| &s.sent_b, Ordering::Acquire),
                view(|s| &s.rcvd_b, rules.rcvd),
            )
            .unwrap();
        if with_c {
            reader_set
                .add_reader(2, view(|s| &s.refs_c, rules.refs))
                .unwrap();
        }
        if with_queue_c {
            reader_set
                .add_queue(
                    2,
                    Source::Other,
                    view(|s| &s.sent_c, Ordering::Acquire),
                    view(|s| &s.rcvd_c, rules.rcvd),
                )
                .unwrap();
        }
        reader_set
    }

    /// A collects once and fills the buffer anew if it is dead.
    fn collect(&self, reader_set: &mut ReaderSet<View, View>, rules: Rules) -> bool {
        let mut batch = Batch::default();
        let epoch = || {
            if rules.epoch {
                self.epoch.load(Ordering::Acquire)
            } else {
                0
            }
        };
        let is_dead = if rules.one_pass {
            !reader_set.is_alive(0)
        } else if rules.direct && rules.collector_fences {
            reader_set.are_dead(&[0], &NoWords, &self.table[..], epoch)
        } else if rules.direct {
            // The library's steps without the fence.
            !reader_set.is_alive(0) && epoch() == 0 && {
                self.table[0].store(3, Ordering::Relaxed);
                epoch() == 0
            }
        } else if rules.collector_fences {
            reader_set
                .collect(&[0], &NoWords, &self.table[..], epoch, &mut batch)
                .is_ok()
                && !batch.dead.is_empty()
        } else {
            // The library's steps without the fence.
            !reader_set.is_alive(0) && {
                self.table[0].store(3, Ordering::Relaxed);
                !reader_set.is_alive(0)
            }
        };
        if is_dead {
            self.fill();
        }
        is_dead
    }

    /// In a thread of its own: loom does not set the main thread back far enough.
    fn collect_once(
        self: &Arc<Self>,
        rules: Rules,
        with_c: bool,
        with_queue_c: bool,
    ) -> thread::JoinHandle<bool> {
        let a = Arc::clone(self);
        thread::spawn(move || {
            let mut reader_set = a.reader_set(rules, with_c, with_queue_c);
            a.collect(&mut reader_set, rules)
        })
    }

    fn nobody_holds(&self) {
        let held = self.refs_c.load(Ordering::Relaxed);
        assert_eq!(held, 0, "what was refused is held");
    }

    fn receive_by_b(&self) {
        let direct = None::<fn() -> Result<(), ()>>;
        let take = || hold(raised(&self.refs_b), direct, || unreachable!(), |_| {});
        receive(take, &self.rcvd_b, |_| {}).unwrap();
    }

    fn receive_by_c(&self, rules: Rules) {
        let named = self.ring_c.load(Ordering::Acquire);
        if named == 0 {
            return;
        }
        let generation = || self.table[0].load(Ordering::Relaxed);
        let check = || match rules.receiver_fences {
            true => still_names(named, generation).map_err(|_| ()),
            // The library's look without the fence.
            false => (generation() == named).then_some(()).ok_or(()),
        };
        let give_up = || _ = release(&self.refs_c);
        let take = || hold(raised(&self.refs_c), Some(check), give_up, |_| {});
        if receive(take, &self.rcvd_c, |_| {}).is_ok() {
            self.look();
            release(&self.refs_c);
        }
    }
}

fn raised<E>(refs: &AtomicU32) -> impl FnOnce() -> Result<(), E> {
    || {
        raise(refs);
        Ok(())
    }
}

fn explore(system: impl Fn() + Send + Sync + 'static) {
    let builder = loom::model::Builder::new();
    builder.check(system);
}

fn fails(system: impl Fn() + Send + Sync + 'static) {
    assert!(
        catch_unwind(AssertUnwindSafe(|| explore(system))).is_err(),
        "nothing went wrong"
    );
}

/// A sends to B; B reads and releases while A collects.
fn direct(rules: Rules) -> impl Fn() + Send + Sync + 'static {
    move || {
        let system = System::new();
        system.send();
        let b = Arc::clone(&system);
        let b = thread::spawn(move || {
            if b.ring_b.load(Ordering::Acquire) != 0 {
                b.receive_by_b();
                b.look();
                release(&b.refs_b);
            }
        });
        let a = system.collect_once(rules, false, false);
        b.join().unwrap();
        let collected = a.join().unwrap();
        let mut reader_set = system.reader_set(rules, false, false);
        assert!(
            collected || system.collect(&mut reader_set, rules),
            "a buffer leaks"
        );
    }
}

/// B holds A's buffer and passes it on to C while A collects. `late`: over a queue of a new epoch.
fn forwarded(rules: Rules, late: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let system = System::new();
        system.send();
        system.receive_by_b();
        let (b, c) = (Arc::clone(&system), Arc::clone(&system));
        let b = thread::spawn(move || {
            if late {
                // What the manager does before it tells the source.
                b.epoch.store(1, Ordering::Release);
            }
            b.forward();
        });
        let c = thread::spawn(move || {
            let sent = c.ring_c.load(Ordering::Acquire) != 0;
            c.receive_by_c(AS_BUILT);
            if sent {
                assert_eq!(
                    c.rcvd_c.load(Ordering::Relaxed),
                    1,
                    "an honest reference was refused"
                );
            }
        });
        let a = system.collect_once(rules, !late, !late);
        b.join().unwrap();
        c.join().unwrap();
        a.join().unwrap();
    }
}

/// B was done with the buffer, and publishes its id to C again without counting. (Its queue's counters are whatever
/// it likes, as if the queue were not there.)
fn liar(rules: Rules) -> impl Fn() + Send + Sync + 'static {
    move || {
        let system = System::new();
        system.send();
        system.receive_by_b();
        release(&system.refs_b);
        system.ring_c.store(2, Ordering::Release);
        let c = Arc::clone(&system);
        let c = thread::spawn(move || c.receive_by_c(rules));
        let a = system.collect_once(rules, true, false);
        c.join().unwrap();
        a.join().unwrap();
        system.nobody_holds();
    }
}

/// The same over a queue of a new epoch: nobody else than A was the source of one when the collector began.
fn late_liar(rules: Rules) -> impl Fn() + Send + Sync + 'static {
    move || {
        let system = System::new();
        system.send();
        system.receive_by_b();
        release(&system.refs_b);
        let (b, c) = (Arc::clone(&system), Arc::clone(&system));
        let b = thread::spawn(move || {
            b.epoch.store(1, Ordering::Release);
            b.ring_c.store(2, Ordering::Release);
        });
        let c = thread::spawn(move || c.receive_by_c(rules));
        let a = system.collect_once(rules, false, false);
        b.join().unwrap();
        c.join().unwrap();
        a.join().unwrap();
        system.nobody_holds();
    }
}

/// B passes the buffer back while A collects, and A takes it afterwards: until then it is on its way.
fn passed_back(rules: Rules, receipt_first: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let system = System::new();
        system.send();
        system.receive_by_b();
        let b = Arc::clone(&system);
        let b = thread::spawn(move || {
            b.look();
            let publish = || b.ring_c.store(2, Ordering::Release);
            let go = || _ = release(&b.refs_b);
            if receipt_first {
                pass_back(&b.rcvd_b, publish, go, |_| {});
            } else {
                go();
                pass_back(&b.rcvd_b, publish, || {}, |_| {});
            }
        });
        let a = system.collect_once(rules, false, false);
        b.join().unwrap();
        assert!(!a.join().unwrap(), "it is collected while it is on its way");
        let named = system.ring_c.load(Ordering::Acquire);
        let hold = || is_named(&system.table[0], named);
        take_return(&system.sent_b, hold, |_| {}).unwrap();
        system.look();
        let mut reader_set = system.reader_set(rules, false, false);
        assert!(system.collect(&mut reader_set, rules), "a buffer leaks");
    }
}

#[test]
fn a_buffer_that_is_passed_back() {
    explore(passed_back(AS_BUILT, true));
    explore(passed_back(DIRECT, true));
}

#[test]
fn a_buffer_that_is_passed_back_with_less() {
    fails(passed_back(AS_BUILT, false));
    fails(passed_back(DIRECT, false));
    fails(passed_back(
        Rules {
            one_pass: true,
            ..AS_BUILT
        },
        true,
    ));
}

#[test]
fn a_direct_receipt() {
    explore(direct(AS_BUILT));
    explore(direct(DIRECT));
    explore(direct(Rules {
        one_pass: true,
        ..AS_BUILT
    }));
}

#[test]
fn a_direct_receipt_with_weaker_loads() {
    // In one pass: a whole collection has the fence between its two, which makes up for either.
    fails(direct(Rules {
        rcvd: Ordering::Relaxed,
        one_pass: true,
        ..AS_BUILT
    }));
    fails(direct(Rules {
        refs: Ordering::Relaxed,
        one_pass: true,
        ..AS_BUILT
    }));
}

#[test]
fn a_forwarded_receipt_over_the_first_queue_that_is_not_the_writers() {
    explore(forwarded(DIRECT, true));
    let epoch = false;
    fails(forwarded(Rules { epoch, ..DIRECT }, true));
}

#[test]
fn a_liar_that_gets_a_queue() {
    explore(late_liar(DIRECT));
    let (epoch, collector_fences, receiver_fences) = (false, false, false);
    fails(late_liar(Rules { epoch, ..DIRECT }));
    fails(late_liar(Rules {
        collector_fences,
        ..DIRECT
    }));
    fails(late_liar(Rules {
        receiver_fences,
        ..DIRECT
    }));
}

#[test]
fn a_forwarded_receipt() {
    explore(forwarded(AS_BUILT, false));
}

#[test]
fn a_forwarded_receipt_over_a_new_queue() {
    explore(forwarded(AS_BUILT, true));
    fails(forwarded(
        Rules {
            epoch: false,
            ..AS_BUILT
        },
        true,
    ));
}

#[test]
fn a_forwarded_receipt_with_weaker_loads() {
    fails(forwarded(
        Rules {
            refs: Ordering::Relaxed,
            ..AS_BUILT
        },
        false,
    ));
}

#[test]
fn a_liar() {
    explore(liar(AS_BUILT));
}

#[test]
fn a_liar_without_either_fence() {
    fails(liar(Rules {
        receiver_fences: false,
        ..AS_BUILT
    }));
    fails(liar(Rules {
        collector_fences: false,
        ..AS_BUILT
    }));
}
