//! Connections that are lost, and the messages that survive it.

use crate::kit::*;
use std::time::Duration;
use tranship_testkit::{Random, Relay, Watchdog};
use tranship_transport::ErrorKind;
use tranship_transport::net::{Net, Timing};

/// Connections are cut at random places in the stream, in the middle of frames and of buffers. Everything arrives,
/// once, in order, with its bytes, and comes back. Each frame is reported as taken once.
#[test]
fn nothing_is_lost_or_twice_over_cut_connections() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("cut connections");
    let [plain, tls] = both();
    // Small buffers are cut in their frames, large ones in their bytes.
    for (net, bytes, rounds) in [
        (&plain, 1 << 20, 100),
        (&tls, 1 << 18, 100),
        (&plain, PAGE, 200),
        (&tls, PAGE, 200),
    ] {
        let at = open(net);
        let relay = Relay::new(at);
        let [mut one, mut other] = pair(net, at, relay.at, "cut");
        let (mut sent, mut got, mut back) = (0u32, 0u32, 0u32);
        let mut done = [Vec::new(), Vec::new()];
        // On until there were enough cuts, whatever the dice say.
        let goes_on = |sent| sent < rounds || relay.connections() <= 3;
        while back < sent || goes_on(sent) {
            if goes_on(sent) && sent - back < 4 {
                one.send(&sent.to_le_bytes(), pattern(sent, bytes));
                sent += 1;
                if random.one_in(8) {
                    relay.cut_after(1 + random.below(3 * bytes as u64));
                }
            }
            while let Some((frame, came)) = other.look() {
                assert_eq!(frame, got.to_le_bytes());
                assert!(came == pattern(got, bytes), "round {got}");
                other.send(&frame, came);
                got += 1;
            }
            while let Some((frame, came)) = one.look() {
                assert_eq!(frame, back.to_le_bytes());
                assert!(came == pattern(back, bytes), "back in round {back}");
                back += 1;
            }
            done[0].extend(one.done());
            done[1].extend(other.done());
            std::thread::yield_now();
        }
        let all: Vec<u64> = (0..sent.into()).collect();
        while done.iter().any(|done| done.len() < all.len()) {
            assert_eq!((one.look(), other.look()), (None, None), "nothing twice");
            done[0].extend(one.done());
            done[1].extend(other.done());
            std::thread::yield_now();
        }
        assert_eq!(done, [all.clone(), all]);
    }
}

/// The network holds everything back for longer than the idle timeout, and then is there again.
#[test]
fn a_partition_shorter_than_the_grace_is_survived() {
    let _dog = Watchdog::new();
    for net in both() {
        let at = open(&net);
        let relay = Relay::new(at);
        let mut both = pair(&net, at, relay.at, "partition");
        relay.hold(true);
        both[0].send(b"held", pattern(7, PAGE));
        // The silent connection is given up, and another one is tried: that is the sign.
        while relay.connections() == 1 {
            assert!(both.iter_mut().all(|end| end.look().is_none()));
            std::thread::yield_now();
        }
        assert_eq!(both[0].done(), [0u64; 0]);
        relay.hold(false);
        let came = (b"held".to_vec(), pattern(7, PAGE));
        assert_eq!(both[1].next(), came);
        while both[0].done().is_empty() {
            assert!(both.iter_mut().all(|end| end.look().is_none()));
            std::thread::yield_now();
        }
    }
}

/// The connection stays away for longer than the grace.
#[test]
fn a_partition_longer_than_the_grace_is_the_end_with_words() {
    let _dog = Watchdog::new();
    let short = Timing {
        idle_timeout: Duration::from_millis(900),
        grace: Duration::from_millis(800),
        handshake: Duration::from_millis(500),
        ..timing()
    };
    let net = Net::plain(short).expect("net");
    let at = open(&net);
    let relay = Relay::new(at);
    let mut both = pair(&net, at, relay.at, "long");
    relay.hold(true);
    both[0].send(b"in vain", pattern(1, PAGE));
    for end in &mut both {
        let gone = end.over();
        assert_eq!(gone, ErrorKind::PeerGone, "{gone}");
        let why = end.transport.why().expect("words");
        assert!(
            why.contains("no connection for") && why.contains("at most 0.8 s"),
            "{why}"
        );
        let refused = end.try_send(b"more", Vec::new()).expect_err("it is over");
        assert_eq!(refused, ErrorKind::PeerGone, "{refused}");
        assert_eq!(end.done(), [0u64; 0], "nobody has taken it");
    }
}

/// For longer than the idle timeout nothing at all happens on one connection, and a program does not take the messages
/// of another. Neither end counts as silent, because the library sends keepalives.
#[test]
fn who_does_not_look_is_not_gone() {
    let _dog = Watchdog::new();
    for net in [
        Net::plain(calm()).expect("net"),
        Net::tls(credentials(), calm()).expect("net"),
    ] {
        let at = open(&net);
        let relays = [(); 2].map(|()| Relay::new(at));
        let mut idle = pair(&net, at, relays[0].at, "idle");
        let [mut busy, mut looks_late] = pair(&net, at, relays[1].at, "busy");
        for round in 0..4 {
            busy.send(b"wait", pattern(round, 1 << 20));
        }
        // Waits for so many keepalives of both ends that the idle timeout would have been over.
        let (before, keepalive) = (relays[0].pieces(), calm().keepalive.as_millis());
        while u128::from(relays[0].pieces() - before) * keepalive
            < 3 * calm().idle_timeout.as_millis()
        {
            assert_eq!(busy.look(), None);
            busy.wait();
        }
        assert_eq!(relays.map(|relay| relay.connections()), [1, 1]);
        talk(&mut idle, 9, PAGE);
        for round in 0..4 {
            assert!(looks_late.next().1 == pattern(round, 1 << 20));
        }
    }
}

/// One port, many names and clients; a name may be offered again and again.
#[test]
fn a_port_serves_many_names_and_clients() {
    let _dog = Watchdog::new();
    let net = Net::tls(credentials(), timing()).expect("net");
    let at = open(&net);
    let mut pairs: Vec<_> = (0..20)
        .map(|n| pair(&net, at, at, &format!("name {}", n % 4)))
        .collect();
    for (round, both) in (0..).zip(&mut pairs) {
        talk(both, round, PAGE);
    }
}

/// Frames that were sent before an end let go arrive, and so does its farewell.
#[test]
fn a_farewell_comes_after_everything_else() {
    let _dog = Watchdog::new();
    for net in both() {
        let at = open(&net);
        let [mut one, mut other] = pair(&net, at, at, "farewell");
        for n in 0..64u8 {
            one.send(&[n], vec![n; 1 << 16]);
        }
        drop(one);
        for n in 0..64u8 {
            assert!(other.next() == (vec![n], vec![n; 1 << 16]));
        }
        let gone = other.over();
        assert_eq!(gone, ErrorKind::PeerGone, "{gone}");
        let why = other.transport.why().expect("words");
        assert!(why.contains("has ended the channel"), "{why}");
    }
}
