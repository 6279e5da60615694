//! A client and the parties that have a service's name: those that take its channels and say nothing, and those that serve.

use crate::kit::{first, join, serves};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tranship_core::{ChannelOptions, Domain, ErrorKind, Listener, PoolOptions, Receiver, Sender};
use tranship_service::{Request, Service, ServiceOptions, Services};
use tranship_testkit::block_on;

/// A party that takes both channels of so many clients, and welcomes none. It counts them, and keeps the channels.
fn takes_and_says_nothing(
    domain: &Domain,
    shared: bool,
    clients: usize,
) -> (Arc<AtomicU32>, JoinHandle<Vec<(Receiver, Sender)>>) {
    let (options, replies) = match shared {
        true => (
            ChannelOptions::new().shared(),
            format!("x/replies/{}", domain.id()),
        ),
        false => (ChannelOptions::new(), "x/replies".into()),
    };
    let replies: Listener<Sender> = domain.listen(&replies).expect("listen");
    let requests: Listener<Receiver> = domain.listen_with("x", options).expect("listen");
    let taken = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&taken);
    let takes = thread::spawn(move || {
        let both = |_| {
            let requests = requests.accept().expect("accept");
            let replies = replies.accept().expect("accept");
            count.fetch_add(1, Ordering::Relaxed);
            (requests, replies)
        };
        (0..clients).map(both).collect()
    });
    (taken, takes)
}

/// The time of the options holds for a task, too.
#[test]
fn a_service_that_never_welcomes_is_named_in_time() {
    let (_dog, a) = first();
    let b = join(&a, "b");
    let silent = takes_and_says_nothing(&a, false, 2);
    // Longer, until the silent one has both channels by then.
    for asynchronous in [false, true] {
        let mut time = Duration::from_millis(50);
        let error = loop {
            let options = ServiceOptions::new().timeout(time);
            let failed = match asynchronous {
                false => b.client_with("x", options),
                true => block_on(b.client_async("x", options)),
            };
            let error = failed.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            if error.to_string().contains("has not welcomed it") {
                break error;
            }
            time *= 2;
        };
        let whose = format!("(domain {}, process {})", a.id(), std::process::id());
        assert!(error.to_string().contains(&whose), "{error}");
    }
    drop(silent);
}

/// A process that has a shared name and never welcomes keeps no client from the others: neither a new one, nor one that looks for more.
#[test]
fn a_process_that_never_welcomes_keeps_no_client_from_the_others() {
    let (_dog, a) = first();
    let (b, c, d) = (join(&a, "b"), join(&a, "c"), join(&a, "d"));
    let serve = |domain: &Domain| -> (Service, JoinHandle<()>) {
        let options = ServiceOptions::new().shared();
        let service = domain.serve_with("x", options).expect("serve");
        let worker = service.clone();
        let work = |request: Request| request.reply(b"done").expect("reply");
        let worker = thread::spawn(move || serves(&worker, work));
        (service, worker)
    };
    // It is asked first, and keeps the channels until the test ends.
    let (taken, silent) = takes_and_says_nothing(&a, true, 64);
    let _first = serve(&b);
    let client = d.client_with("x", ServiceOptions::new().shared());
    let client = client.expect("client");
    assert_eq!(client.call(b"work").expect("call").to_vec(), b"done");
    // It is at the silent one again when another one comes.
    while taken.load(Ordering::Relaxed) < 2 {
        assert_eq!(client.workers(), 1);
        thread::yield_now();
    }
    let _second = serve(&c);
    while client.workers() < 2 {
        client.call(b"work").expect("call");
    }
    drop(silent);
}

/// A caller that waits for memory does not have the sender meanwhile.
#[test]
fn a_caller_that_waits_for_memory_keeps_nobody_from_calling() {
    let (_dog, a) = first();
    let b = join(&a, "b");
    let service = a.serve("x").expect("serve");
    let work = |request: Request| request.reply(b"").expect("reply");
    let worker = thread::spawn(move || serves(&service, work));
    let options = ServiceOptions::new().pool(PoolOptions::new(1 << 20).slots(4));
    let client = b.client_with("x", options).expect("client");
    let all: Vec<_> = (0..4).map(|_| client.alloc(1000).expect("alloc")).collect();
    let none = client.alloc_timeout(1000, Duration::from_millis(1));
    assert_eq!(none.unwrap_err().kind(), ErrorKind::OutOfMemory);
    thread::scope(|s| {
        let waits = s.spawn(|| client.alloc(1000).expect("alloc").len());
        for _ in 0..1000 {
            client.call(b"").expect("call");
            thread::yield_now();
        }
        assert!(!waits.is_finished());
        drop(all);
        assert_eq!(waits.join().expect("allocated"), 1000);
    });
    client.call(b"stop").expect("stop");
    worker.join().expect("worker");
}
