//! What goes wrong between two steps: each test puts one event at exactly one step.

use std::cell::RefCell;
use std::rc::Rc;
use tranship_core::error::{Limit, Shortage};
use tranship_core::{Domain, Error, ErrorKind, PoolOptions, Wait};
use tranship_queue::{
    Cause, Consumer, ConsumerOptions, Item, Producer, QueueOptions, Queues, WhenLost,
};
use tranship_sys::crash;
use tranship_testkit::Watchdog;

fn join(here: &Domain) -> Domain {
    let socket = here.socket_path().expect("a socket");
    Domain::builder().socket(socket).connect().expect("join")
}

/// A producer, and consumers that have joined. The domain keeps the manager.
fn with(options: QueueOptions, consumers: usize) -> (Domain, Producer, Vec<Consumer>) {
    let here = Domain::embedded().expect("a domain");
    let producer = join(&here).produce_with("jobs", options);
    let mut producer = producer.expect("produce");
    let mut all = Vec::new();
    for _ in 0..consumers {
        let options = ConsumerOptions::new().wait(Wait::Sleep);
        let consumer = join(&here).consume_with("jobs", options);
        let mut consumer = consumer.expect("consume");
        while !consumer.status().producers.iter().any(|it| it.joined) {
            assert!(take(&mut consumer).is_none());
            producer.tend().expect("tend");
        }
        all.push(consumer);
    }
    (here, producer, all)
}

fn send(producer: &mut Producer, n: u64) {
    let mut job = producer.alloc(8).expect("a buffer");
    job.copy_from_slice(&n.to_le_bytes());
    producer.try_send((job, n)).expect("there is room");
}

fn take(consumer: &mut Consumer) -> Option<Item> {
    let item = consumer.try_recv().expect("it can receive")?;
    assert_eq!(item.to_vec(), item.word.to_le_bytes());
    Some(item)
}

/// Returns whether memory is there once the manager has answered: on a busy machine it takes its time.
fn is_late(error: &Error) -> bool {
    let shortage = error.find::<Shortage>();
    shortage.is_some_and(|shortage| shortage.limit == Limit::Late)
}

/// Acknowledges all that is there, and returns the words.
fn drain(consumer: &mut Consumer) -> Vec<u64> {
    let next = || Some(take(consumer)?.ack().expect("acknowledged").word);
    std::iter::from_fn(next).collect()
}

#[test]
fn a_consumer_that_stops_while_it_takes_holds_nobody_up() {
    let _dog = Watchdog::new();
    let (_here, mut producer, mut consumers) = with(QueueOptions::new().depth(4), 2);
    for n in 0..4 {
        send(&mut producer, n);
    }
    let (mut stopped, other) = (consumers.remove(0), consumers.remove(0));
    let both = Rc::new(RefCell::new((producer, other)));
    let meanwhile = Rc::clone(&both);
    crash::insert("queue.taken", move || {
        let (producer, other) = &mut *meanwhile.borrow_mut();
        assert_eq!(drain(other), [1, 2, 3]);
        while producer.try_send((&4u64.to_le_bytes(), 4)).is_err() {}
        for n in 5..8 {
            send(producer, n);
        }
        let full = producer.try_send(&b""[..]).expect_err("it is full");
        let text = full.error.to_string();
        assert!(text.contains("the oldest item for"), "{text}");
        assert_eq!(drain(other), [4, 5, 6, 7]);
    });
    assert!(take(&mut stopped).is_none(), "its line has ended");
    let (producer, other) = &mut *both.borrow_mut();
    let back = loop {
        producer.tend().expect("tend");
        if let Some(item) = take(other) {
            break item;
        }
    };
    assert!(back.redelivered());
    assert_eq!(back.ack().expect("acknowledged").word, 0);
    producer.wait_done(None).expect("done");
}

#[test]
fn lost_items_that_nobody_fetches_stop_no_producer() {
    let _dog = Watchdog::new();
    let pool = PoolOptions::new(1 << 20).slots(16);
    let (_here, mut producer, mut consumers) = with(QueueOptions::new().pool(pool), 1);
    let mut sent = 0;
    let error = loop {
        let mut job = match producer.try_alloc(8) {
            Ok(job) => job,
            Err(error) if is_late(&error) => continue,
            Err(error) => break error,
        };
        job.copy_from_slice(&u64::to_le_bytes(sent));
        producer.try_send((job, sent)).expect("there is room");
        take(&mut consumers[0]).expect("it waits").reject();
        producer.tend().expect("tend");
        sent += 1;
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.contains(&format!("{sent} lost items")), "{text}");
    for n in sent..sent + 4 {
        send(&mut producer, n);
        take(&mut consumers[0]).expect("it waits").reject();
        producer.tend().expect("tend");
    }
    let rest = std::iter::from_fn(|| producer.take_lost());
    let rest: Vec<u64> = rest.map(|lost| lost.message.word).collect();
    assert_eq!(rest, (4..sent + 4).collect::<Vec<u64>>(), "the newest");
    assert_eq!(producer.status().rejected, sent + 4);
}

