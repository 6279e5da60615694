//! Queues: each item to one consumer, what becomes of items that are not done, and the ends.

use crate::{Way, World, cases};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use tranship_core::{ErrorKind, PoolOptions, Wait};
use tranship_queue::{
    Cause, Consumer, ConsumerOptions, Item, Producer, QueueOptions, Queues, WhenLost,
};
use tranship_testkit::Random;
use tranship_topic::Topics;

cases![
    each_item_is_taken_once_and_in_order,
    items_wait_for_consumers_that_come_later,
    a_full_queue_says_so,
    an_item_that_is_given_back_comes_again,
    a_rejected_item_is_reported,
    what_a_consumer_had_is_given_back,
    what_a_consumer_had_is_reported,
    a_consumer_has_a_limit_of_open_items,
    what_a_producer_leaves_is_taken,
    kept_buffers_stay_as_they_are,
    memory_that_consumers_keep_is_said,
    another_producer_is_found,
    a_name_has_one_kind,
    sleepers_are_woken,
    threads_take_and_give_back_at_random,
];

fn produce(world: &World, options: QueueOptions) -> Producer {
    let producer = world.here.produce_with(&world.address("jobs"), options);
    producer.expect("produce")
}

fn consume(world: &World, options: ConsumerOptions) -> Consumer {
    let consumer = world.there.consume_with(&world.address("jobs"), options);
    consumer.expect("consume")
}

/// A consumer that has joined the producer.
fn join(world: &World, producer: &mut Producer, options: ConsumerOptions) -> Consumer {
    let mut consumer = consume(world, options);
    meet(producer, &mut consumer);
    consumer
}

fn meet(producer: &mut Producer, consumer: &mut Consumer) {
    while !consumer.status().producers.iter().any(|it| it.joined) {
        assert!(consumer.try_recv().expect("nothing yet").is_none());
        producer.tend().expect("tend");
    }
}

fn both(world: &World, options: QueueOptions) -> (Producer, Consumer) {
    let mut producer = produce(world, options);
    let consumer = join(world, &mut producer, ConsumerOptions::new());
    (producer, consumer)
}

fn send(producer: &mut Producer, n: u64) {
    let mut job = producer.alloc(8).expect("a buffer");
    job.copy_from_slice(&n.to_le_bytes());
    producer.send((job.freeze(), n)).expect("send");
}

fn number(item: &Item) -> u64 {
    let bytes = item.to_vec().try_into().expect("8 bytes");
    let number = u64::from_le_bytes(bytes);
    assert_eq!(number, item.word);
    number
}

fn taken(item: Item) -> u64 {
    let n = number(&item);
    item.ack().expect("ack");
    n
}

/// The next item, for which the producer may have to do something.
fn next(producer: &mut Producer, consumer: &mut Consumer) -> Item {
    loop {
        if let Some(item) = consumer.try_recv().expect("no error") {
            return item;
        }
        producer.tend().expect("tend");
    }
}

fn each_item_is_taken_once_and_in_order(world: &World) {
    let mut producer = produce(world, QueueOptions::new());
    let options = || ConsumerOptions::new();
    let mut all = [(); 3].map(|()| join(world, &mut producer, options()));
    let mut lists = [const { Vec::new() }; 3];
    for n in 0..300 {
        send(&mut producer, n);
        if n % 7 == 6 {
            for (consumer, list) in all.iter_mut().zip(&mut lists) {
                for _ in 0..3 {
                    list.extend(consumer.try_recv().expect("no error").map(taken));
                }
            }
        }
    }
    for (consumer, list) in all.iter_mut().zip(&mut lists) {
        while let Some(item) = consumer.try_recv().expect("no error") {
            assert_eq!(item.producer(), world.here.id());
            list.push(taken(item));
        }
        assert!(list.is_sorted() && !list.is_empty(), "{list:?}");
    }
    let items: BTreeSet<u64> = lists.iter().flatten().copied().collect();
    assert_eq!(items, (0..300).collect());
    assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), 300);
    producer.wait_done(None).expect("all is done");
    let seen = producer.status().consumers;
    assert!(
        seen.iter().all(|it| it.domain == world.there.id()),
        "{seen:?}"
    );
}

