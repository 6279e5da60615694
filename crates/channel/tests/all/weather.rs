//! Two hosts, each a network namespace, with bad weather between them.

use crate::kit::*;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_core::{Domain, LinkOptions, Role};
use tranship_testkit::lab::{self, Lab, Weather};
use tranship_testkit::{Control, Peer, Random, child, skipped};
use tranship_transport::Net;
use tranship_transport::net::{Credentials, Timing, certificate};

const DAY: Duration = Duration::from_secs(86400);
const BYTES: usize = 1 << 18;
/// Messages of which no word has come back yet.
const AHEAD: u64 = 8;

/// Where a child is, whom it talks to, and its credentials, if it has any.
type Start = (PathBuf, SocketAddr, Option<[String; 3]>);

/// Silence is noticed soon.
fn soon() -> Timing {
    Timing {
        silence: Duration::from_secs(2),
        ..timing()
    }
}

/// A domain of a host of its own, and the other one's address.
fn host(ctl: &Control) -> (Domain, String) {
    let (namespace, at, credentials): Start = ctl.recv().expect("control").expect("start");
    lab::enter(&namespace).expect("enter");
    let domain = Domain::builder().helper_thread(true).embedded();
    let domain = domain.expect("embedded");
    let (scheme, net) = match credentials {
        None => ("tcp+plain", Net::plain_on_trusted_network(soon())),
        Some([ca, cert, key]) => {
            let own = Credentials::new(ca.as_bytes(), cert.as_bytes(), key.as_bytes());
            ("tcp", Net::tls(own.expect("credentials"), soon()))
        }
    };
    add(&domain, scheme, Arc::new(net.expect("net")));
    (domain, format!("{scheme}:{at}/far"))
}

// Sends as many messages as it is told, and hears a word of each.
child!(
    fn source(ctl: Control) {
        let (domain, address) = host(&ctl);
        let listener = domain.listen(&address, Role::Source).expect("listen");
        ctl.send(&()).expect("control");
        let mut to = listener.accept_sender().expect("accept");
        let pool = pool(&domain, 16 * BYTES as u64);
        let (mut sent, mut heard) = (0, 0);
        while let Some(rounds) = ctl.recv::<u64>().expect("control") {
            let until = heard + rounds;
            while heard < until {
                while sent < until && sent - heard < AHEAD {
                    let buf = pool.alloc_from(&pattern(sent, BYTES)).expect("alloc");
                    match sent % 2 {
                        0 => to.send_with(buf, sent).expect("send"),
                        _ => to.move_buffer_with(buf, sent).expect("move"),
                    }
                    sent += 1;
                }
                match to.try_recv_control().expect("no lie") {
                    Some(word) => assert_eq!(word.meta, heard),
                    None => {
                        assert!(!to.is_peer_gone(), "after {heard} of {sent}");
                        std::thread::yield_now();
                        continue;
                    }
                }
                heard += 1;
            }
            ctl.send(&heard).expect("control");
        }
    }
);

// Looks at each message, and says a word of it.
child!(
    fn sink(ctl: Control) {
        let (domain, address) = host(&ctl);
        let copies = pool(&domain, 16 * BYTES as u64);
        let options = LinkOptions::new().snapshots(copies.id());
        let from = domain.open_receiver_with(&address, options);
        let mut from = from.expect("open");
        ctl.send(&()).expect("control");
        for round in 0.. {
            let message = from.recv().expect("recv");
            assert_eq!(message.meta, round);
            assert!(message.to_vec() == pattern(round, BYTES), "round {round}");
            from.send_control(b"", round).expect("room");
        }
    }
);

fn hosts(lab: &Lab, tls: bool) -> (Peer, Peer) {
    let ca = certificate::authority("lab", DAY).expect("authority");
    let at = SocketAddr::from((lab.address(0), 7700));
    let start = |side: usize| -> Start {
        let credentials = tls.then(|| {
            let address = lab.address(side).to_string();
            let own = certificate::issue(&ca, &format!("host{side}"), &[address], DAY);
            let own = own.expect("issue");
            [ca.cert.clone(), own.cert, own.key]
        });
        (lab.namespace(side), at, credentials)
    };
    let (one, two) = (
        source().start().expect("start"),
        sink().start().expect("start"),
    );
    one.ask::<()>(&start(0));
    two.ask::<()>(&start(1));
    (one, two)
}

#[test]
fn everything_arrives_in_any_weather() {
    let _dog = dog();
    if let Err(why) = lab::possible() {
        return skipped(why);
    }
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let rounds: u64 = if torture { 300 } else { 40 };
    for tls in [false, true] {
        let lab = Lab::new(Random::printed("weather")).expect("lab");
        let (source, _sink) = hosts(&lab, tls);
        let bad = Weather {
            loss_per_mille: 10,
            delay: Duration::from_millis(2),
            jitter: Duration::from_millis(3),
            partition: false,
        };
        // Fine, then bad.
        assert_eq!(source.ask::<u64>(&rounds), rounds);
        lab.weather(bad);
        assert_eq!(source.ask::<u64>(&rounds), 2 * rounds);
        let (passed, lost) = lab.frames();
        assert!(lost > 0, "nothing was lost");
        // A partition in the middle, for so long that both ends give the connection up.
        source.send(&rounds).expect("send");
        while lab.frames().0 < passed + 200 {
            std::thread::yield_now();
        }
        lab.weather(Weather {
            partition: true,
            ..bad
        });
        let since = Instant::now();
        while since.elapsed() < soon().silence + 4 * soon().beat || lab.frames().1 < lost + 4 {
            std::thread::yield_now();
        }
        lab.weather(bad);
        assert_eq!(source.expect::<u64>(), 3 * rounds);
    }
}
