//! Producers and consumers of one process, each in a domain of its own.

use std::collections::BTreeSet;
use std::time::Duration;
use tranship_core::error::{Limit, Shortage};
use tranship_core::{Buffer, Domain, Error, ErrorKind, Receiver, Wait};
use tranship_queue::{Consumer, ConsumerOptions, Item, Producer, QueueOptions, Queues, WhenLost};
use tranship_testkit::{Between, Keeps, Watchdog};

/// A domain with a manager, and a way to join it.
struct World {
    here: Domain,
}

impl World {
    fn new() -> World {
        let here = Domain::embedded().expect("a domain");
        World { here }
    }

    fn join(&self) -> Domain {
        let socket = self.here.socket_path().expect("a socket");
        Domain::builder().socket(socket).connect().expect("join")
    }

    fn producer(&self, options: QueueOptions) -> Producer {
        self.join().produce_with("jobs", options).expect("produce")
    }

    fn consumer(&self, options: ConsumerOptions) -> Consumer {
        self.join().consume_with("jobs", options).expect("consume")
    }

    /// A producer, and consumers that have joined.
    fn with(&self, options: QueueOptions, consumers: usize) -> (Producer, Vec<Consumer>) {
        let mut producer = self.producer(options);
        let new = || self.consumer(ConsumerOptions::new().wait(Wait::Sleep));
        let mut consumers: Vec<Consumer> = (0..consumers).map(|_| new()).collect();
        for consumer in &mut consumers {
            meet(&mut producer, consumer, 1);
        }
        (producer, consumers)
    }
}

/// Lets a consumer join a producer: of so many it is then a consumer. Others' helper threads take it in, too.
fn meet(producer: &mut Producer, consumer: &mut Consumer, producers: usize) {
    let joined = |consumer: &Consumer| {
        let seen = consumer.status().producers;
        seen.iter().filter(|seen| seen.joined).count()
    };
    while joined(consumer) < producers {
        assert!(consumer.try_recv().expect("nothing yet").is_none());
        producer.tend().expect("tend");
    }
}

/// Takes an item, and lets the consumer join for it.
fn recv(producer: &mut Producer, consumer: &mut Consumer) -> Item {
    loop {
        if let Some(item) = take(consumer) {
            return item;
        }
        producer.tend().expect("tend");
    }
}

fn job(producer: &mut Producer, n: u64) -> Buffer {
    let mut job = producer.alloc(8).expect("a buffer");
    job.copy_from_slice(&n.to_le_bytes());
    job.freeze()
}

fn send(producer: &mut Producer, n: u64) {
    let job = job(producer, n);
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

/// The manager lets the producer send, and says so to the producer first.
#[test]
fn a_consumer_that_hears_late_that_it_may_begin_takes_what_a_gone_producer_sent() {
    let _dog = Watchdog::new();
    let world = World::new();
    let socket = world.here.socket_path().expect("a socket");
    let between = Between::new(&socket, Keeps::AllFromOpen).expect("a socket");
    let there = Domain::builder().socket(between.socket()).connect();
    let there = there.expect("join");
    let mut consumer = there.consume("jobs").expect("consume");
    let mut producer = world.producer(QueueOptions::new());
    while producer.consumers() == 0 {
        assert!(consumer.try_recv().expect("nothing").is_none());
        producer.tend().expect("tend");
    }
    send(&mut producer, 7);
    drop(producer);
    for _ in 0..100 {
        assert!(consumer.try_recv().expect("not yet").is_none());
    }
    between.release();
    let item = loop {
        there.turn().expect("turn"); // the word that there are news came before them
        if let Some(item) = consumer.try_recv().expect("no error") {
            break item;
        }
    };
    assert_eq!(item.to_vec(), 7u64.to_le_bytes());
}

#[test]
fn a_full_queue_says_who_has_how_much() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut producer, mut consumers) = world.with(QueueOptions::new().depth(4), 1);
    for n in 0..4 {
        send(&mut producer, n);
    }
    let job = job(&mut producer, 4);
    let failed = producer.try_send((job, 4)).expect_err("it is full");
    assert_eq!(failed.error.kind(), ErrorKind::Full);
    let text = failed.error.to_string();
    assert!(
        text.contains("of the 4 items of this producer 4 wait"),
        "{text}"
    );
    let (job, word) = failed.unsent;
    let item = take(&mut consumers[0]).expect("it waits");
    producer
        .try_send((job, word))
        .expect("a taken item makes room");
    let failed = producer.send_timeout(&[0u8; 1], Duration::from_millis(1));
    let error = failed.expect_err("it is full").error;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let pid = format!("process {}", std::process::id());
    let text = error.to_string();
    assert!(
        text.contains(&pid) && text.contains("has 1 items open"),
        "{text}"
    );
    item.ack().expect("acknowledged");
    assert_eq!(drain(&mut consumers[0]), [1, 2, 3, 4]);
}