fn items_wait_for_consumers_that_come_later(world: &World) {
    let mut producer = produce(world, QueueOptions::new());
    (0..5).for_each(|n| send(&mut producer, n));
    producer.send((b"bytes", 5)).expect("send");
    let mut consumer = consume(world, ConsumerOptions::new());
    for n in 0..5 {
        assert_eq!(taken(next(&mut producer, &mut consumer)), n);
    }
    let item = next(&mut producer, &mut consumer).ack().expect("ack");
    assert_eq!((item.word, item.to_vec()), (5, b"bytes".to_vec()));
}

fn a_full_queue_says_so(world: &World) {
    let (mut producer, mut consumer) = both(world, QueueOptions::new().depth(4));
    (0..4).for_each(|n| send(&mut producer, n));
    let error = producer.try_send(b"more").expect_err("it is full");
    assert_eq!(error.error, ErrorKind::Full, "{}", error.error);
    assert!(
        error.error.to_string().contains("4 wait"),
        "{}",
        error.error
    );
    let late = producer.send_timeout(b"more", Duration::from_millis(1));
    assert_eq!(late.expect_err("it is full").error, ErrorKind::TimedOut);
    assert_eq!(taken(consumer.recv().expect("an item")), 0);
    send(&mut producer, 4);
}

fn an_item_that_is_given_back_comes_again(world: &World) {
    let (mut producer, mut consumer) = both(world, QueueOptions::new());
    send(&mut producer, 1);
    let item = consumer.recv().expect("an item");
    assert!(!item.redelivered());
    item.requeue();
    let item = next(&mut producer, &mut consumer);
    assert!(item.redelivered());
    assert_eq!(taken(item), 1);
    producer.wait_done(None).expect("it is done");
    assert_eq!(producer.status().redelivered, 1);
}

fn a_rejected_item_is_reported(world: &World) {
    let (mut producer, mut consumer) = both(world, QueueOptions::new());
    send(&mut producer, 7);
    consumer.recv().expect("an item").reject();
    producer.wait_done(None).expect("it is done");
    let lost = producer.take_lost().expect("it is reported");
    assert_eq!((lost.message.word, lost.cause), (7, Cause::Rejected));
    assert_eq!(lost.message.to_vec(), 7u64.to_le_bytes());
    assert_eq!(lost.consumer.map(|it| it.0), Some(world.there.id()));
}

fn what_a_consumer_had_is_given_back(world: &World) {
    let (mut producer, mut first) = both(world, QueueOptions::new());
    let mut second = join(world, &mut producer, ConsumerOptions::new());
    send(&mut producer, 1);
    let item = first.recv().expect("an item");
    drop(first);
    while producer.consumers() == 2 {
        producer.tend().expect("tend");
    }
    let again = next(&mut producer, &mut second);
    assert!(again.redelivered());
    assert_eq!(number(&again), number(&item), "both have it");
    assert_eq!(item.ack().expect_err("too late"), ErrorKind::PeerGone);
    again.ack().expect("in time");
}

fn what_a_consumer_had_is_reported(world: &World) {
    let options = QueueOptions::new().when_lost(WhenLost::Report);
    let (mut producer, mut consumer) = both(world, options);
    send(&mut producer, 1);
    let item = consumer.recv().expect("an item");
    drop(consumer);
    producer.wait_done(None).expect("it is lost");
    let lost = producer.take_lost().expect("it is reported");
    assert_eq!((lost.message.word, lost.cause), (1, Cause::Ended));
    assert_eq!(lost.message.to_vec(), item.to_vec());
}

fn a_consumer_has_a_limit_of_open_items(world: &World) {
    let mut producer = produce(world, QueueOptions::new());
    let options = ConsumerOptions::new().unacknowledged(2);
    let mut consumer = join(world, &mut producer, options);
    (0..3).for_each(|n| send(&mut producer, n));
    let open = [(); 2].map(|()| consumer.recv().expect("an item"));
    assert_eq!(
        consumer.try_recv().expect_err("2 are open"),
        ErrorKind::Limit
    );
    assert_eq!(open.map(taken), [0, 1]);
    assert_eq!(taken(consumer.recv().expect("an item")), 2);
}

