//! Several processes that serve one name: here, domains of one process.

use crate::kit::{first, join, serves};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use tranship_core::{Domain, DomainId, ErrorKind};
use tranship_service::{CallError, Client, Request, ServiceOptions, Services};
use tranship_testkit::until;

/// A process of the service: its answers are its domain's id. It ends after `stop`, and lets go of `die` with its domain.
struct Process {
    id: DomainId,
    taken: Arc<AtomicU32>,
    worker: JoinHandle<()>,
}

fn serve(first: &Domain, name: &str) -> Process {
    let domain = join(first, name);
    let id = domain.id();
    let options = ServiceOptions::new().shared();
    let service = domain.serve_with("x", options).expect("serve");
    let taken = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&taken);
    let work = move |request: Request| {
        count.fetch_add(1, Ordering::Relaxed);
        match request.to_vec().as_slice() {
            b"wait" => until(|| request.is_cancelled()),
            _ => request.reply(&id.0.to_ne_bytes()).expect("reply"),
        }
    };
    let worker = thread::spawn(move || serves(&service, work));
    Process { id, taken, worker }
}

/// Calls until each of the processes was asked.
fn all_are_asked(client: &Client, processes: &[&Process]) {
    let mut left: Vec<DomainId> = processes.iter().map(|process| process.id).collect();
    until(|| {
        let answer = client.call(b"who").expect("call").to_vec();
        left.retain(|id| id.0.to_ne_bytes()[..] != answer[..]);
        left.is_empty()
    });
}

#[test]
fn calls_go_to_the_process_with_fewest_in_flight() {
    let (_dog, a) = first();
    let (one, two) = (serve(&a, "one"), serve(&a, "two"));
    let client = join(&a, "client").client("x").expect("client");
    all_are_asked(&client, &[&one, &two]);
    assert_eq!(client.workers(), 2);
    // One is busy: the other one takes all.
    let busy = client.begin(b"wait").expect("begin");
    let answer = client.call(b"who").expect("call").to_vec();
    for _ in 0..10 {
        let again = client.call(b"who").expect("call").to_vec();
        assert_eq!(again, answer, "not the one that is busy");
    }
    drop(busy);
    // A buffer of the client's goes to any of them.
    for _ in 0..8 {
        let mut image = client.alloc(100_000).expect("alloc");
        image[0] = 1;
        assert_eq!(client.call(image).expect("call").len(), 4);
    }
    // One more process comes.
    let three = serve(&a, "three");
    all_are_asked(&client, &[&three]);
    until(|| client.workers() == 3);
    for process in [&one, &two, &three] {
        assert!(process.taken.load(Ordering::Relaxed) > 0);
    }
    for _ in 0..3 {
        // A process that ends at this moment may be asked still, and says so.
        until(|| client.call(b"stop").is_ok());
    }
    for process in [one, two, three] {
        process.worker.join().expect("worker");
    }
    let error = loop {
        match client.call(b"who") {
            Ok(_) => {}
            Err(CallError::Unsent(failed)) if client.workers() == 0 => break failed.error,
            Err(_) => {}
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerGone);
    assert!(
        error.to_string().contains("no process serves `x` now"),
        "{error}"
    );
    // And goes on with the next one.
    let four = serve(&a, "four");
    until(|| client.call(b"who").is_ok());
    client.call(b"stop").expect("stop");
    four.worker.join().expect("worker");
}

#[test]
fn a_name_is_shared_by_all_or_by_none() {
    let (_dog, a) = first();
    let (b, c) = (join(&a, "b"), join(&a, "c"));
    let shared = || ServiceOptions::new().shared();
    let alone = b.serve("x").expect("serve");
    let error = c.serve_with("x", shared()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
    drop(alone);
    let one = b.serve_with("x", shared()).expect("serve");
    let error = c.serve("x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
    let twice = b.serve_with("x", shared()).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::NameTaken, "{twice}");
    c.serve_with("x", shared()).expect("both share it");
    drop(one);
}
