//! The process at the other end is killed, replaced or stopped.

use crate::kit::*;
use std::net::SocketAddr;
use std::time::Duration;
use tranship_testkit::{Control, Relay, Watchdog, child};
use tranship_transport::ErrorKind;

// Gives its address away, serves one client, and waits to be killed.
child!(
    fn server(ctl: Control) {
        let at: SocketAddr = ctl.recv().expect("control").expect("start");
        let net = plain();
        let at = net.open(at).expect("open");
        let listener = listen(&net, &format!("{at}/killed"));
        ctl.send(&at).expect("control");
        let mut end = accept(&listener);
        loop {
            assert_eq!(end.look(), None);
            end.wait();
        }
    }
);

#[test]
fn a_process_that_is_killed_is_gone() {
    let _dog = Watchdog::new();
    let one = server().start().expect("start");
    let at: SocketAddr = one.ask(&"127.0.0.1:0");
    let mut end = End::connect(&plain(), &format!("{at}/killed"));
    one.kill();
    let gone = end.over();
    assert_eq!(gone, ErrorKind::PeerGone, "{gone}");
    let why = gone.to_string();
    assert!(why.contains("the process there is gone"), "{why}");
}

#[test]
fn another_process_in_its_place_is_not_the_same() {
    let _dog = Watchdog::new();
    let one = server().start().expect("start");
    let at: SocketAddr = one.ask(&"127.0.0.1:0");
    // The way there is shut until the other process is in its place.
    let relay = Relay::new(at);
    let mut end = End::connect(&plain(), &format!("{}/killed", relay.at));
    relay.shut(true);
    one.kill();
    let other = server().start().expect("start");
    let _: SocketAddr = other.ask(&at);
    relay.shut(false);
    let gone = end.over();
    assert_eq!(gone, ErrorKind::PeerGone, "{gone}");
    let why = gone.to_string();
    assert!(why.contains("another process is there now"), "{why}");
}

// Sends back whatever it is sent, at a port of its own or at another's.
child!(
    fn echo(ctl: Control) {
        let at: Option<SocketAddr> = ctl.recv().expect("control").expect("start");
        let net = plain();
        let mut end = match at {
            Some(at) => End::connect(&net, &format!("{at}/stopped")),
            None => {
                let at = open(&net);
                let listener = listen(&net, &format!("{at}/stopped"));
                ctl.send(&at).expect("control");
                accept(&listener)
            }
        };
        loop {
            match end.try_look() {
                Ok(Some((frame, bytes))) => end.send(&frame, bytes),
                Ok(None) => end.wait(),
                // The test is over.
                Err(_) => return,
            }
        }
    }
);

/// Processes are stopped for longer than the idle timeout, whichever of the two had connected, and go on. So do the
/// connections.
#[test]
fn a_process_that_was_stopped_goes_on() {
    let _dog = Watchdog::new();
    let net = plain();
    let mut all = [true, false].map(|it_listens| {
        let other = echo().start().expect("start");
        let (relay, mut end) = match it_listens {
            true => {
                let relay = Relay::new(other.ask(&None::<SocketAddr>));
                let end = End::connect(&net, &format!("{}/stopped", relay.at));
                (relay, end)
            }
            false => {
                let at = open(&net);
                let listener = listen(&net, &format!("{at}/stopped"));
                let relay = Relay::new(at);
                other.send(&Some(relay.at)).expect("send");
                (relay, accept(&listener))
            }
        };
        end.send(&[0], pattern(0, PAGE));
        assert_eq!(end.next().0, [0]);
        other.stop();
        (1..5).for_each(|n| end.send(&[n], pattern(n.into(), PAGE)));
        (other, relay, end)
    });
    let since = std::time::Instant::now();
    let silent = timing().idle_timeout + Duration::from_secs(2);
    // The end that had connected tries it again.
    let again = |all: &[(_, Relay, End); 2]| all[0].1.connections() > 1;
    while since.elapsed() < silent || !again(&all) {
        for (_, _, end) in &mut all {
            assert_eq!(end.look(), None);
        }
        std::thread::yield_now();
    }
    for (other, relay, mut end) in all {
        other.resume();
        for n in 1..5 {
            assert_eq!(end.next(), (vec![n], pattern(n.into(), PAGE)));
        }
        assert!(relay.connections() > 1, "{}", relay.connections());
    }
}
