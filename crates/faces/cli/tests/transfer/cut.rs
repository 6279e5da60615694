//! Transfers that are cut short: each side that lives on says so, and nothing that is not whole ends with 0.

use crate::kit::*;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::Watchdog;

const FRAME: usize = 4096;

fn dog() -> Watchdog {
    Watchdog::new()
}

fn spawn(command: &mut Command) -> Running {
    Running(command.stderr(Stdio::piped()).spawn().expect("running"))
}

fn sleeps(one: &Running) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", one.0.id())).expect("it runs");
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.starts_with(" S"))
}

/// Returns a sender of the data that is written into the pipe, frame by frame.
fn fed(manager: &Manager) -> (Running, File) {
    let mut send = manager.command(&["send", "x", "--frame", &FRAME.to_string()]);
    let (theirs, ours) = std::io::pipe().expect("a pipe");
    (spawn(send.stdin(theirs)), File::from(OwnedFd::from(ours)))
}

fn recv(manager: &Manager, to: &Path) -> Running {
    spawn(manager.command(&["recv", "x"]).arg(to))
}

/// Feeds so many frames and waits until they have arrived.
fn arrive(feed: &mut File, to: &Path, frames: usize) {
    feed.write_all(&input()[..frames * FRAME])
        .expect("the pipe");
    while std::fs::metadata(to).map_or(0, |m| m.len()) < (frames * FRAME) as u64 {
        std::thread::yield_now();
    }
}

#[test]
fn a_sender_that_is_killed_is_no_end_in_order() {
    let _dog = dog();
    let manager = Manager::start();
    let to = manager.path("out");
    let recv = recv(&manager, &to);
    let (send, mut feed) = fed(&manager);
    arrive(&mut feed, &to, 3);
    drop(send); // kills it
    let (code, said) = ended(recv);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("3 messages (12288 bytes)"), "{said}");
    assert!(said.contains("may not be all"), "{said}");
    assert!(std::fs::read(&to).expect("what arrived") == input()[..3 * FRAME]);
}

#[test]
fn a_sender_that_fails_is_no_end_in_order() {
    let _dog = dog();
    let manager = Manager::start();
    let to = manager.path("out");
    let recv = recv(&manager, &to);
    // A folder can be opened, but not read.
    let folder = File::open(manager.path(".")).expect("a folder");
    let send = spawn(manager.command(&["send", "x"]).stdin(folder));
    let (code, said) = ended(send);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("reading the input"), "{said}");
    let (code, said) = ended(recv);
    assert_eq!(code, Some(4), "{said}");
}

#[test]
fn a_receiver_that_leaves_something_is_no_success_of_the_sender() {
    let _dog = dog();
    let manager = Manager::start();
    // The receiver takes one message and has no more room in its pipe.
    let mut recv = manager.command(&["recv", "x"]);
    let recv = spawn(recv.stdout(Stdio::piped()));
    let from = manager.path("in");
    std::fs::write(&from, input()).expect("the input");
    let mut read = File::open(&from).expect("the input");
    let stdin = read.try_clone().expect("the same file");
    let mut send = manager.command(&["send", "x", "--frame", "1000000"]);
    let mut send = spawn(send.stdin(stdin));
    // The sender has read everything and sleeps: it waits only for the receiver.
    while read.stream_position().expect("a place") < input().len() as u64 || !sleeps(&send) {
        assert_eq!(send.0.try_wait().expect("waiting"), None, "not taken");
    }
    drop(recv); // kills it
    let (code, said) = ended(send);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("not taken: the receiver is gone"), "{said}");

    // A receiver that has enough leaves the rest of the transfer, too.
    let send = spawn(
        manager
            .command(&["send", "x", "--frame", "1000000"])
            .arg(&from),
    );
    let mut recv = manager.command(&["recv", "x", "--count", "2"]);
    let recv = spawn(recv.arg(manager.path("out")));
    assert_eq!(ended(recv).0, Some(0));
    let (code, said) = ended(send);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("receiver"), "{said}");
}
