//! Standard input and output: data that comes by and by is sent at once, and data that cannot be written is reported.

use crate::kit::*;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use tranship_testkit::{Watchdog, skipped};

#[test]
fn what_a_pipe_gave_goes_on_before_a_frame_is_full() {
    let manager = Manager::start();
    let (theirs, mut ours) = std::io::pipe().expect("a pipe");
    let mut send = manager.command(&["send", "slow"]);
    let _send = Running(send.stdin(theirs).spawn().expect("send"));
    drop(send); // its end of the pipe
    let mut recv = manager.command(&["recv", "slow"]);
    let mut recv = Running(recv.stdout(Stdio::piped()).spawn().expect("recv"));
    let mut out = recv.0.stdout.take().expect("its output");
    ours.write_all(b"hello").expect("the pipe");
    let mut came = [0; 5];
    // The pipe is open all the time.
    out.read_exact(&mut came).expect("what was sent");
    assert_eq!(&came, b"hello");
}

#[test]
fn what_is_full_is_named() {
    let _dog = Watchdog::new();
    if !Path::new("/dev/full").exists() {
        return skipped("no /dev/full here");
    }
    let manager = Manager::start();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut recv = manager.command(&["recv", "films"]);
    let recv = recv.stdout(full.expect("/dev/full")).stderr(Stdio::piped());
    let recv = Running(recv.spawn().expect("recv"));
    let from = manager.path("in");
    std::fs::write(&from, input()).expect("the input");
    let mut send = manager.command(&["send", "films"]);
    let send = send.arg(&from).stderr(Stdio::null()).spawn();
    let _send = Running(send.expect("send"));
    let (code, said) = ended(recv);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("standard output"), "{said}");
}

#[test]
fn a_place_that_cannot_be_written_is_said_before_anybody_is_waited_for() {
    let manager = Manager::start();
    for path in ["nonexist/x", "m.sock/x", "."] {
        let mut recv = manager.command(&["recv", "films"]);
        let recv = recv.arg(manager.path(path)).stderr(Stdio::piped());
        let (code, said) = ended(Running(recv.spawn().expect("recv")));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("opening "), "{said}");
    }
}
