//! What only a network brings: connections that are lost and made again, ends that fall silent or are replaced, strangers
//! and liars, certificates that do not do.

#[path = "net/certificates.rs"]
mod certificates;
#[path = "net/descriptor.rs"]
mod descriptor;
#[path = "net/floods.rs"]
mod floods;
#[path = "net/liars.rs"]
mod liars;
#[path = "net/lost.rs"]
mod lost;
#[path = "net/relay.rs"]
mod relay;
#[path = "net/weather.rs"]
mod weather;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tranship_bulk::{
    Buffer, Channel, Completion, Direction, Domain, EndOptions, Event, Pool, Trust,
};
use tranship_transport::Net;
use tranship_transport::net::{Credentials, Timing, certificate};

const PAGE: usize = 4096;
const DAY: Duration = Duration::from_secs(86400);

/// Quick enough for tests, slow enough for a loaded machine.
fn timing() -> Timing {
    Timing {
        beat: Duration::from_millis(200),
        silence: Duration::from_secs(2),
        grace: Duration::from_secs(60),
        acquaintance: Duration::from_secs(30),
        linger: Duration::from_secs(30),
    }
}

/// An authority, and credentials of it for this machine.
fn credentials() -> Credentials {
    let ca = certificate::authority("tests", DAY).expect("authority");
    issued(&ca, "tests", &["127.0.0.1"])
}

fn issued(ca: &certificate::Issued, name: &str, addresses: &[&str]) -> Credentials {
    let addresses: Vec<String> = addresses.iter().map(|a| (*a).to_owned()).collect();
    let own = certificate::issue(ca, name, &addresses, DAY).expect("issue");
    Credentials::new(ca.cert.as_bytes(), own.cert.as_bytes(), own.key.as_bytes())
        .expect("credentials")
}

/// One with and one without TLS.
fn both() -> [Net; 2] {
    [
        Net::plain(timing()).expect("net"),
        Net::tls(credentials(), timing()).expect("net"),
    ]
}

fn open(net: &Net) -> SocketAddr {
    net.open("127.0.0.1:0".parse().expect("address"))
        .expect("open")
}

fn domain(net: &Net) -> Domain {
    let domain = Domain::new();
    domain.add_backend("net", Arc::new(net.clone()));
    domain
}

/// Two domains of this process, and a channel from the first to the second, which binds at `through`.
struct Pair {
    a: Domain,
    _b: Domain,
    source: Channel,
    sink: Channel,
}

fn pair(net: &Net, at: SocketAddr, through: SocketAddr, name: &str) -> Pair {
    let (a, b) = (domain(net), domain(net));
    let options = || EndOptions::new(Trust::None).meta_bytes(64);
    let source = a
        .create(&format!("net:{at}/{name}"), Direction::Source, options())
        .expect("create");
    let (sink, bound) = b
        .bind(&format!("net:{through}/{name}"), options())
        .unwrap_or_else(|code| panic!("{code}"));
    until(&[&source, &sink], || bound.result().is_some());
    assert_eq!(bound.result(), Some(Ok(())));
    Pair {
        a,
        _b: b,
        source,
        sink,
    }
}

/// Turns until it is so.
fn until(ends: &[&Channel], so: impl Fn() -> bool) {
    while !so() {
        for end in ends {
            let _ = end.turn();
        }
        std::thread::yield_now();
    }
}

fn assigned(pair: &Pair, buffers: u32, bytes: u64) -> Pool {
    let pool = pair.a.pool(buffers, bytes, false).expect("pool");
    let asked = pair.source.assign(pool.info().id).expect("assign");
    until(&[&pair.source, &pair.sink], || asked.result().is_some());
    assert_eq!(asked.result(), Some(Ok(())));
    pool
}

/// The next event of an end, turning both.
fn next<T>(ends: &[&Channel], of: &Channel, wanted: impl Fn(Event) -> Option<T>) -> T {
    loop {
        for end in ends {
            let _ = end.turn();
        }
        while let Some(event) = of.poll_event().expect("poll") {
            assert!(!matches!(event, Event::Gone(_)), "gone: {:?}", of.why());
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        std::thread::yield_now();
    }
}

fn moved(event: Event) -> Option<(Buffer, Vec<u8>)> {
    match event {
        Event::Moved(buffer, meta) | Event::Passed(buffer, meta) => Some((buffer, meta.to_vec())),
        _ => None,
    }
}

/// Turns until the other end is gone, and says why.
fn gone(end: &Channel) -> String {
    loop {
        match end.wait_event(Duration::from_secs(1)).expect("event") {
            Some(Event::Gone(_)) => return end.why().expect("words about it"),
            _ => std::thread::yield_now(),
        }
    }
}

fn done(all: &[Completion]) -> bool {
    all.iter().all(|one| one.result().is_some())
}
