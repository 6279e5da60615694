//! Connections within this machine are not paced.
//!
//! Congestion control that spreads packets over time (BBR) sets a timer for each. Where there is no network the timer
//! costs more than the packet. A connection that was paced when it was accepted stays paced, whatever its options say
//! later. Therefore the listener is changed, and connections to other machines get back the default of the machine.

use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use tranship_sys::stream;

/// First letters of the names of algorithms that pace by themselves.
const PACES: &str = "bbr";

/// Changes that a server has made to the pacing.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// The machine's algorithm, if it paces and the listener has another one.
    usual: Option<String>,
}

impl Pacing {
    /// Prepares a listener before its connections are accepted, also one that another server had.
    pub(super) fn take_off(listener: impl AsFd) -> Pacing {
        let usual = stream::usual_congestion().ok();
        Pacing::instead_of(usual, listener)
    }

    fn instead_of(usual: Option<String>, listener: impl AsFd) -> Pacing {
        let paces = usual.filter(|name| name.starts_with(PACES));
        Pacing {
            // If a sandbox does not allow the option, the connection is only slower.
            usual: paces.filter(|_| stream::hurry(listener).is_ok()),
        }
    }

    /// Prepares a connection that was accepted.
    pub(super) fn welcome(&self, stream: &TcpStream) {
        if self.usual.is_some()
            && let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr())
            && !is_local(own.ip(), peer.ip())
        {
            self.give_back(stream);
        }
    }

    fn give_back(&self, stream: &TcpStream) {
        if let Some(usual) = &self.usual {
            // Every user may choose the default.
            let _ = stream::set_congestion(stream, usual);
        }
    }
}

fn is_local(own: IpAddr, peer: IpAddr) -> bool {
    own == peer || peer.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tranship_testkit::skipped;

    /// Returns a connection of a listener that had this algorithm, on a machine whose default it is.
    fn accepted(algorithm: &str) -> Option<(Pacing, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        if let Err(why) = stream::set_congestion(&listener, algorithm) {
            skipped(format!("{algorithm}: {why}"));
            return None;
        }
        let pacing = Pacing::instead_of(Some(algorithm.to_owned()), &listener);
        let _client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        Some((pacing, listener.accept().expect("accept").0))
    }

    fn has(stream: &TcpStream) -> String {
        stream::congestion(stream).expect("an option")
    }

    #[test]
    fn a_connection_within_this_machine_is_not_paced() {
        let Some((pacing, stream)) = accepted("bbr") else {
            return;
        };
        assert_eq!(has(&stream), "reno");
        pacing.welcome(&stream);
        assert_eq!(has(&stream), "reno");
    }

    #[test]
    fn a_connection_to_another_machine_has_what_is_usual() {
        let Some((pacing, stream)) = accepted("bbr") else {
            return;
        };
        pacing.give_back(&stream);
        assert_eq!(has(&stream), "bbr");
    }

    #[test]
    fn an_algorithm_that_does_not_pace_stays() {
        let Some((pacing, stream)) = accepted("cubic") else {
            return;
        };
        assert_eq!(has(&stream), "cubic");
        pacing.give_back(&stream);
        assert_eq!(has(&stream), "cubic");
    }

    #[test]
    fn a_peer_is_of_this_machine_by_its_address() {
        let local =
            |own: &str, peer: &str| is_local(own.parse().expect("one"), peer.parse().expect("one"));
        assert!(local("127.0.0.1", "127.0.0.2"));
        assert!(local("::ffff:127.0.0.1", "::ffff:127.0.0.2"));
        assert!(local("10.0.0.1", "10.0.0.1"));
        assert!(!local("10.0.0.1", "10.0.0.2"));
    }
}