/// Runs `right` in a forked child, which says whether it returned true.
fn in_child(right: impl FnOnce() -> bool) -> bool {
    let right = std::panic::AssertUnwindSafe(right);
    // SAFETY: the child runs nothing but the closure, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a limit for the child, which no watchdog sees.
        unsafe { libc::alarm(100) };
        let is_right = std::panic::catch_unwind(right).unwrap_or(false);
        // SAFETY: it ends this process alone.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    // What the closure owns is the child's alone to drop.
    std::mem::forget(right);
    let mut status = -1;
    // SAFETY: `status` is writable.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (waited, status) == (pid, 0)
}

#[test]
fn a_forked_child_touches_nothing() {
    let _dog = Watchdog::new();
    let (_here, mut producer, mut consumers) = with(QueueOptions::new(), 1);
    let consumer = &mut consumers[0];
    for n in 0..6 {
        send(&mut producer, n);
    }
    let mut items: Vec<Item> = (0..5).filter_map(|_| take(consumer)).collect();
    let mut next = || items.pop().expect("an item");
    let (acked, dropped, back, rejected) = (next(), next(), next(), next());
    let is_forked = |error: Option<ErrorKind>| error == Some(ErrorKind::Forked);
    assert!(in_child(|| {
        drop(dropped);
        back.requeue();
        rejected.reject();
        let _ = format!("{producer:?} {consumer:?}");
        let _ = (producer.status(), consumer.status());
        is_forked(acked.ack().err().map(|error| error.kind()))
            && is_forked(consumer.try_recv().err().map(|error| error.kind()))
            && is_forked(consumer.recv().err().map(|error| error.kind()))
            && is_forked(producer.try_send(&b""[..]).err().map(|it| it.error.kind()))
            && is_forked(producer.try_alloc(8).err().map(|error| error.kind()))
    }));
    producer.tend().expect("tend");
    assert_eq!(producer.status().open, 5, "all are still with the parent");
}

#[test]
fn an_item_that_went_to_another_is_not_acknowledged() {
    let _dog = Watchdog::new();
    let (_here, mut producer, mut consumers) = with(QueueOptions::new(), 2);
    send(&mut producer, 5);
    let item = take(&mut consumers[0]).expect("it waits");
    let both = Rc::new(RefCell::new((producer, consumers)));
    let meanwhile = Rc::clone(&both);
    crash::insert("queue.acks", move || {
        let (producer, consumers) = &mut *meanwhile.borrow_mut();
        drop(consumers.remove(0));
        let again = loop {
            producer.tend().expect("tend");
            if let Some(item) = take(&mut consumers[0]) {
                break item;
            }
        };
        assert!(again.redelivered());
        again.ack().expect("acknowledged");
    });
    let error = item.ack().expect_err("too late");
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
    let (producer, _) = &mut *both.borrow_mut();
    producer.wait_done(None).expect("done");
}

#[test]
fn an_item_that_was_given_back_is_not_lost_with_its_consumer() {
    let _dog = Watchdog::new();
    let options = QueueOptions::new().when_lost(WhenLost::Report);
    let (_here, mut producer, mut consumers) = with(options, 2);
    for n in 0..3 {
        send(&mut producer, n);
    }
    let mut next = || take(&mut consumers[0]).expect("it waits");
    let (back, rejected, held) = (next(), next(), next());
    back.requeue();
    rejected.reject();
    drop(consumers.remove(0));
    let back = loop {
        producer.tend().expect("tend");
        if let Some(item) = take(&mut consumers[0]) {
            break item;
        }
    };
    assert_eq!(back.ack().expect("acknowledged").word, 0);
    let mut lost: Vec<(u64, Cause)> = Vec::new();
    // What was said of an item may be heard before the end is.
    while lost.len() < 2 {
        producer.tend().expect("tend");
        let found = std::iter::from_fn(|| producer.take_lost());
        lost.extend(found.map(|lost| (lost.message.word, lost.cause)));
    }
    lost.sort_unstable_by_key(|lost| lost.0);
    assert_eq!(lost, [(1, Cause::Rejected), (2, Cause::Ended)]);
    drop(held);
}
