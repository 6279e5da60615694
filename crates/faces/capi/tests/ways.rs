//! Topics, services and queues from C: their headers' promises, and C programs with Rust at the other end.

mod common;

use common::{Running, c, compiled, good, has, with_manager};
use facade::queue::Queues as _;
use facade::service::Services as _;
use facade::topic::Topics as _;
use facade::{Domain, ErrorKind};
use std::process::Command;
use std::thread;
use tranship_testkit::Watchdog;

const SANITIZED: &[&str] = &[
    "-std=c11",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

fn manager() -> (Domain, std::path::PathBuf) {
    let domain = Domain::builder().name("test").helper_thread(true);
    let domain = domain.embedded().expect("a manager");
    let socket = domain.socket_path().expect("a socket");
    (domain, socket)
}

#[test]
fn the_headers_promises_are_kept() {
    let _dog = Watchdog::new();
    let said = Command::new(c("tests/programs/ways.c")).output();
    assert_eq!(good(said.expect("it runs")), "all as promised\n");
}

#[test]
fn they_are_kept_under_what_finds_mistakes_in_memory() {
    let _dog = Watchdog::new();
    if !has("cc", "gcc") {
        return;
    }
    let said = Command::new(compiled("cc", "tests/programs/ways.c", SANITIZED)).output();
    assert_eq!(good(said.expect("it runs")), "all as promised\n");
}

#[test]
fn a_topic_of_c_has_viewers_in_c_and_in_rust() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let program = c("examples/topic.c");
    let views = Running::start(with_manager(&program, &socket).args(["view", "camera"]));
    let mut video = domain.subscribe("camera").expect("a subscription");
    let publishes =
        Running::start(with_manager(&program, &socket).args(["publish", "camera", "10", "2"]));
    let mut words = Vec::new();
    loop {
        match video.recv() {
            Ok(message) => {
                assert_eq!(
                    message.to_vec(),
                    vec![u8::try_from(message.word).expect("small"); 4096]
                );
                words.push(message.word);
            }
            Err(error) if error == ErrorKind::PeerGone => break,
            Err(error) => panic!("{error}"),
        }
    }
    publishes.ends_well();
    assert_eq!(words.last(), Some(&9), "{words:?}");
    let said = views.ends_well();
    assert!(said.contains("frame 9 of 4096 bytes: 9\n"), "{said}");
}

#[test]
fn a_service_of_c_is_called_from_c_and_from_rust_and_calls_rust() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let program = c("examples/service.c");
    let serves = Running::start(with_manager(&program, &socket).args(["serve", "sum", "2"]));
    let client = domain.client("sum").expect("a client");
    let answer = client.call(&[1, 2, 39]).expect("an answer").to_vec();
    assert_eq!(answer, 42u64.to_ne_bytes());
    let calls = Running::start(with_manager(&program, &socket).args(["call", "sum", "AB"]));
    assert_eq!(calls.ends_well(), "131\n");
    serves.ends_well();

    let service = domain.serve("rust").expect("a service");
    let worker = thread::spawn(move || {
        let request = service.recv().expect("a request");
        let len = request.len() as u64;
        request.reply(&len.to_ne_bytes()).expect("answered");
    });
    let calls = Running::start(with_manager(&program, &socket).args(["call", "rust", "seven"]));
    assert_eq!(calls.ends_well(), "5\n");
    worker.join().expect("the worker");
}

#[test]
fn a_queue_has_producers_and_consumers_in_c_and_in_rust() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let program = c("examples/queue.c");
    let mut producer = domain.produce("jobs").expect("a producer");
    let consumes = Running::start(with_manager(&program, &socket).args(["consume", "jobs", "5"]));
    let produces = Running::start(with_manager(&program, &socket).args(["produce", "jobs", "4"]));
    producer.send((b"a job of Rust's", 77)).expect("sent");
    producer.wait_done(None).expect("done");
    produces.ends_well();
    let said = consumes.ends_well();
    assert_eq!(said.lines().count(), 5, "{said}");
    assert!(
        said.contains("job 77 of 15 bytes\n") && said.contains("job 3 of 1000 bytes\n"),
        "{said}"
    );

    let there = Domain::builder()
        .socket(&socket)
        .connect()
        .expect("a domain");
    let produces = Running::start(with_manager(&program, &socket).args(["produce", "more", "3"]));
    let mut consumer = there.consume("more").expect("a consumer");
    for number in 0..3 {
        let item = consumer.recv().expect("an item");
        assert_eq!((item.word, item.len()), (number, 1000));
        item.ack().expect("acknowledged");
    }
    produces.ends_well();
}
