//! Standard input and output: data that comes by and by is sent at once, and data that cannot be written is reported.

use crate::kit::*;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use tranship_testkit::skipped;

#[test]
fn what_a_pipe_gave_goes_on_before_a_frame_is_full() {
    let manager = Home::new("");
    let (theirs, mut ours) = std::io::pipe().expect("a pipe");
    let mut send = manager.command(&["send", "slow"]);
    let _send = Running::start(send.stdin(theirs));
    drop(send); // its end of the pipe
    let mut recv = manager.command(&["recv", "slow"]);
    let mut recv = Running::start(recv.stdout(Stdio::piped()));
    let mut out = recv.0.stdout.take().expect("its output");
    ours.write_all(b"hello").expect("the pipe");
    let mut came = [0; 5];
    // The pipe is open all the time.
    out.read_exact(&mut came).expect("what was sent");
    assert_eq!(&came, b"hello");
}

#[test]
fn what_is_full_is_named() {
    if !Path::new("/dev/full").exists() {
        return skipped("no /dev/full here");
    }
    let manager = Home::new("");
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut recv = manager.command(&["recv", "films"]);
    let recv = spawn(recv.stdout(full.expect("/dev/full")));
    let from = input_file(&manager);
    let mut send = manager.command(&["send", "films"]);
    let _send = spawn(send.arg(&from));
    recv.said().ends(2, &["standard output"]);
}

#[test]
fn a_place_that_cannot_be_written_is_said_before_anybody_is_waited_for() {
    let manager = Home::new("");
    for path in ["nonexist/x", "m.sock/x", "."] {
        let mut recv = manager.command(&["recv", "films"]);
        spawn(recv.arg(manager.path(path)))
            .said()
            .ends(2, &["opening "]);
    }
}
