//! The threads of one writer on one buffer, under weak memory: a first send, a look-up by id, handles that go, the queue, and
//! the collector, which fills the buffer anew when it finds it dead.
//!
//! The buffer's bytes are a cell that loom watches, as in `loom_collect`. Seen failing, besides what is kept as tests: each
//! ordering of `Handles`, `is_named` and `open` relaxed, but one: `count`, for which the collector's fence stands in here;
//! `stays_queued` always false; a handle that goes without a look at the generation; the mark left out of a first send.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::sync::Mutex;
use loom::{cell::UnsafeCell, thread};
use tranship_ledger::{
    Batch, FirstSend, Handles, LetGo, NoWords, ReaderSet, Sent, Words, generation, send_again,
    send_first,
};
use tranship_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tranship_sync::{Pop, SlotQueue, Taker};

/// A writer's buffer, which nobody else reads.
struct Writer {
    bytes: UnsafeCell<u32>,
    table: [AtomicU32; 1],
    handles: Handles,
    sent: AtomicU32,
    queue: SlotQueue,
    /// In the queue, or with the collector.
    queued: AtomicBool,
    gc: Mutex<Gc>,
    /// Whether its collector tries one pass first.
    direct: bool,
}

struct Gc {
    reader_set: ReaderSet<NoWords, NoWords>,
    taker: Taker,
    kept: bool,
    collected: u32,
}

/// A first send that shows nobody anything.
struct Unseen<'a>(&'a Writer);

impl FirstSend for Unseen<'_> {
    fn publish(&mut self, _generation: u32) {}
    fn queue(&mut self) {
        self.0.push();
    }
}

/// The writer's handles, as its collector sees them.
struct Own<'a>(&'a Handles);

impl Words for Own<'_> {
    fn load(&self, _slot: u32) -> u32 {
        self.0.count()
    }
}

impl Writer {
    fn new(direct: bool) -> Arc<Writer> {
        let (queue, taker) = SlotQueue::new(1);
        Arc::new(Writer {
            bytes: UnsafeCell::new(0),
            table: [AtomicU32::new(generation::FIRST)],
            handles: Handles::default(),
            sent: AtomicU32::new(0),
            queue,
            queued: AtomicBool::new(false),
            gc: Mutex::new(Gc {
                reader_set: ReaderSet::new(0),
                taker,
                kept: false,
                collected: 0,
            }),
            direct,
        })
    }

    /// One that is filled, with so many handles.
    fn with(handles: usize, direct: bool) -> Arc<Writer> {
        let writer = Writer::new(direct);
        writer.fill();
        writer.handles.begin();
        (1..handles).for_each(|_| writer.handles.hold());
        writer
    }

    fn fill(&self) {
        // SAFETY: what is tested: loom checks that nobody else is at it.
        self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
    }

    fn look(&self) {
        // SAFETY: as above.
        self.bytes
            .with(|bytes| assert_eq!(unsafe { *bytes }, 1, "another buffer than was held"));
    }

    fn push(&self) {
        let twice = self.queued.swap(true, Ordering::Relaxed);
        assert!(!twice, "a buffer is queued twice");
        self.queue.push(0);
    }

    /// Fills and sends it.
    fn begin(&self) {
        self.fill();
        self.handles.begin();
        self.send();
    }

    /// Sends the buffer, by a thread that has a handle of it and gives that away.
    fn send(&self) {
        if self.handles.is_private(&self.table[0]) {
            let (handles, table) = (&self.handles, &self.table[0]);
            send_first(handles, table, &self.sent, Unseen(self));
        } else {
            send_again(self.words(), || {}, || self.let_go(), |_| {});
        }
    }

