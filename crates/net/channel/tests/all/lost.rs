//! Connections that are lost under a channel: the programs see nothing of it, or an end with words.

use crate::kit::*;
use crate::messages::{check, send};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tranship_core::{ChannelOptions, Domain, ErrorKind, Receiver, Sender};
use tranship_testkit::{Random, Relay};
use tranship_transport::net::{Net, Timing};

/// A channel between them; one listens `at` this address, and the other opens it `through` another.
fn channel(
    [from, to]: [&Domain; 2],
    sender_listens: bool,
    [at, through]: [&str; 2],
    receives: ChannelOptions,
) -> (Sender, Receiver) {
    thread::scope(|scope| match sender_listens {
        true => {
            let listener = from.listen::<Sender>(at).expect("listen");
            let opened = scope.spawn(|| to.open_with::<Receiver>(through, receives).expect("open"));
            let sender = listener.accept().expect("accept");
            (sender, opened.join().expect("no panic"))
        }
        false => {
            let listener = to.listen_with::<Receiver>(at, receives).expect("listen");
            let opened = scope.spawn(|| from.open::<Sender>(through).expect("open"));
            let receiver = listener.accept().expect("accept");
            (opened.join().expect("no panic"), receiver)
        }
    })
}

/// Connections are cut at random places, whichever end has made them. Every message arrives in its form, once, in
/// order, and so do the messages that go back.
#[test]
fn everything_arrives_over_cut_connections() {
    const MESSAGES: u64 = 300;
    let _dog = dog();
    let mut random = Random::printed("cut channels");
    let world = World::new();
    for (scheme, port, sender_listens) in [
        ("tcp+plain", world.plain, false),
        ("tcp", world.tls, true),
        ("tcp+plain", world.plain, true),
        ("tcp", world.tls, false),
    ] {
        let relay = Relay::new(port);
        let address = format!("{scheme}:{port}/cut");
        let through = format!("{scheme}:{}/cut", relay.at);
        let copies = pool(&world.b, 4 << 20);
        let receives = ChannelOptions::new().snapshots(copies.id());
        let ends = [&world.a, &world.b];
        let at = [&*address, &*through];
        let (mut to, mut from) = channel(ends, sender_listens, at, receives);
        let pool = pool(&world.a, 8 << 20);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut number, mut words) = (0, 0);
                // On until there were enough cuts, whatever the dice say.
                while number < MESSAGES || relay.connections() <= 3 {
                    if random.one_in(8) {
                        relay.cut_after(1 + random.below(60_000));
                    }
                    send(&mut to, &pool, number);
                    number += 1;
                    while let Some(word) = to.try_recv_back().expect("no lie") {
                        assert_eq!((word.word, &*word.to_vec()), (words, &b"word"[..]));
                        words += 1;
                    }
                }
                to.wait_taken(None).expect("all taken");
                while words < number.div_ceil(10) {
                    match to.try_recv_back().expect("no lie") {
                        Some(word) => assert_eq!(word.word, words),
                        None => {
                            thread::yield_now();
                            continue;
                        }
                    }
                    words += 1;
                }
                drop(to);
            });
            let (got, end) = (0..)
                .find_map(|number| match from.recv() {
                    Ok(message) => {
                        check(&address, number, &message);
                        if number % 10 == 0 {
                            from.send_back((b"word", number / 10)).expect("room");
                        }
                        None
                    }
                    Err(end) => Some((number, end)),
                })
                .expect("closed");
            assert_eq!(end.kind(), ErrorKind::PeerGone, "{address}: {end}");
            assert!(got >= MESSAGES, "{address}: {got} messages");
        });
        drop(from);
        for pool in [pool, copies] {
            let most = usize::try_from(pool.max_bytes()).expect("small");
            drop(pool.alloc(most).expect("all of it"));
        }
    }
}

/// Two domains as on two machines, and a way between them that can be held.
struct Apart {
    domains: [Domain; 2],
    relay: Relay,
    addresses: [String; 2],
}

fn apart(timing: Timing, name: &str) -> Apart {
    let net = Net::plain(timing).expect("net");
    let domains = [(); 2].map(|()| {
        let domain = Domain::builder().helper_thread(true).embedded();
        let domain = domain.expect("embedded");
        add(&domain, "tcp+plain", Arc::new(net.clone()));
        domain
    });
    let port = net.open("127.0.0.1:0".parse().expect("address"));
    let port = port.expect("port");
    let relay = Relay::new(port);
    let addresses = [port, relay.at].map(|at| format!("tcp+plain:{at}/{name}"));
    Apart {
        domains,
        relay,
        addresses,
    }
}

/// The network holds everything back for longer than the idle timeout, and then is there again.
#[test]
fn a_partition_shorter_than_the_grace_is_not_seen() {
    let _dog = dog();
    let timing = Timing {
        idle_timeout: Duration::from_secs(2),
        ..timing()
    };
    let apart = apart(timing, "short");
    let [a, b] = &apart.domains;
    let at = [&*apart.addresses[0], &*apart.addresses[1]];
    let (mut to, mut from) = channel([a, b], false, at, ChannelOptions::new());
    let pool = pool(a, 1 << 20);
    apart.relay.hold(true);
    to.send((pool.copy(&pattern(1, 30_000)).expect("alloc"), 1))
        .expect("move");
    to.send((b"held", 2)).expect("send");
    // The silent connection is given up, and another one is tried: that is the sign.
    while apart.relay.connections() == 1 {
        assert!(from.try_recv().expect("recv").is_none());
        assert!(!to.status().peer_gone);
        thread::yield_now();
    }
    apart.relay.hold(false);
    assert!(from.recv().expect("recv").to_vec() == pattern(1, 30_000));
    assert_eq!(from.recv().expect("recv").to_vec(), b"held");
    to.wait_taken(None).expect("taken");
}

/// The connection stays away for longer than the grace. Both programs are told, and messages that were not taken are
/// their sender's again.
#[test]
fn a_partition_longer_than_the_grace_ends_the_channel() {
    let _dog = dog();
    let timing = Timing {
        idle_timeout: Duration::from_millis(900),
        grace: Duration::from_millis(800),
        handshake: Duration::from_millis(500),
        ..timing()
    };
    for sender_listens in [false, true] {
        let apart = apart(timing, "long");
        let [a, b] = &apart.domains;
        let at = [&*apart.addresses[0], &*apart.addresses[1]];
        let (mut to, mut from) = channel([a, b], sender_listens, at, ChannelOptions::new());
        let pool = pool(a, 1 << 20);
        to.send(b"first").expect("send");
        assert_eq!(from.recv().expect("recv").to_vec(), b"first");
        to.wait_taken(None).expect("taken");
        apart.relay.hold(true);
        to.send(pool.copy(&[1; 30_000]).expect("alloc"))
            .expect("move");
        let end = from.recv().expect_err("gone");
        assert_eq!(end.kind(), ErrorKind::PeerDied, "{end}");
        while !to.status().peer_gone {
            thread::yield_now();
        }
        let gone = to.send(b"more").expect_err("gone").error;
        assert_eq!(gone.kind(), ErrorKind::PeerGone, "{gone}");
        let text = gone.to_string();
        assert!(text.contains("1 of 2 messages may not have"), "{text}");
        for error in [end, gone] {
            let text = error.to_string();
            assert!(
                text.contains("no connection for") && text.contains("at most 0.8 s"),
                "{text}"
            );
        }
        drop(to);
        let most = usize::try_from(pool.max_bytes()).expect("small");
        drop(pool.alloc(most).expect("all of it"));
    }
}
