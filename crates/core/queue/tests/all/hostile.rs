//! A consumer that lies, and a producer that keeps no rule, beside honest ones.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tranship_core::topics::{self, Kind, Readers, Writers};
use tranship_core::{Domain, ErrorKind, PoolOptions, Sender};
use tranship_queue::{Consumer, ConsumerOptions, Producer, QueueOptions, Queues};
use tranship_region::RwMapping;
use tranship_ring::broadcast::{
    ClaimsRw, Limits, LinesRo, LinesRw, Reader, Reading, WriterMemory, claims_len, sequence,
};
use tranship_testkit::{Random, Watchdog, payload};

const DEPTH: u32 = 16;
const SEED: u64 = 7;
/// The word that ends a consumer.
const END: u64 = u64::MAX;

fn join(here: &Domain) -> Domain {
    let socket = here.socket_path().expect("a socket");
    Domain::builder().socket(socket).connect().expect("join")
}

fn send(producer: &mut Producer, id: u64) -> bool {
    let Ok(mut job) = producer.alloc_timeout(500, Duration::from_millis(20)) else {
        return false;
    };
    payload::fill(&mut job, id, SEED);
    producer
        .send_timeout((job, id), Duration::from_millis(20))
        .is_ok()
}

/// Verifies items until the last one. Returns the ids that came.
fn verify(mut consumer: Consumer) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut kept = std::collections::VecDeque::new();
    loop {
        let item = match consumer.recv_timeout(Duration::from_millis(10)) {
            Ok(item) => item,
            Err(error) if error == ErrorKind::TimedOut => continue,
            Err(error) => panic!("{error}"),
        };
        if item.word == END {
            item.ack().expect("acknowledged");
            return ids;
        }
        payload::verify_seed(&item.to_vec(), item.word, SEED).expect("what was sent");
        ids.push(item.word);
        // Some are kept for a while, and are what they were.
        kept.push_back(item.ack().expect("acknowledged"));
        if kept.len() > 8 {
            let message = kept.pop_front().expect("it is there");
            payload::verify_seed(&message.to_vec(), message.word, SEED).expect("as it was");
        }
    }
}

/// The claims of the only producer, as a consumer maps them.
fn claims_of(writers: &mut Writers, producer: &mut Producer) -> (OwnedFd, u32) {
    loop {
        producer.tend().expect("tend");
        if let Some((receiver, _)) = writers.try_next().expect("it asks") {
            let (_, lines, claims) = receiver.topic_ring().expect("it is shown");
            return (claims, lines);
        }
    }
}

/// Writes any claims, until it is told to stop.
fn lies(claims: &OwnedFd, lines: u32, stop: &AtomicBool) {
    let len = claims_len(lines);
    let map = RwMapping::map(claims.as_fd(), len).expect("every consumer can write them");
    let words = map.array::<AtomicU64>(0, len / 8);
    // SAFETY: as many words as the object has, mapped as long as `map`; reached by atomics only.
    let words = unsafe { std::slice::from_raw_parts(words.as_ptr(), len / 8) };
    let mut random = Random::printed("lies");
    while !stop.load(Ordering::Relaxed) {
        let at = usize::try_from(random.below(words.len() as u64)).expect("small");
        let word = match random.below(4) {
            0 => 0,
            1 => random.next(),
            2 => random.below(2000) | random.below(3) << 48,
            _ => words[at].load(Ordering::Relaxed) ^ 1 << random.below(64),
        };
        words[at].store(word, Ordering::Relaxed);
        if random.one_in(8) {
            std::thread::yield_now();
        }
    }
}

