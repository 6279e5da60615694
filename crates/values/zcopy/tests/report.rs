//! Counts of a process's senders are visible from outside, while it runs and afterwards.

mod kit;

use kit::{dog, pair, pattern};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use tranship_testkit::Random;
use tranship_zcopy::{Arena, Cause, Piece, Report, ReportError, Sender, Socket, Way, Why};

/// A child that sends, says so, and stays until it is told to leave.
struct Sending {
    pid: u32,
    child: kit::Child,
    line: UnixStream,
}

fn sending(folder: Option<&std::path::Path>) -> Sending {
    // The parent has a page too: the child's is another one.
    let _parents = Sender::new().expect("sender");
    let (mut line, mut theirs) = UnixStream::pair().expect("pair");
    let child = kit::fork(|| {
        if let Some(folder) = folder {
            // SAFETY: the child has one thread.
            unsafe { std::env::set_var("TRANSHIP_ZCOPY_EXPLAIN", folder) };
        }
        send_some();
        theirs.write_all(&std::process::id().to_le_bytes()).is_ok() && theirs.read(&mut [0]).is_ok()
    });
    drop(theirs);
    let mut pid = [0; 4];
    line.read_exact(&mut pid).expect("the child sends");
    Sending {
        pid: u32::from_le_bytes(pid),
        child,
        line,
    }
}

impl Sending {
    fn end(mut self) {
        self.line.write_all(&[0]).expect("the child listens");
        assert!(self.child.succeeds());
    }
}

/// Ten sends by vmsplice of 8 KiB and a header, two of a value that is not protected, five that are too small to go by
/// reference unless told to; one sender of two is gone at the end.
fn send_some() {
    let arena = Arena::new().expect("arena");
    let values: Vec<_> = (0..64)
        .map(|seed| arena.copy(&pattern(seed, 8192)).expect("room"))
        .collect();
    arena.protect();
    let young = arena.copy(&[7; 3000]).expect("room");
    let connection = pair::tcp();
    let mut socket = Socket::new(connection.near()).expect("socket");
    let take = |len: usize| {
        connection
            .far()
            .read_exact(&mut vec![0; len])
            .expect("read");
    };
    let mut sender = Sender::new().expect("sender");
    sender.force(Some(Way::Splice));
    for value in &values[..10] {
        let pieces = [Piece::Bytes(b"head"), Piece::Value(value)];
        let sent = sender.send(connection.near(), &mut socket, &pieces);
        take(sent.expect("room"));
    }
    for _ in 0..2 {
        let sent = sender.send(connection.near(), &mut socket, &[Piece::Value(&young)]);
        take(sent.expect("room"));
    }
    drop(sender);
    // It takes over the place of the other, and adds to its counts.
    let mut sender = Sender::new().expect("sender");
    for value in &values[..5] {
        let sent = sender.send(connection.near(), &mut socket, &[Piece::Value(value)]);
        take(sent.expect("room"));
    }
    std::mem::forget(sender);
}

fn check(report: &Report) {
    assert_eq!(report.counts.sends, 17, "{report:#?}");
    let took = |way, why| {
        let one = report
            .took
            .iter()
            .find(|one| one.socket == "loopback" && one.way == way && one.why == why);
        one.map_or((0, 0), |one| (one.sends, one.bytes))
    };
    assert_eq!(took(Way::Splice, Why::Told), (10, 10 * 8196));
    assert_eq!(took(Way::Copy, Why::Nothing), (2, 6000));
    assert_eq!(took(Way::Copy, Why::Small), (5, 5 * 8192));
    assert_eq!(report.took.len(), 3, "{report:#?}");
    let copied = |cause| {
        let one = report.copied.iter().find(|one| one.cause == cause);
        one.map_or(0, |one| one.bytes)
    };
    assert_eq!(
        (copied(Cause::Plain), copied(Cause::Unprotected)),
        (40, 6000)
    );
    let bytes = report.counts.copied_bytes + report.counts.referred_bytes;
    assert_eq!(bytes, 10 * 8196 + 6000 + 5 * 8192);
    let all: u64 = report.copied.iter().map(|one| one.bytes).sum();
    assert_eq!(all, report.counts.copied_bytes);
}

#[test]
fn a_running_process_is_read_from_outside() {
    let _dog = dog();
    let sending = sending(None);
    let report = Report::of_process(sending.pid).expect("a report");
    check(&report);
    assert_eq!((report.pid, report.senders), (sending.pid, 1));
    assert!(Report::processes().contains(&sending.pid));
    sending.end();
    let own = std::process::id();
    let report = Report::of_process(own).expect("a report");
    assert_eq!(
        (report.pid, report.counts.sends),
        (own, 0),
        "the child's are its own"
    );
    // The file system of processes begins with 1, the kernel's threads have nothing.
    let nobody = Report::of_process(u32::MAX).expect_err("no such process");
    assert!(matches!(nobody, ReportError::NoProcess(_)), "{nobody}");
}

#[test]
fn a_process_leaves_what_it_did_in_a_folder() {
    let _dog = dog();
    let folder = tranship_testkit::folder().expect("a folder");
    let folder = folder.path();
    let sending = sending(Some(folder));
    let pid = sending.pid;
    check(&Report::of_process(pid).expect("a report"));
    sending.end();
    let files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let [file] = &files[..] else {
        panic!("one file: {files:?}")
    };
    assert!(file.to_string_lossy().ends_with(&format!(".{pid}.zcopy")));
    check(&Report::of_file(file).expect("a report"));

    // Whatever the file contains, reading it does no harm.
    let mut bytes = std::fs::read(file).expect("read");
    let bent = folder.join("bent");
    let mut random = Random::printed("bent");
    for _ in 0..20 {
        for _ in 0..2000 {
            let at = 64 + random.below(bytes.len() as u64 - 64);
            bytes[usize::try_from(at).expect("small")] = random.next().to_le_bytes()[0];
        }
        std::fs::write(&bent, &bytes).expect("write");
        let report = Report::of_file(&bent).expect("a report of sorts");
        assert!(!format!("{report:?}").is_empty());
    }
    bytes[8] = 99;
    std::fs::write(&bent, &bytes).expect("write");
    let error = Report::of_file(&bent).expect_err("another version");
    assert!(error.to_string().contains("version 99"), "{error}");
    std::fs::write(&bent, &bytes[..5000]).expect("write");
    assert!(Report::of_file(&bent).is_err());
    std::fs::write(&bent, b"#!/bin/sh").expect("write");
    let error = Report::of_file(&bent).expect_err("no page");
    assert!(matches!(error, ReportError::NotAPage(_)), "{error}");
}