#[test]
fn what_a_consumer_had_when_it_left_is_given_back_or_reported() {
    let _dog = Watchdog::new();
    for when_lost in [WhenLost::GiveBack, WhenLost::Report] {
        let world = World::new();
        let options = QueueOptions::new().depth(4).when_lost(when_lost);
        let (mut producer, mut consumers) = world.with(options, 2);
        let mut had = Vec::new();
        for n in 0..10 {
            send(&mut producer, n);
            had.push(take(&mut consumers[0]).expect("it waits"));
        }
        let acknowledged = had.remove(3).ack().expect("acknowledged").word;
        assert_eq!(acknowledged, 3);
        drop(consumers.remove(0));
        let error = had.remove(0).ack().expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        let rest: Vec<u64> = (0..10).filter(|n| *n != 3).collect();
        let mut came = Vec::new();
        while came.len() < rest.len() {
            producer.tend().expect("tend");
            came.extend(std::iter::from_fn(|| producer.take_lost()).map(|lost| lost.message.word));
            came.extend(drain(&mut consumers[0]));
        }
        assert_eq!(came, rest, "{when_lost:?}");
        producer.wait_done(None).expect("done");
        let status = producer.status();
        let counts = (status.redelivered, status.lost);
        match when_lost {
            WhenLost::GiveBack => assert_eq!(counts, (9, 0)),
            WhenLost::Report => assert_eq!(counts, (0, 9)),
        }
        drop(had);
    }
}

#[test]
fn one_consumer_takes_from_all_producers_in_turn() {
    let _dog = Watchdog::new();
    let world = World::new();
    let mut producers: Vec<Producer> = (0..3)
        .map(|_| world.producer(QueueOptions::new()))
        .collect();
    let mut consumer = world.consumer(ConsumerOptions::new());
    for (n, producer) in producers.iter_mut().enumerate() {
        meet(producer, &mut consumer, n + 1);
    }
    for (producer, from) in producers.iter_mut().zip(0..) {
        for n in 0..4 {
            send(producer, from * 100 + n);
        }
    }
    let words = drain(&mut consumer);
    assert_eq!(words.len(), 12);
    for three in words.chunks(3) {
        let from: BTreeSet<u64> = three.iter().map(|word| word / 100).collect();
        assert_eq!(from.len(), 3, "in turn: {words:?}");
    }
    // One that comes later is found, and one that goes is missed by nobody.
    let mut late = world.producer(QueueOptions::new());
    meet(&mut late, &mut consumer, 4);
    drop(producers.remove(0));
    send(&mut late, 900);
    send(&mut producers[0], 150);
    let mut words: Vec<u64> = drain(&mut consumer);
    words.sort_unstable();
    assert_eq!(words, [150, 900]);
    while consumer.status().producers.len() != 3 {
        assert!(consumer.try_recv().expect("nothing").is_none());
    }
}

#[test]
fn limits_say_what_to_do() {
    let _dog = Watchdog::new();
    let world = World::new();
    let mut producer = world.producer(QueueOptions::new().depth(64).keep(3));
    let two = ConsumerOptions::new().unacknowledged(2);
    let (mut some, mut all) = (
        world.consumer(two.clone()),
        world.consumer(ConsumerOptions::new().auto_ack()),
    );
    meet(&mut producer, &mut some, 1);
    for n in 0..40 {
        send(&mut producer, n);
    }
    let had = [take(&mut some).expect("one"), take(&mut some).expect("two")];
    let error = some.try_recv().expect_err("two are open");
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("has 2 items"), "{error}");
    drop(had);
    let mut kept = vec![recv(&mut producer, &mut all)];
    let error = loop {
        match all.try_recv() {
            Ok(item) => kept.push(item.expect("some wait")),
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), kept.len()), (ErrorKind::Limit, 12 + 3));
    kept.clear();
    let rest = drain(&mut all);
    assert_eq!(rest.len(), 40 - 15, "the two dropped ones came back");
    for options in [two.clone().unacknowledged(0), two.unacknowledged(65)] {
        let error = world.here.consume_with("jobs", options).expect_err("bad");
        assert_eq!(error.kind(), ErrorKind::BadArgument);
    }
    let error = world
        .here
        .produce_with("jobs", QueueOptions::new().depth(3));
    assert_eq!(error.expect_err("bad").kind(), ErrorKind::BadArgument);
}

#[test]
fn memory_comes_back_when_consumers_let_go() {
    let _dog = Watchdog::new();
    let world = World::new();
    let pool = tranship_core::PoolOptions::new(4 << 20).slots(64);
    let options = QueueOptions::new().depth(32).pool(pool);
    let (mut producer, mut consumers) = world.with(options, 2);
    let fill = |producer: &mut Producer| {
        let mut sent = 0;
        loop {
            match producer.try_alloc(1 << 20) {
                Ok(job) => producer.try_send(job).expect("room"),
                Err(error) if is_late(&error) => continue,
                Err(error) => break (sent, error),
            }
            sent += 1;
        }
    };
    let (sent, error) = fill(&mut producer);
    assert!(sent >= 2, "{sent} buffers of 1 MiB of 4 MiB");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    // One consumer has stopped to look, with a window where it was. The other one makes room.
    let first = consumers[0].recv().expect("an item");
    for _ in 1..sent {
        let item = consumers[1].recv().expect("an item");
        drop(item.ack().expect("acknowledged"));
    }
    assert!(consumers[1].try_recv().expect("nothing").is_none());
    assert_eq!(fill(&mut producer).0, sent - 1);
    drop(first);
}

#[test]
fn names_are_queues_or_not() {
    let _dog = Watchdog::new();
    let world = World::new();
    let producer = world.producer(QueueOptions::new());
    let error = world
        .join()
        .produce_with("jobs", QueueOptions::new().exclusive())
        .expect_err("it is shared");
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
    let error = world.join().open::<Receiver>("jobs").expect_err("a queue");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    drop(producer);
    let _producer = world
        .join()
        .produce_with("jobs", QueueOptions::new().exclusive())
        .expect("it is free");
    let error = world.join().produce("jobs").expect_err("it is exclusive");
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
}
