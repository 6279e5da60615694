//! A producer whose name another domain takes while the manager restarts.

use std::path::Path;
use std::thread::JoinHandle;
use tranship_core::{Domain, ErrorKind};
use tranship_manager::{Config, Listener, Shutdown};
use tranship_queue::{QueueOptions, Queues};
use tranship_testkit::{Watchdog, folder};

struct Manager {
    stop: Shutdown,
    thread: JoinHandle<()>,
}

impl Manager {
    fn begins(path: &Path) -> Manager {
        let listener = Listener::bind(path, 0o600).expect("a socket");
        let stop = Shutdown::new().expect("a way to stop");
        let stops = stop.clone();
        let config = Config {
            pressure: tranship_manager::PressureConfig {
                watch: false,
                ..Default::default()
            },
            ..Config::default()
        };
        let run = move || tranship_manager::run(config, listener, &stops, false);
        let thread = std::thread::spawn(move || run().expect("it runs"));
        Manager { stop, thread }
    }

    fn ends(self) {
        self.stop.stop().expect("it hears");
        self.thread.join().expect("it ended");
    }
}

fn join(path: &Path) -> Domain {
    Domain::builder().socket(path).connect().expect("join")
}

#[test]
fn a_producer_is_told_that_another_domain_has_its_name() {
    let _dog = Watchdog::new();
    let folder = folder().expect("a folder");
    let path = folder.path().join("manager");
    let first = Manager::begins(&path);
    let mut jobs = join(&path).produce("jobs").expect("produce");
    jobs.tend().expect("the name is its own");
    first.ends();
    // The producer's domain cannot reach the next manager before the other one has the name.
    let hidden = folder.path().join("hidden");
    let second = Manager::begins(&hidden);
    let exclusive = QueueOptions::new().exclusive();
    let taken = join(&hidden).produce_with("jobs", exclusive);
    let taken = taken.expect("nobody has the name");
    std::fs::rename(&hidden, &path).expect("renamed");
    let error = loop {
        match jobs.tend() {
            Ok(()) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
    let error = jobs.wait_for(1, None).expect_err("nobody can join");
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
    drop((taken, jobs));
    second.ends();
}
