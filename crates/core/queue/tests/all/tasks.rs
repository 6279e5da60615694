//! Producers that nobody calls for, tasks that await, descriptors, and items of several pieces.

use std::time::Duration;
use tranship_core::{Aggregate, Body, Domain, ErrorKind, PollItem, poll};
use tranship_queue::{Consumer, ConsumerOptions, Item, Producer, QueueOptions, Queues, WhenLost};
use tranship_testkit::{Watchdog, block_on};

fn join(here: &Domain) -> Domain {
    let socket = here.socket_path().expect("a socket");
    Domain::builder().socket(socket).connect().expect("join")
}

/// A producer of the manager's domain, and a consumer.
fn both(options: QueueOptions) -> (Domain, Producer, Consumer) {
    let here = Domain::embedded().expect("a domain");
    let producer = here.produce_with("jobs", options).expect("produce");
    let consumer = join(&here).consume("jobs").expect("consume");
    (here, producer, consumer)
}

fn take(consumer: &mut Consumer) -> Item {
    loop {
        match consumer.recv_timeout(Duration::from_millis(1)) {
            Ok(item) => return item,
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
    }
}

/// Nobody calls for the producer: the domain's helper thread takes consumers in, gives items back, and memory.
#[test]
fn an_idle_producer_is_tended() {
    let _dog = Watchdog::new();
    let (here, mut producer, mut first) = both(QueueOptions::new());
    let mut job = producer.alloc(5).expect("a buffer");
    job.copy_from_slice(b"a job");
    producer.send((job, 7)).expect("there is room");
    let open = take(&mut first);
    assert!(!open.redelivered());
    // It leaves with the item, which another consumer gets.
    drop((open, first));
    let mut second = join(&here).consume("jobs").expect("consume");
    let item = take(&mut second);
    assert!(item.redelivered());
    assert_eq!((item.word, item.to_vec()), (7, b"a job".to_vec()));
    drop(item.ack().expect("acknowledged"));
    while producer.status().buffers != 0 {
        assert!(second.try_recv().expect("no error").is_none());
    }
    drop(second);
    while producer.consumers() != 0 {
        std::thread::yield_now();
    }
}

#[test]
fn items_are_awaited() {
    let _dog = Watchdog::new();
    let (_here, mut producer, mut consumer) = both(QueueOptions::new().depth(4));
    std::thread::scope(|scope| {
        let takes = scope.spawn(move || {
            for n in 0..300u64 {
                let item = block_on(consumer.recv_async()).expect("an item");
                let message = item.ack().expect("acknowledged");
                assert_eq!(
                    (message.word, message.to_vec()),
                    (n, n.to_le_bytes().to_vec())
                );
            }
        });
        for n in 0..300u64 {
            if n % 100 == 0 {
                // The consumer goes to sleep.
                let more = producer.wait_for(2, Duration::from_millis(20));
                assert!(more.is_err());
            }
            let mut job = block_on(producer.alloc_async(8)).expect("a buffer");
            job.copy_from_slice(&n.to_le_bytes());
            block_on(producer.send_async((job, n))).expect("sent");
        }
        producer.wait_done(None).expect("done");
        takes.join().expect("no panic");
    });
}

/// A task that was woken for an item and is given up leaves it to another consumer.
#[test]
fn a_future_that_is_given_up_has_taken_nothing() {
    let _dog = Watchdog::new();
    let (here, mut producer, mut first) = both(QueueOptions::new());
    let second = join(&here).consume("jobs").expect("consume");
    let other = std::thread::spawn(move || {
        let mut second = second;
        second
            .recv()
            .expect("an item")
            .ack()
            .expect("acknowledged")
            .word
    });
    {
        let mut future = std::pin::pin!(first.recv_async());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while producer.consumers() < 2 {
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        producer.send((b"x", 5)).expect("sent");
    }
    assert_eq!(other.join().expect("no panic"), 5);
    producer.wait_done(None).expect("done");
}

#[test]
fn an_item_shows_up_on_the_domains_descriptor() {
    let _dog = Watchdog::new();
    let here = Domain::embedded().expect("a domain");
    let mut producer = here.produce("jobs").expect("produce");
    let there = join(&here);
    let mut consumer = there.consume("jobs").expect("consume");
    while !consumer.status().producers.iter().any(|seen| seen.joined) {
        assert!(consumer.try_recv().expect("nothing").is_none());
    }
    std::thread::scope(|scope| {
        let (armed, is_armed) = std::sync::mpsc::channel();
        let takes = scope.spawn(move || {
            for n in 0..20u64 {
                let item = loop {
                    if let Some(item) = consumer.try_recv().expect("no error") {
                        break item;
                    }
                    if consumer.arm().expect("arm") {
                        let _ = armed.send(()); // the producer may have sent all
                        poll(&mut [PollItem::domain(&there)], None).expect("poll");
                        consumer.disarm();
                    }
                };
                assert_eq!(item.ack().expect("acknowledged").word, n);
            }
        });
        for n in 0..20u64 {
            is_armed.recv().expect("the consumer waits");
            producer.send((b"x", n)).expect("send");
        }
        takes.join().expect("no panic");
    });
}

/// It joins while it is polled, beside something else; each item makes it ready, and one that it found and did not receive goes to another.
#[test]
fn a_consumer_is_polled() {
    let _dog = Watchdog::new();
    let (here, mut producer, mut consumer) = both(QueueOptions::new());
    let (quiet, _open) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let now = poll(&mut [consumer.poll_item()], Some(Duration::ZERO));
    assert!(now.expect("poll").is_empty());
    std::thread::scope(|scope| {
        let (taken, is_taken) = std::sync::mpsc::channel();
        let takes = scope.spawn(move || {
            let wait = |consumer: &mut Consumer| {
                let mut items = [PollItem::readable(&quiet), consumer.poll_item()];
                assert_eq!(poll(&mut items, None).expect("poll"), [1]);
            };
            for n in 0..40u64 {
                wait(&mut consumer);
                // Once more: it is still the same item.
                wait(&mut consumer);
                let item = consumer.try_recv().expect("no error").expect("an item");
                assert_eq!(item.word, n);
                item.ack().expect("the producer is there");
                taken.send(()).expect("the producer waits");
            }
            wait(&mut consumer);
            // The last one is not received.
        });
        producer.wait_for(1, None).expect("joined");
        for n in 0..40u64 {
            producer.send((&b"x"[..], n)).expect("send");
            is_taken.recv().expect("taken");
        }
        producer.send((&b"x"[..], 40)).expect("send");
        takes.join().expect("no panic");
    });
    let mut other = join(&here).consume("jobs").expect("consume");
    let item = take(&mut other);
    assert_eq!((item.word, item.redelivered()), (40, true));
}

fn aggregate(producer: &mut Producer, pieces: &[&[u8]]) -> Aggregate {
    let mut all = Aggregate::new();
    for bytes in pieces {
        let mut piece = producer.alloc(bytes.len()).expect("a buffer");
        piece.copy_from_slice(bytes);
        all.push_back(piece.freeze()).expect("few");
    }
    all
}

/// An aggregate is one item: acknowledged, given back and lost with all its pieces.
#[test]
fn an_aggregate_is_one_item() {
    let _dog = Watchdog::new();
    let options = QueueOptions::new().pieces(3).when_lost(WhenLost::Report);
    let (_here, mut producer, mut consumer) = both(options);
    for word in 0..3 {
        let all = aggregate(&mut producer, &[b"one ", b"two ", b"three"]);
        producer.send((all, word)).expect("there is room");
    }
    let bytes = b"one two three";
    take(&mut consumer).requeue();
    let second = take(&mut consumer);
    assert_eq!((second.word, second.to_vec()), (1, bytes.to_vec()));
    let kept = second.ack().expect("acknowledged");
    take(&mut consumer).reject();
    let again = take(&mut consumer);
    assert!(again.redelivered());
    assert_eq!((again.word, again.to_vec()), (0, bytes.to_vec()));
    drop(again.ack().expect("acknowledged"));
    producer.wait_done(None).expect("done");
    let lost = producer.take_lost().expect("it was rejected");
    assert_eq!(
        (lost.message.word, lost.message.to_vec()),
        (2, bytes.to_vec())
    );
    assert!(matches!(&lost.message.body, Body::Aggregate(all) if all.pieces().len() == 3));
    drop(lost);
    assert_eq!(kept.to_vec(), bytes, "each piece is held");
    drop(kept);
    while producer.status().buffers != 0 {
        assert!(consumer.try_recv().expect("no error").is_none());
    }
    let all = aggregate(&mut producer, &[b"1", b"2", b"3", b"4"]);
    let failed = producer.send(all).expect_err("too many pieces");
    assert_eq!(failed.error.kind(), ErrorKind::TooLarge);
    assert_eq!(failed.unsent.pieces().len(), 4, "it comes back");
}

/// A consumer that may not hold all pieces now is told so, and the item goes back.
#[test]
fn an_aggregate_that_is_too_much_now_goes_back() {
    let _dog = Watchdog::new();
    let (_here, mut producer, mut consumer) = both(QueueOptions::new().keep(0).pieces(8));
    let pieces = [&b"x"[..]; 8];
    for _ in 0..2 {
        let all = aggregate(&mut producer, &pieces);
        producer.send(all).expect("there is room");
    }
    let kept = take(&mut consumer).ack().expect("acknowledged");
    let error = consumer.recv().expect_err("12 may be held, not 16");
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    drop(kept);
    let item = take(&mut consumer);
    assert!(item.redelivered());
    assert_eq!(item.to_vec(), [b'x'; 8]);
}

/// Producers and consumers of different types refuse each other.
#[test]
fn another_type_is_refused() {
    let _dog = Watchdog::new();
    let here = Domain::embedded().expect("a domain");
    let options = QueueOptions::new().message_type("a: u32");
    let mut producer = here.produce_with("jobs", options).expect("produce");
    let with = |text: &str| {
        let options = ConsumerOptions::new().message_type(text);
        join(&here).consume_with("jobs", options).expect("consume")
    };
    let error = with("a: u64").recv().expect_err("another type");
    assert_eq!(error.kind(), ErrorKind::ChannelBind, "{error}");
    let mut consumer = with("a: u32");
    producer.send(&[1u8, 0, 0, 0]).expect("sent");
    assert_eq!(take(&mut consumer).to_vec(), [1, 0, 0, 0]);
}
