//! Two hosts, each a network namespace, with bad weather between them.

use crate::lost::pattern;
use crate::{DAY, domain, moved, timing};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tranship_bulk::{Channel, Direction, EndOptions, Event, Trust};
use tranship_testkit::lab::{self, Lab, Weather};
use tranship_testkit::{Control, Peer, Random, Watchdog, child, skipped};
use tranship_transport::Net;
use tranship_transport::net::{Credentials, certificate};

const BYTES: usize = 1 << 18;

/// Where a child is, whom it talks to, and its credentials, if it has any.
type Start = (PathBuf, SocketAddr, Option<[String; 3]>);

fn net(credentials: Option<[String; 3]>) -> Net {
    let made = match credentials {
        None => Net::plain_on_trusted_network(timing()),
        Some([ca, cert, key]) => {
            let own = Credentials::new(ca.as_bytes(), cert.as_bytes(), key.as_bytes());
            Net::tls(own.expect("credentials"), timing())
        }
    };
    made.expect("net")
}

/// The next event but those about pools.
fn event(end: &Channel) -> Event {
    loop {
        match end.wait_event(Duration::from_secs(1)).expect("event") {
            Some(Event::PoolAssigned(_) | Event::Bound(Ok(_))) | None => {}
            Some(Event::Gone(_)) => panic!("gone: {:?}", end.why()),
            Some(event) => return event,
        }
    }
}

// Sends as many buffers as it is told, each with a pattern, and gets them back.
child!(
    fn source(ctl: Control) {
        let (namespace, at, credentials): Start = ctl.recv().expect("control").expect("start");
        lab::enter(&namespace).expect("enter");
        let a = domain(&net(credentials));
        let options = EndOptions::new(Trust::None).meta_bytes(8);
        let end = a.create(&format!("net:{at}/far"), Direction::Source, options);
        let end = end.expect("create");
        ctl.send(&()).expect("control");
        assert!(matches!(end.block_on(end.event()), Ok(Event::Bound(Ok(_)))));
        let pool = a.pool(8, BYTES as u64, false).expect("pool");
        let asked = end.assign(pool.info().id).expect("assign");
        assert_eq!(end.block_on(asked), Ok(()));
        let mut sent = 0u32;
        let mut back = 0u32;
        while let Some(rounds) = ctl.recv::<u32>().expect("control") {
            let until = back + rounds;
            while back < until {
                while sent < until
                    && let Ok(mut buffer) = pool.alloc()
                {
                    buffer.write(0, &pattern(sent, BYTES)).expect("write");
                    let moved = end.move_(buffer, &sent.to_le_bytes());
                    assert!(moved.is_ok(), "{moved:?}: {:?}", end.why());
                    sent += 1;
                }
                let (buffer, meta) = moved(event(&end)).expect("a buffer");
                assert_eq!(meta, back.to_le_bytes());
                drop(buffer);
                back += 1;
            }
            ctl.send(&back).expect("control");
        }
    }
);

// Looks at each buffer, and passes it back.
child!(
    fn sink(ctl: Control) {
        let (namespace, at, credentials): Start = ctl.recv().expect("control").expect("start");
        lab::enter(&namespace).expect("enter");
        let b = domain(&net(credentials));
        let options = EndOptions::new(Trust::None);
        let (end, bound) = b
            .bind(&format!("net:{at}/far"), options)
            .unwrap_or_else(|code| panic!("{code}"));
        assert_eq!(end.block_on(bound), Ok(()));
        ctl.send(&()).expect("control");
        for round in 0u32.. {
            let (buffer, meta) = moved(event(&end)).expect("a buffer");
            assert_eq!(meta, round.to_le_bytes());
            assert!(buffer.bytes().expect("bytes") == pattern(round, BYTES));
            end.pass(buffer, &meta).expect("pass");
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
    one.send(&start(0)).expect("send");
    let () = one.expect();
    two.send(&start(1)).expect("send");
    let () = two.expect();
    (one, two)
}

#[test]
fn everything_arrives_in_any_weather() {
    let _dog = Watchdog::new();
    if let Err(why) = lab::possible() {
        return skipped(why);
    }
    let rounds = if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        300
    } else {
        40
    };
    for tls in [false, true] {
        let lab = Lab::new(Random::printed("weather")).expect("lab");
        let (source, _sink) = hosts(&lab, tls);
        let bad = Weather {
            loss_per_mille: 10,
            delay: Duration::from_millis(2),
            jitter: Duration::from_millis(3),
            partition: false,
        };
        let mut all = 0;
        let mut move_some = |lab: &Lab| {
            source.send(&rounds).expect("send");
            let before = lab.frames().1;
            all += rounds;
            before
        };
        // Fine, then bad.
        move_some(&lab);
        assert_eq!(source.expect::<u32>(), rounds);
        lab.weather(bad);
        move_some(&lab);
        assert_eq!(source.expect::<u32>(), 2 * rounds);
        assert!(lab.frames().1 > 0, "nothing was lost");
        // A partition in the middle, for so long that both ends give the connection up.
        let before = move_some(&lab);
        let (passed, _) = lab.frames();
        while lab.frames().0 < passed + 200 {
            std::thread::yield_now();
        }
        lab.weather(Weather {
            partition: true,
            ..bad
        });
        let since = std::time::Instant::now();
        while since.elapsed() < timing().silence + 4 * timing().beat || lab.frames().1 < before + 4
        {
            std::thread::yield_now();
        }
        lab.weather(bad);
        assert_eq!(source.expect::<u32>(), all);
    }
}
