//! A manager that is killed and started again: a domain with nothing but a listener joins the next one.

use std::path::PathBuf;
use std::time::Duration;

use tranship_core::{Domain, ErrorKind, PollItem, Receiver, Sender, poll};
use tranship_testkit::{Control, Watchdog, child, start_manager};

fn join(ctl: &Control, name: &str) -> Domain {
    let path: PathBuf = ctl.recv().unwrap().unwrap();
    Domain::builder().name(name).socket(path).connect().unwrap()
}

// Waits for a connection by `poll` alone, and says when it has no manager.
child!(
    fn waits(ctl: Control) {
        let domain = join(&ctl, "waits");
        let listener = domain.listen::<Receiver>("late").unwrap();
        ctl.send(&"listens").unwrap();
        let mut said = false;
        loop {
            let mut set = [PollItem::listener(&listener)];
            let ready = poll(&mut set, Some(Duration::from_millis(20))).unwrap();
            if !ready.is_empty() {
                break;
            }
            if !said && !domain.admin().is_managed() {
                ctl.send(&"away").unwrap();
                said = true;
            }
        }
        let mut receiver = listener.accept().unwrap();
        ctl.send(&receiver.recv().unwrap().word).unwrap();
    }
);

#[test]
fn who_only_polls_a_listener_joins_the_next_manager() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().unwrap();
    let path = folder.path().join("manager.sock");
    let first = start_manager(&path, "");
    let waits = waits().start().unwrap();
    assert_eq!(waits.ask::<String>(&path), "listens");
    first.kill();
    assert_eq!(waits.expect::<String>(), "away");
    let _second = start_manager(&path, "");
    let domain = Domain::builder().socket(&path).connect().unwrap();
    let mut sender = domain.open::<Sender>("late").unwrap();
    sender.send((b"", 7)).unwrap();
    assert_eq!(waits.expect::<u64>(), 7);
}

/// A listener like a camera between two frames: each wait is shorter than the time after which a thread looks for the
/// manager.
#[test]
fn a_listener_that_never_waits_long_joins_the_next_manager() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().unwrap();
    let path = folder.path().join("m.sock");
    let first = start_manager(&path, "");
    let join = |name: &str| Domain::builder().name(name).socket(&path).connect();
    let camera = join("camera").unwrap();
    let listener = camera.listen::<Sender>("video").unwrap();
    first.kill();
    let _next = start_manager(&path, "");
    let viewer = join("viewer").unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| viewer.open::<Receiver>("video"));
        let sender = loop {
            match listener.accept_timeout(Duration::from_millis(10)) {
                Ok(sender) => break sender,
                Err(error) if error == ErrorKind::TimedOut || error == ErrorKind::ManagerAway => {}
                Err(error) => panic!("{error}"),
            }
        };
        opening.join().unwrap().unwrap();
        drop(sender);
    });
}
