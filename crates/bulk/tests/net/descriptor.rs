//! Programs that wait on nothing but a channel's descriptor.

use crate::lost::pattern;
use crate::relay::Relay;
use crate::{PAGE, assigned, credentials, moved, open, pair, timing};
use std::time::Duration;
use tranship_bulk::{Channel, Event};
use tranship_sys::epoll::wait_readable;
use tranship_testkit::Watchdog;
use tranship_transport::Net;
use tranship_transport::net::Timing;

/// Takes events until there are none, arms, sleeps without a limit.
fn asleep(end: &Channel) -> Event {
    let fd = end.descriptor().expect("a descriptor");
    loop {
        if let Some(event) = end.poll_event().expect("poll") {
            return event;
        }
        if end.arm() {
            assert!(wait_readable(&fd, None).expect("wait"));
        }
    }
}

/// The keeper looks so rarely that it does not help.
fn rarely() -> Timing {
    Timing {
        beat: Duration::from_secs(600),
        silence: Duration::from_secs(3600),
        ..timing()
    }
}

#[test]
fn a_descriptor_tells_of_everything_that_comes() {
    let _dog = Watchdog::new();
    let nets = [
        Net::plain(rarely()).expect("net"),
        Net::tls(credentials(), rarely()).expect("net"),
    ];
    for net in nets {
        for bytes in [PAGE, 1 << 20] {
            let at = open(&net);
            let relay = Relay::new(at);
            let p = pair(&net, at, relay.at, "descriptor");
            let pool = assigned(&p, 4, bytes as u64);
            let rounds = 60u32;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 0..rounds {
                        let (buffer, _) = loop {
                            if let Some(got) = moved(asleep(&p.sink)) {
                                break got;
                            }
                        };
                        let expected = pattern(round, bytes);
                        assert!(buffer.bytes().expect("bytes") == expected, "round {round}");
                        let _ = p.sink.pass(buffer, &[]).expect("pass");
                    }
                    // The last of them is on its way until the other end has taken it.
                    while !matches!(asleep(&p.sink), Event::TeardownBegun) {}
                });
                for round in 0..rounds {
                    let mut buffer = loop {
                        match pool.alloc() {
                            Ok(buffer) => break buffer,
                            Err(_) => drop(asleep(&p.source)),
                        }
                    };
                    buffer.write(0, &pattern(round, bytes)).expect("write");
                    let _ = p.source.move_(buffer, &[]).expect("move");
                    // Who connected makes another connection, and both are told by it.
                    if round == rounds / 2 {
                        relay.cut_after(bytes as u64 / 2);
                    }
                }
                while pool.free() < 4 {
                    drop(asleep(&p.source));
                }
                let _ = p.source.close().expect("close");
            });
            assert!(relay.connections() > 1);
        }
    }
}