fn what_a_producer_leaves_is_taken(world: &World) {
    let (mut producer, mut consumer) = both(world, QueueOptions::new());
    (0..4).for_each(|n| send(&mut producer, n));
    let first = consumer.recv().expect("an item");
    drop(producer);
    // Memory that nobody has would be used by others.
    let pool = world
        .here
        .create_pool(PoolOptions::new(1 << 20))
        .expect("a pool");
    let others: Vec<_> = (0..32)
        .map(|_| pool.copy(&[7; 8]).expect("a buffer"))
        .collect();
    let rest = [(); 3].map(|()| taken(consumer.recv().expect("an item")));
    assert_eq!((number(&first), rest), (0, [1, 2, 3]));
    let late = consumer.recv_timeout(Duration::from_millis(1));
    assert_eq!(late.expect_err("nothing"), ErrorKind::TimedOut);
    drop(others);
}

fn kept_buffers_stay_as_they_are(world: &World) {
    let (mut producer, mut consumer) = both(world, QueueOptions::new().depth(4));
    let mut kept = Vec::new();
    for n in 0..400 {
        send(&mut producer, n);
        let item = consumer.recv().expect("an item");
        let message = item.ack().expect("ack");
        if n < 40 {
            kept.push(message);
        }
    }
    drop(consumer);
    for (n, message) in (0u64..).zip(&kept) {
        assert_eq!(message.to_vec(), n.to_le_bytes(), "changed while kept");
    }
    let buffers = producer.status().buffers;
    assert!(
        buffers <= 4 + 64 + 12 + 40,
        "{buffers} buffers are not collected"
    );
}

