//! Connections that are lost, and the messages that survive it.

use crate::kit::*;
use tranship_testkit::{Relay, Watchdog};
use tranship_transport::ErrorKind;
use tranship_transport::net::Net;

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
