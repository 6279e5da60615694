//! Late news: nothing above the trait of backends relies on when a backend reports it.

use crate::kit::*;
use crate::slow::{Shared, Slow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tranship_core::{Domain, ErrorKind};
use tranship_testkit::Random;

fn slow_ends(name: &str) -> (World, String, Arc<Shared>) {
    let world = World::new();
    let slow = Arc::new(Slow::new(Random::printed(name)));
    let shared = slow.shared();
    for domain in [&world.a, &world.b] {
        let domain: &Domain = domain;
        add(domain, "slow", slow.clone());
    }
    let address = format!("slow:{name}-{}", std::process::id());
    (world, address, shared)
}

/// A message counts as taken only when the other end has reported it.
#[test]
fn what_is_not_reported_is_not_taken() {
    let _dog = dog();
    let (world, address, shared) = slow_ends("order");
    let (mut to, mut from) = world.channel(&address);
    let pool = pool(&world.a, 1 << 20);
    // The introductions of the ends are done.
    to.send(b"first").expect("send");
    to.wait_taken(None).expect("taken");
    shared.holds.store(true, Ordering::Relaxed);
    for number in 1..=5 {
        let buf = pool.copy(&pattern(number, 5000)).expect("alloc");
        to.send((buf.freeze(), number)).expect("send");
    }
    let taken = to.wait_taken(Duration::from_millis(300));
    let error = taken.expect_err("none of them is said to be");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(to.queued(), 5);
    shared.holds.store(false, Ordering::Relaxed);
    to.wait_taken(None).expect("taken");
    for number in 0..=5 {
        assert_eq!(from.recv().expect("recv").word, number);
    }
}