/// A consumer writes anything into the claims. Others may get items twice, late or not at all; each that they get is
/// what was sent, the producer's calls end, and afterwards all is well again.
#[test]
fn a_liar_spoils_an_order_and_nothing_else() {
    let dog = Watchdog::new();
    let here = Domain::embedded().expect("a domain");
    let pool = PoolOptions::new(1 << 20).slots(128);
    let options = QueueOptions::new().depth(DEPTH).keep(16).pool(pool);
    let mut producer = join(&here).produce_with("jobs", options).expect("produce");
    let honest: Vec<_> = (0..2)
        .map(|_| {
            let consumer = join(&here).consume_with("jobs", ConsumerOptions::new());
            let consumer = consumer.expect("consume");
            std::thread::spawn(move || verify(consumer))
        })
        .collect();
    producer.wait_for(2, None).expect("they join");
    let mut writers = Writers::new(&join(&here), "jobs", Kind::Queue).expect("it asks");
    let (claims, lines) = claims_of(&mut writers, &mut producer);
    assert_eq!(lines, DEPTH);
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let liar = std::thread::spawn(move || lies(&claims, lines, &told));
    let sent = (0..3000).filter(|id| send(&mut producer, *id)).count();
    stop.store(true, Ordering::Relaxed);
    liar.join().expect("it lies and ends");
    dog.step(format_args!("{sent} items were sent, now without lies"));
    let mut honest_ids = Vec::new();
    for id in 10_000..10_100 {
        while !send(&mut producer, id) {}
        honest_ids.push(id);
    }
    producer.wait_done(None).expect("all are done with");
    for _ in 0..2 {
        producer.send((&b""[..], END)).expect("sent");
    }
    let mut came: Vec<u64> = honest
        .into_iter()
        .flat_map(|it| it.join().expect("no panic"))
        .filter(|id| *id >= 10_000)
        .collect();
    came.sort_unstable();
    came.dedup();
    // The claims that the liar left may hit items once more, as far as the ring goes round.
    let around = u64::from(DEPTH) * 2;
    let rest = |ids: &[u64]| {
        ids.iter()
            .copied()
            .filter(|id| *id >= 10_000 + around)
            .collect()
    };
    let (came, sent): (Vec<u64>, Vec<u64>) = (rest(&came), rest(&honest_ids));
    assert_eq!(came, sent);
}

/// A consumer that stops in the few instructions in which it reads a line holds nobody up, and its item goes to another
/// when it ends.
#[test]
fn a_consumer_that_stops_as_it_reads_a_line_holds_nobody_up() {
    let _dog = Watchdog::new();
    let here = Domain::embedded().expect("a domain");
    let options = QueueOptions::new().depth(DEPTH);
    let mut producer = join(&here).produce_with("jobs", options).expect("produce");
    let mut writers = Writers::new(&join(&here), "jobs", Kind::Queue).expect("it asks");
    let (mut receiver, desk) = loop {
        producer.tend().expect("tend");
        if let Some(connected) = writers.try_next().expect("it asks") {
            break connected;
        }
    };
    let (lines, count, claims) = receiver.topic_ring().expect("it is shown");
    let ring = LinesRo::open(lines, count).expect("lines");
    let claims = ClaimsRw::open(claims, count).expect("claims");
    let go = loop {
        producer.tend().expect("tend");
        if let Some(go) = receiver.try_recv().expect("a word") {
            break go.to_vec();
        }
    };
    let number = u16::from_le_bytes([go[9], go[10]]);
    assert!(send(&mut producer, 0));
    // It takes the first item, and does nothing more.
    let memory = Reading {
        lines: ring.lines(),
        desk: desk.desk(),
        table: &[],
    };
    desk.opens().enter(0, 1).expect("an entry is free");
    let Ok(()) = Reader::new(0, Limits::new(0)).claim_one(&memory, 0);
    assert!(claims.claims().take(0, 0, number));
    let consumer = join(&here).consume("jobs").expect("consume");
    let honest = std::thread::spawn(move || verify(consumer));
    for id in 1..200 {
        let mut job = producer.alloc(500).expect("memory");
        payload::fill(&mut job, id, SEED);
        producer.send((job, id)).expect("it is not held up");
    }
    let error = producer.wait_done(Duration::from_millis(1));
    let text = error.expect_err("one is open").to_string();
    assert!(text.contains("has 1 items open"), "{text}");
    drop(receiver);
    producer.wait_done(None).expect("it was given back");
    assert_eq!(producer.status().redelivered, 1);
    producer.send((&b""[..], END)).expect("sent");
    let mut came = honest.join().expect("no panic");
    assert_eq!(came.pop(), Some(0), "it comes last");
    assert!(came.into_iter().eq(1..200));
}