fn memory_that_consumers_keep_is_said(world: &World) {
    let pool = PoolOptions::new(1 << 20).slots(16);
    let (mut producer, mut consumer) = both(world, QueueOptions::new().pool(pool));
    let mut kept = Vec::new();
    let error = loop {
        match producer.try_alloc(8) {
            Ok(mut job) => {
                job.fill(1);
                producer.send(job.freeze()).expect("send");
                kept.push(consumer.recv().expect("an item").ack().expect("ack"));
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error, ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.contains("queue") && kept.len() >= 8, "{text}");
    assert_eq!(
        text.contains("this process keeps"),
        world.is_inside(),
        "{text}"
    );
    drop(kept);
    producer.alloc(8).expect("it is back");
}

fn another_producer_is_found(world: &World) {
    let (producer, mut consumer) = both(world, QueueOptions::new());
    drop(producer);
    while !consumer.status().producers.is_empty() {
        assert!(consumer.try_recv().expect("no error").is_none());
    }
    let mut producer = produce(world, QueueOptions::new());
    send(&mut producer, 3);
    assert_eq!(taken(next(&mut producer, &mut consumer)), 3);
}

fn a_name_has_one_kind(world: &World) {
    let _producer = produce(world, QueueOptions::new());
    let address = world.address("jobs");
    let error = match world.there.subscribe(&address) {
        Err(error) => error,
        Ok(mut subscriber) => subscriber.recv().expect_err("it is a queue"),
    };
    assert_eq!(error, ErrorKind::BadArgument);
    assert!(error.to_string().contains("a queue has it"), "{error}");
    let error = world.here.publish(&address).expect_err("it is a queue");
    assert_eq!(error, ErrorKind::NameTaken);
}

fn sleepers_are_woken(world: &World) {
    let mut producer = produce(world, QueueOptions::new());
    thread::scope(|s| {
        let all = [(); 2].map(|()| {
            s.spawn(|| {
                let mut consumer = consume(world, ConsumerOptions::new().wait(Wait::Sleep));
                let mut count = 0;
                loop {
                    match taken(consumer.recv().expect("an item")) {
                        u64::MAX => return count,
                        _ => count += 1,
                    }
                }
            })
        });
        producer.wait_for(2, None).expect("both join");
        for n in 0..40 {
            send(&mut producer, n);
            producer.wait_done(None).expect("it is taken");
        }
        all.iter().for_each(|_| send(&mut producer, u64::MAX));
        let counts = all.map(|it| it.join().expect("no panic"));
        assert_eq!(counts.iter().sum::<u64>(), 40);
    });
}

/// Open items are compared again later: if their memory were free, it would have been used anew.
fn threads_take_and_give_back_at_random(world: &World) {
    const ITEMS: u64 = 10_000;
    let pool = PoolOptions::new(8 << 20).slots(256);
    let mut producer = produce(world, QueueOptions::new().pool(pool));
    let random = Random::printed("queues");
    let done = Mutex::new(Vec::new());
    thread::scope(|s| {
        for reader in 0..3 {
            let mut random = Random::seeded(random.seed() + reader);
            let done = &done;
            s.spawn(move || {
                let mut consumer = consume(world, ConsumerOptions::new());
                let mut open: Vec<(u64, Item)> = Vec::new();
                loop {
                    let item = consumer.recv().expect("an item");
                    let n = number(&item);
                    if n == u64::MAX {
                        break item.ack().expect("ack");
                    }
                    open.push((n, item));
                    while open.len() == 10 || !open.is_empty() && random.one_in(2) {
                        let at = random.below(open.len() as u64);
                        let (n, item) = open.swap_remove(usize::try_from(at).expect("an index"));
                        assert_eq!(item.to_vec(), n.to_le_bytes(), "changed while open");
                        match random.one_in(8) {
                            true => item.requeue(),
                            false => {
                                item.ack().expect("ack");
                                done.lock().expect("no panic").push(n);
                            }
                        }
                    }
                }
                // What is open goes back.
            });
        }
        producer.wait_for(3, None).expect("all join");
        (0..ITEMS).for_each(|n| send(&mut producer, n));
        // Three ends: each reader takes one, and gives back what it has to those that are left.
        while done.lock().expect("no panic").len() < usize::try_from(ITEMS).expect("few") - 30 {
            producer.tend().expect("tend");
        }
        (0..3).for_each(|_| send(&mut producer, u64::MAX));
    });
    while producer.consumers() > 0 {
        producer.tend().expect("tend");
    }
    let mut last = consume(world, ConsumerOptions::new());
    let mut done = done.into_inner().expect("no panic");
    while done.len() < usize::try_from(ITEMS).expect("few") {
        done.push(taken(next(&mut producer, &mut last)));
    }
    done.sort_unstable();
    assert_eq!(done, (0..ITEMS).collect::<Vec<_>>());
    producer.wait_done(None).expect("all is done");
}

/// Producers of several domains share a name. A consumer takes the items of each in order.
#[test]
fn producers_here_and_elsewhere_share_a_name() {
    for way in [Way::Shm, Way::LocalAcross] {
        let _dog = tranship_testkit::Watchdog::new();
        let world = World::new(way);
        let address = world.address("joint");
        let mut consumer = world.here.consume(&address).expect("consume");
        let mut producers =
            [&world.here, &world.there].map(|domain| domain.produce(&address).expect("produce"));
        let exclusive = QueueOptions::new().exclusive();
        let alone = world.there.produce_with(&address, exclusive);
        assert_eq!(alone.expect_err("it is shared"), ErrorKind::NameTaken);
        for producer in &mut producers {
            (0..20).for_each(|n| send(producer, n));
        }
        let mut lists = [const { Vec::new() }; 2];
        while lists.iter().any(|list| list.len() < 20) {
            if let Some(item) = consumer.try_recv().expect("no error") {
                lists[usize::from(item.producer() == world.there.id())].push(taken(item));
            }
            producers.iter_mut().for_each(|it| it.tend().expect("tend"));
        }
        assert_eq!(
            lists,
            [0, 1].map(|_| (0..20).collect::<Vec<_>>()),
            "{way:?}"
        );
    }
}

/// A queue for each priority: the most urgent one is asked first.
#[test]
fn urgent_items_go_first() {
    let _dog = tranship_testkit::Watchdog::new();
    let world = World::new(Way::Shm);
    let join = |name: &str| {
        let mut producer = world.here.produce(name).expect("produce");
        let mut consumer = world.there.consume(name).expect("consume");
        meet(&mut producer, &mut consumer);
        (producer, consumer)
    };
    let (mut late, mut lazy) = join("late");
    let (mut soon, mut eager) = join("soon");
    (0..5).for_each(|n| send(&mut late, n));
    let mut next = || match eager.try_recv().expect("no error") {
        Some(item) => (true, taken(item)),
        None => (false, taken(lazy.recv().expect("an item"))),
    };
    assert_eq!(next(), (false, 0));
    (0..3).for_each(|n| send(&mut soon, n));
    let order: Vec<_> = (0..7).map(|_| next()).collect();
    let urgent = (0..3).map(|n| (true, n));
    assert_eq!(
        order,
        urgent.chain((1..5).map(|n| (false, n))).collect::<Vec<_>>()
    );
}
