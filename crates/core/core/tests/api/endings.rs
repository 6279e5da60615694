//! Closed in order, given up, or dead: the receiver is told which, and the sender whether all was taken.

use crate::kit::*;
use std::path::PathBuf;
use std::time::Duration;
use tranship_core::error::NotTaken;
use tranship_core::{ChannelOptions, Domain, Error, ErrorKind, Receiver, Sender, Wait};
use tranship_testkit::{Control, child};

const MESSAGES: u8 = 5;

child!(
    /// Sends under `x`, and closes in order.
    fn source(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("source").socket(path).connect();
        let domain = domain.unwrap();
        let pool = pool(&domain, 1);
        let listener = domain.listen::<Sender>("x").unwrap();
        let mut sender = listener.accept().unwrap();
        for n in 0..MESSAGES {
            sender.send(filled(&pool, KIB, n)).unwrap();
        }
        drop(sender);
        ctl.send(&()).unwrap();
        let _end: Option<()> = ctl.recv().unwrap();
    }
);

/// Messages of a process that dies at this point, and the end that the receiver sees.
fn left_by(died_at: &str) -> (u8, Error) {
    let (_a, b) = domains();
    let process = source().env("TRANSHIP_CRASH_AT", died_at).start();
    let process = process.expect("a child");
    process
        .send(&b.socket_path())
        .expect("a child that listens");
    let mut receiver = b.open::<Receiver>("x").expect("open");
    let mut taken = 0;
    loop {
        match receiver.recv() {
            Ok(message) => {
                assert_eq!(buf(message).to_vec(), vec![taken; KIB]);
                taken += 1;
            }
            Err(error) => {
                let again = receiver.recv().expect_err("for good");
                assert_eq!(again.kind(), error.kind());
                return (taken, error);
            }
        }
    }
}

#[test]
fn who_dies_before_it_closes_has_not_closed() {
    let _dog = dog();
    for (at, sent) in [
        ("send.after_publish:1", 1),
        ("send.after_publish:3", 3),
        ("send.after_sent:5", 4),
        ("send.after_publish:5", 5),
    ] {
        let (taken, error) = left_by(at);
        assert_eq!(
            (taken, error.kind()),
            (sent, ErrorKind::PeerDied),
            "{at}: {error}"
        );
        assert!(error.to_string().contains("may not be all"), "{error}");
    }
}

#[test]
fn who_dies_after_it_has_closed_has_closed() {
    let _dog = dog();
    let (taken, error) = left_by("close.after_flag");
    assert!(error.kind() == ErrorKind::PeerGone, "{error}");
    assert_eq!((taken, error.kind()), (MESSAGES, ErrorKind::PeerGone));
}

#[test]
fn who_gives_up_or_panics_has_not_closed() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 1);
    for panics in [false, true] {
        let (mut sender, mut receiver) = link(&a, &b, "x");
        sender.send(filled(&pool, KIB, 1)).expect("send");
        if panics {
            let thread = std::thread::spawn(move || {
                let _sender = sender;
                std::panic::panic_any(());
            });
            thread.join().expect_err("a panic");
        } else {
            sender.abandon();
        }
        assert_eq!(buf(receiver.recv().expect("recv")).to_vec(), [1; KIB]);
        let error = receiver.recv().expect_err("the end");
        assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
    }
}

#[test]
fn a_sender_hears_whether_all_was_taken() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 1);
    for (n, wait) in [Wait::Sleep, Wait::Spin, Wait::default()]
        .into_iter()
        .enumerate()
    {
        let options = ChannelOptions::new().wait(wait);
        let (mut sender, mut receiver) = link_with(&a, &b, &format!("x{n}"), options);
        sender.wait_taken(None).expect("nothing was sent");
        for n in 0..3 {
            sender.send(filled(&pool, KIB, n)).expect("send");
        }
        receiver.recv().expect("recv");
        let error = sender.wait_taken(Duration::ZERO).expect_err("two are left");
        assert!(
            matches!(
                error.find(),
                Some(&NotTaken {
                    messages: 2,
                    gone: false,
                    ..
                })
            ),
            "{error:?}"
        );
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // It waits for the last one, and hears of it also from a receiver that leaves at once.
        let taken = std::thread::scope(|s| {
            let waiting = s.spawn(|| sender.wait_taken(None));
            receiver.recv().expect("recv");
            receiver.recv().expect("recv");
            drop(receiver);
            waiting.join().expect("no panic")
        });
        taken.expect("all was taken");
    }
}

#[test]
fn a_sender_hears_what_a_receiver_that_is_gone_has_left() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 1);
    for n in 0..3 {
        sender.send(filled(&pool, KIB, n)).expect("send");
    }
    receiver.recv().expect("recv");
    let error = std::thread::scope(|s| {
        let waiting = s.spawn(|| sender.wait_taken(None));
        drop(receiver);
        waiting.join().expect("no panic").expect_err("two are left")
    });
    assert!(
        matches!(
            error.find(),
            Some(&NotTaken {
                messages: 2,
                gone: true,
                ..
            })
        ),
        "{error:?}"
    );
    assert_eq!(error.kind(), ErrorKind::PeerGone);
}

child!(
    /// Takes the first message of `x`, and no more.
    fn sink(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("sink").socket(path).connect();
        let domain = domain.unwrap();
        let mut receiver = domain.open::<Receiver>("x").unwrap();
        let _held = receiver.recv().unwrap();
        ctl.send(&()).unwrap();
        let _end: Option<()> = ctl.recv().unwrap();
    }
);

#[test]
fn a_sender_hears_what_a_receiver_that_was_killed_has_left() {
    let (_dog, a, _b) = pair();
    let pool = pool(&a, 1);
    let listener = a.listen::<Sender>("x").expect("listen");
    let process = sink().start().expect("a child");
    process.send(&a.socket_path()).expect("a child that opens");
    let mut sender = listener.accept().expect("accept");
    for n in 0..3 {
        sender.send(filled(&pool, KIB, n)).expect("send");
    }
    let () = process.expect();
    let error = std::thread::scope(|s| {
        let waiting = s.spawn(|| sender.wait_taken(None));
        process.kill();
        waiting.join().expect("no panic").expect_err("two are left")
    });
    assert!(
        matches!(
            error.find(),
            Some(&NotTaken {
                messages: 2,
                gone: true,
                ..
            })
        ),
        "{error:?}"
    );
    // What it had, and what it left, is memory again.
    drop(sender);
    until(|| pool.alloc_now(CHUNK).is_ok());
}