/// A producer of the test's own, which keeps no rule.
struct FalseProducer {
    readers: Readers,
    ring: LinesRw,
    _claims: ClaimsRw,
}

impl FalseProducer {
    fn new(here: &Domain) -> FalseProducer {
        let (lines, ring) = LinesRw::create(DEPTH).expect("lines");
        let (fd, claims) = ClaimsRw::create(DEPTH).expect("claims");
        let fd = Arc::new(fd);
        let shown = move |_| Ok(Arc::clone(&fd));
        let held = (Kind::Queue, true);
        let readers = topics::publish(here, "jobs", (lines, DEPTH), held, shown);
        FalseProducer {
            readers: readers.expect("the name is free"),
            ring,
            _claims: claims,
        }
    }

    /// Takes a consumer in, and says where to begin.
    fn go(&self, here: &Domain, consumer: &mut Consumer) -> Sender {
        let pool = topics::pool(here, PoolOptions::new(1 << 20)).expect("a pool");
        let mut sender = loop {
            assert!(consumer.try_recv().expect("nothing").is_none());
            if let Some(sender) = self.readers.try_next().expect("accept") {
                break sender;
            }
        };
        while !sender.try_assign(&pool).expect("assign") {
            assert!(consumer.try_recv().expect("nothing").is_none());
        }
        let mut bytes = [1, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0];
        bytes[1..5].copy_from_slice(&pool.id().0.to_le_bytes());
        sender.send(&bytes[..]).expect("said");
        while !consumer.status().producers.iter().any(|it| it.joined) {
            assert!(consumer.try_recv().expect("nothing").is_none());
        }
        sender
    }
}

/// A producer whose lines are always later ones ends no call late; one that writes what no producer writes is left, and
/// others are served.
#[test]
fn a_producer_that_keeps_no_rule_costs_itself_the_connection() {
    let _dog = Watchdog::new();
    let here = Domain::embedded().expect("a domain");
    let there = join(&here);
    let liar = FalseProducer::new(&there);
    let mut consumer = join(&here).consume("jobs").expect("consume");
    let _sender = liar.go(&there, &mut consumer);
    for at in 0..u64::from(DEPTH) {
        let next = (at + 1) * ((3 << 45) + 1);
        let Ok(()) = liar.ring.lines().set_first(at, sequence(next));
    }
    for _ in 0..3000 {
        assert!(consumer.try_recv().expect("nothing").is_none());
    }
    let error = consumer.recv_timeout(Duration::from_millis(5));
    assert_eq!(error.expect_err("nothing").kind(), ErrorKind::TimedOut);
    // Now lines of an unknown kind, at any position.
    let error = 'found: loop {
        for at in 0..u64::from(DEPTH) {
            let lines = liar.ring.lines();
            for position in [at, at + (7 << 40)] {
                let Ok(()) = lines.set_last(position, sequence(position));
                let Ok(()) = lines.set_first(position, sequence(position));
                match consumer.try_recv() {
                    Ok(none) => assert!(none.is_none()),
                    Err(error) => break 'found error,
                }
            }
        }
        // It has gone far with the lies before.
        for position in (1..1u64 << 20).map(|n| n * ((3 << 45) + 1)) {
            let lines = liar.ring.lines();
            let Ok(()) = lines.set_last(position, sequence(position));
            let Ok(()) = lines.set_first(position, sequence(position));
            match consumer.try_recv() {
                Ok(none) => assert!(none.is_none()),
                Err(error) => break 'found error,
            }
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerViolation, "{error}");
    assert!(consumer.status().producers.is_empty(), "it is left");
    let mut good = join(&here).produce("jobs").expect("produce");
    assert!(send(&mut good, 1));
    loop {
        good.tend().expect("tend");
        if let Some(item) = consumer.try_recv().expect("it goes on") {
            assert_eq!(item.ack().expect("acknowledged").word, 1);
            return;
        }
    }
}
