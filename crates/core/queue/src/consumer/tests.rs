//! A consumer that was woken for an item and cannot take it.

use super::*;
use crate::Queues;
use tranship_testkit::Watchdog;

fn join(here: &Domain) -> Domain {
    let socket = here.socket_path().expect("a socket");
    Domain::builder().socket(socket).connect().expect("join")
}

#[test]
fn a_consumer_that_may_not_take_passes_its_wake_up_on() {
    let _dog = Watchdog::new();
    let here = Domain::embedded().expect("a domain");
    let mut producer = join(&here).produce("jobs").expect("produce");
    let new = || {
        let options = ConsumerOptions::new().unacknowledged(1);
        let consumer = join(&here).consume_with("jobs", options);
        consumer.expect("consume")
    };
    let (mut full, mut other) = (new(), new());
    for consumer in [&mut full, &mut other] {
        while !consumer.seats.iter().any(Seat::has_begun) {
            assert!(consumer.try_recv().expect("nothing").is_none());
            producer.tend().expect("tend");
        }
    }
    producer.try_send(&b"first"[..]).expect("there is room");
    let _open = full.try_recv().expect("it can receive").expect("it waits");
    producer.try_send(&b"second"[..]).expect("there is room");
    // The other one is about to sleep; the wake-up has reached the full one.
    let seen = other.seats[0].arm().seen;
    full.slept = true;
    let error = full.try_recv().expect_err("it has as many as it may");
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert_ne!(other.seats[0].arm().seen, seen, "the bell was rung");
}
