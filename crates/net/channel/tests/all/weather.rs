//! Two hosts, each a network namespace, with bad weather between them.

use crate::kit::*;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_core::{ChannelOptions, Domain, Receiver, Sender};
use tranship_testkit::lab::{self, Lab, Weather};
use tranship_testkit::{Control, Peer, Random, child, skipped};
use tranship_transport::net::{Credentials, Net, Timing, certificate};

const DAY: Duration = Duration::from_secs(86400);
const BYTES: usize = 1 << 17;

/// Place of a child, the address of its peer, and its credentials, if it has any.
type Start = (PathBuf, SocketAddr, Option<[String; 3]>);

/// Silence is noticed soon.
fn soon() -> Timing {
    Timing {
        idle_timeout: Duration::from_secs(2),
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

// Sends as many messages as it is told, and waits until they have been taken.
child!(
    fn source(ctl: Control) {
        let (domain, address) = host(&ctl);
        let listener = domain.listen::<Sender>(&address).expect("listen");
        ctl.send(&()).expect("control");
        let mut to = listener.accept().expect("accept");
        let pool = pool(&domain, 8 * BYTES as u64);
        let mut sent = 0;
        while let Some(rounds) = ctl.recv::<u64>().expect("control") {
            for number in sent..sent + rounds {
                let mut buf = pool.alloc(BYTES).expect("alloc");
                buf.write(0, &pattern(number, BYTES)).expect("inside");
                match number % 2 {
                    0 => to.send((buf.freeze(), number)).expect("send"),
                    _ => to.send((buf, number)).expect("move"),
                };
            }
            sent += rounds;
            to.wait_taken(None).expect("taken");
            ctl.send(&sent).expect("control");
        }
    }
);

// Looks at each message.
child!(
    fn sink(ctl: Control) {
        let (domain, address) = host(&ctl);
        let copies = pool(&domain, 16 * BYTES as u64);
        let options = ChannelOptions::new().snapshots(copies.id());
        let from = domain.open_with::<Receiver>(&address, options);
        let mut from = from.expect("open");
        ctl.send(&()).expect("control");
        for round in 0.. {
            let message = from.recv().expect("recv");
            assert_eq!(message.word, round);
            assert!(message.to_vec() == pattern(round, BYTES), "round {round}");
        }
    }
);

fn hosts(lab: &Lab, tls: bool) -> (Peer, Peer) {
    let ca = certificate::authority("lab", DAY).expect("authority");
    let at = SocketAddr::from((lab.address(0), 7700 + u16::from(tls)));
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
    let lab = Lab::new(Random::printed("weather")).expect("lab");
    let pairs = [false, true].map(|tls| hosts(&lab, tls));
    let send = || {
        for (source, _) in &pairs {
            source.send(&rounds).expect("send");
        }
    };
    let arrives = |so_many: u64| {
        for (source, _) in &pairs {
            assert_eq!(source.expect::<u64>(), so_many);
        }
    };
    let bad = Weather {
        loss_per_mille: 10,
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(3),
        partition: false,
    };
    // Fine, then bad.
    send();
    arrives(rounds);
    lab.weather(bad);
    send();
    arrives(2 * rounds);
    let (passed, lost) = lab.frames();
    assert!(lost > 0, "nothing was lost");
    // A partition in the middle, for so long that all ends give their connections up.
    send();
    while lab.frames().0 < passed + 200 {
        std::thread::yield_now();
    }
    lab.weather(Weather {
        partition: true,
        ..bad
    });
    let since = Instant::now();
    while since.elapsed() < soon().idle_timeout + 4 * soon().keepalive || lab.frames().1 < lost + 4
    {
        std::thread::yield_now();
    }
    lab.weather(bad);
    arrives(3 * rounds);
}
