//! `kill -9` of either process: the other learns it, with words, and keeps nothing.

use crate::kit::*;
use std::sync::Arc;
use std::time::Duration;
use tranship_core::{Body, ChannelOptions, Domain, ErrorKind, Receiver, Sender};
use tranship_testkit::{Control, Exit, child, resource};
use tranship_transport::net::{Net, Timing};

const BYTES: usize = 30_000;

/// Returns a backend that is soon sure that a peer is gone.
fn soon() -> Net {
    let timing = Timing {
        grace: Duration::from_millis(500),
        ..timing()
    };
    Net::plain(timing).expect("net")
}

/// Returns a domain as on another machine: a process with a manager of its own.
fn elsewhere() -> Domain {
    let domain = Domain::embedded().expect("embedded");
    add(&domain, "tcp+plain", Arc::new(soon()));
    domain
}

// Sends, by turns shared and moved, until it is killed.
child!(
    fn sends(ctl: Control) {
        let address: String = ctl.recv().expect("control").expect("start");
        let domain = elsewhere();
        let mut to = domain.open::<Sender>(&address).expect("open");
        let pool = pool(&domain, 4 << 20);
        for number in 0.. {
            let buf = pool.copy(&pattern(number, BYTES)).expect("alloc");
            match number % 2 {
                0 => to.send((buf.freeze(), number)).expect("send"),
                _ => to.send((buf, number)).expect("move"),
            };
        }
    }
);

// Receives a little, says so, and then nothing.
child!(
    fn receives(ctl: Control) {
        let address: String = ctl.recv().expect("control").expect("start");
        let domain = elsewhere();
        let mut from = domain.open::<Receiver>(&address).expect("open");
        for number in 0..20 {
            assert!(from.recv().expect("recv").to_vec() == pattern(number, BYTES));
        }
        ctl.send(&"received").expect("control");
        let _ = ctl.recv::<String>();
    }
);

// Sends a little, closes, and ends at once.
child!(
    fn hurries(ctl: Control) {
        let address: String = ctl.recv().expect("control").expect("start");
        let domain = elsewhere();
        let mut to = domain.open::<Sender>(&address).expect("open");
        to.send(b"all").expect("send");
        drop(to);
        // SAFETY: nothing of this process is wanted any more.
        unsafe { libc::_exit(0) };
    }
);

/// Returns this process's end, at an address that another process can reach.
fn here(name: &str) -> (Domain, String) {
    let domain = Domain::builder().name("here").helper_thread(true);
    let domain = domain.embedded().expect("embedded");
    let net = soon();
    let port = net
        .open("127.0.0.1:0".parse().expect("address"))
        .expect("port");
    add(&domain, "tcp+plain", Arc::new(net));
    (domain, format!("tcp+plain:{port}/{name}"))
}

/// Waits until the process has as many descriptors again as before, once ending threads have ended.
fn until_descriptors_are(before: usize) {
    let count = || resource::count_fds(std::process::id()).expect("descriptors");
    while count() > before {
        std::thread::yield_now();
    }
}

// Receives from senders that are killed. A process of its own: descriptors are counted, and other tests open some.
child!(
    fn outlives_senders(ctl: Control) {
        let (domain, address) = here("killed-sender");
        let copies = pool(&domain, 4 << 20);
        let options = ChannelOptions::new().snapshots(copies.id());
        let listener = domain.listen_with::<Receiver>(&address, options);
        let listener = listener.expect("listen");
        let mut before = None;
        for round in 0..3 {
            let peer = sends().start().expect("start");
            peer.send(&address).expect("control");
            let mut from = listener.accept().expect("accept");
            let mut number = 0;
            let end = loop {
                if number == 40 {
                    peer.kill();
                }
                let message = match from.recv() {
                    Ok(message) => message,
                    Err(end) => break end,
                };
                // Every message that comes is whole.
                assert_eq!(message.word, number);
                assert_eq!(
                    matches!(message.body, Body::BufferMut(_)),
                    number % 2 == 1,
                    "carried"
                );
                assert!(message.to_vec() == pattern(number, BYTES), "{number}");
                number += 1;
            };
            assert!(number >= 40);
            assert_eq!(end.kind(), ErrorKind::PeerDied, "{end}");
            assert!(end.to_string().contains("127.0.0.1:"), "{end}");
            drop((from, peer));
            // Nothing of it is left.
            let most = usize::try_from(copies.max_bytes()).expect("small");
            drop(copies.alloc(most).expect("all of it"));
            let count = resource::count_fds(std::process::id()).expect("descriptors");
            match before {
                Some(before) => until_descriptors_are(before),
                // The first round has made the resources that stay.
                None if round == 1 => before = Some(count),
                None => {}
            }
        }
        ctl.send(&"outlived").expect("control");
    }
);

#[test]
fn a_sender_that_is_killed() {
    let _dog = dog();
    let peer = outlives_senders().start().expect("start");
    assert_eq!(peer.expect::<String>(), "outlived");
    assert_eq!(peer.wait(), Exit::Code(0));
}

/// A process that ends as soon as it has dropped its sender has closed its channel.
#[test]
fn a_sender_whose_process_ends_at_once() {
    let _dog = dog();
    let (domain, address) = here("hurries");
    let listener = domain.listen::<Receiver>(&address).expect("listen");
    for _ in 0..10 {
        let peer = hurries().start().expect("start");
        peer.send(&address).expect("control");
        let mut from = listener.accept().expect("accept");
        assert_eq!(from.recv().expect("recv").to_vec(), b"all");
        let end = from.recv().expect_err("closed");
        assert_eq!(end.kind(), ErrorKind::PeerGone, "{end}");
    }
}

#[test]
fn a_receiver_that_is_killed() {
    let _dog = dog();
    let (domain, address) = here("killed-receiver");
    let listener = domain.listen::<Sender>(&address).expect("listen");
    let pool = pool(&domain, 4 << 20);
    let peer = receives().start().expect("start");
    peer.send(&address).expect("control");
    let mut to = listener.accept().expect("accept");
    let mut killed = false;
    let mut number = 0;
    let error = loop {
        if !killed && number >= 20 && peer.control().is_ready() {
            assert_eq!(peer.expect::<String>(), "received");
            peer.kill();
            killed = true;
        }
        // The receiver stops to receive. So all of our memory is out before the receiver is found to be gone.
        let buf = match pool.alloc_timeout(BYTES, Duration::from_millis(20)) {
            Ok(mut buf) => {
                buf.write(0, &pattern(number, BYTES)).expect("inside");
                buf
            }
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::TimedOut),
                    "{error}"
                );
                match to.status().peer_gone {
                    true => break to.send(b"").expect_err("gone").error,
                    false => continue,
                }
            }
        };
        let sent = match number % 2 {
            0 => to
                .send((buf.freeze(), number))
                .map_err(|failed| failed.error),
            _ => to.send((buf, number)).map_err(|failed| failed.error),
        };
        match sent {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
    assert!(
        error
            .to_string()
            .contains("messages may not have reached it"),
        "{error}"
    );
    drop(to);
    let most = usize::try_from(pool.max_bytes()).expect("small");
    drop(pool.alloc(most).expect("all of it"));
}
