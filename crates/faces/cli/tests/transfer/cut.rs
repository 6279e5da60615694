//! Transfers that are cut short: each side that lives on says so, and nothing that is not whole ends with 0.

use crate::kit::*;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Stdio;
use tranship_testkit::until;

const FRAME: usize = 4096;

fn sleeps(one: &Running) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", one.0.id())).expect("it runs");
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.starts_with(" S"))
}

fn recv(manager: &Home, to: &Path) -> Running {
    spawn(manager.command(&["recv", "x"]).arg(to))
}

/// Feeds so many frames and waits until they have arrived.
fn arrive(feed: &mut impl Write, to: &Path, frames: usize) {
    feed.write_all(&input()[..frames * FRAME])
        .expect("the pipe");
    let arrived = || std::fs::metadata(to).map_or(0, |m| m.len());
    until(|| arrived() >= (frames * FRAME) as u64);
}

#[test]
fn a_sender_that_is_killed_is_no_end_in_order() {
    let manager = Home::new("");
    let to = manager.path("out");
    let recv = recv(&manager, &to);
    let (send, mut feed) = fed(&manager, "x");
    arrive(&mut feed, &to, 3);
    drop(send); // kills it
    recv.said()
        .ends(4, &["3 messages (12288 bytes)", "may not be all"]);
    assert!(std::fs::read(&to).expect("what arrived") == input()[..3 * FRAME]);
}

#[test]
fn a_sender_that_fails_is_no_end_in_order() {
    let manager = Home::new("");
    let to = manager.path("out");
    let recv = recv(&manager, &to);
    // A folder can be opened, but not read.
    let folder = File::open(manager.path(".")).expect("a folder");
    let send = spawn(manager.command(&["send", "x"]).stdin(folder));
    send.said().ends(2, &["reading the input"]);
    recv.said().ends(4, &[]);
}

#[test]
fn a_receiver_that_leaves_something_is_no_success_of_the_sender() {
    let manager = Home::new("");
    // The receiver takes one message and has no more room in its pipe.
    let mut recv = manager.command(&["recv", "x"]);
    let recv = spawn(recv.stdout(Stdio::piped()));
    let from = input_file(&manager);
    let mut read = File::open(&from).expect("the input");
    let stdin = read.try_clone().expect("the same file");
    let mut send = manager.command(&["send", "x", "--frame", "1000000"]);
    let mut send = spawn(send.stdin(stdin));
    // The sender has read everything and sleeps: it waits only for the receiver.
    while read.stream_position().expect("a place") < input().len() as u64 || !sleeps(&send) {
        assert_eq!(send.0.try_wait().expect("waiting"), None, "not taken");
    }
    drop(recv); // kills it
    send.said().ends(4, &["not taken: the receiver is gone"]);

    // A receiver that has enough leaves the rest of the transfer, too.
    let mut send = manager.command(&["send", "x", "--frame", "1000000"]);
    let send = spawn(send.arg(&from));
    let mut recv = manager.command(&["recv", "x", "--count", "2"]);
    let recv = spawn(recv.arg(manager.path("out")));
    recv.said().ends(0, &[]);
    send.said().ends(4, &["receiver"]);
}