    fn words(&self) -> Sent<'_> {
        Sent {
            generation: Some(&self.table[0]),
            sent: &self.sent,
        }
    }

    fn let_go(&self) {
        match self.handles.let_go(&self.table[0]) {
            LetGo::Left => {}
            LetGo::Unsent => self.free(),
            LetGo::ToQueue => self.push(),
        }
    }

    fn free(&self) {
        let now = self.table[0].load(Ordering::Relaxed);
        assert!(!generation::is_published(now), "a sent buffer is freed");
        self.fill();
        self.gc.lock().unwrap().collected += 1;
    }

    /// Finds it by the id with which it is first sent.
    fn find(&self, find: impl Fn(&Handles, &AtomicU32) -> bool) {
        let gc = self.gc.lock().unwrap();
        let found = find(&self.handles, &self.table[0]);
        drop(gc);
        if found {
            self.look();
            self.let_go();
        }
    }

    fn collect(&self) {
        let gc = &mut *self.gc.lock().unwrap();
        if !std::mem::take(&mut gc.kept) && self.queue.pop(&mut gc.taker) != Pop::Slot(0) {
            return;
        }
        let own = Own(&self.handles);
        // What is not decided in one pass is looked at again, as by the library.
        let table = &self.table[..];
        let is_dead = self.direct && gc.reader_set.are_dead(&[0], &own, table, || 0) || {
            let mut batch = Batch::default();
            let verdict = gc.reader_set.collect(&[0], &own, table, || 0, &mut batch);
            assert_eq!(verdict, Ok(()));
            !batch.dead.is_empty()
        };
        if !is_dead {
            // Before the thread that drops the handle may queue it.
            self.queued.store(false, Ordering::Relaxed);
            gc.kept = self.handles.stays_queued();
        } else {
            self.fill();
            gc.collected += 1;
        }
    }

    /// Everybody is done: it is free, once.
    fn ends(&self) {
        self.collect();
        let gc = &mut *self.gc.lock().unwrap();
        assert_eq!(gc.collected, 1, "a buffer leaks");
        assert_eq!(self.queue.pop(&mut gc.taker), Pop::Empty);
    }
}

fn named(handles: &Handles, table: &AtomicU32) -> bool {
    let named = generation::published(generation::FIRST);
    handles.find(table, named, |_| (), || Ok(())).is_ok()
}

/// Runs each in a thread of its own, with the collector beside them.
fn together<const N: usize>(writer: &Arc<Writer>, all: [fn(&Writer); N]) {
    let threads = all.map(|one| {
        let writer = Arc::clone(writer);
        thread::spawn(move || one(&writer))
    });
    writer.collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    writer.ends();
}

fn explore(system: impl Fn(bool) + Send + Sync + Clone + 'static) {
    for direct in [false, true] {
        let system = system.clone();
        loom::model::Builder::new().check(move || system(direct));
    }
}

fn fails(system: impl Fn(bool) + Send + Sync + Clone + 'static) {
    assert!(
        catch_unwind(AssertUnwindSafe(|| explore(system))).is_err(),
        "nothing went wrong"
    );
}

#[test]
fn a_first_send_and_a_look_up() {
    explore(|direct| together(&Writer::new(direct), [Writer::begin, |w| w.find(named)]));
}

#[test]
fn a_first_send_and_a_look_up_that_does_not_acquire() {
    let find = |w: &Writer| {
        w.find(|handles, table| {
            let found = table.load(Ordering::Relaxed) == 2;
            if found {
                handles.hold();
            }
            found
        });
    };
    fails(move |direct| together(&Writer::new(direct), [Writer::begin, find]));
}

#[test]
fn a_first_send_that_opens_before_the_handle_goes() {
    let begin = |w: &Writer| {
        w.fill();
        w.handles.begin();
        w.table[0].store(2, Ordering::Release);
        let (handles, table) = (&w.handles, &w.table[0]);
        send_first(handles, table, &w.sent, Unseen(w));
    };
    fails(move |direct| together(&Writer::new(direct), [begin, |w| w.find(named)]));
}

fn look_and_let_go(writer: &Writer) {
    writer.look();
    writer.let_go();
}

fn look_and_send(writer: &Writer) {
    writer.look();
    writer.send();
}

#[test]
fn a_first_send_of_one_clone_of_two() {
    explore(|direct| together(&Writer::with(2, direct), [look_and_send, look_and_let_go]));
}

#[test]
fn a_first_send_of_both_clones() {
    explore(|direct| together(&Writer::with(2, direct), [look_and_send, look_and_send]));
}

/// It was sent, is queued, and came back twice.
#[test]
fn handles_that_go_while_it_is_collected() {
    explore(|direct| {
        let writer = Writer::with(1, direct);
        writer.send();
        writer.handles.hold();
        writer.handles.hold();
        together(&writer, [look_and_let_go, look_and_let_go]);
    });
}
