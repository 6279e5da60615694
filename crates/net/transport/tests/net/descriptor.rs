//! Programs that wait on nothing but a connection's descriptor.

use crate::kit::*;
use std::time::Duration;
use tranship_sys::epoll::wait_readable;
use tranship_testkit::{Relay, Watchdog};
use tranship_transport::net::{Net, Timing};
use tranship_transport::{Error, ErrorKind};

/// Takes a message; if none is there it arms, and sleeps without a limit.
fn asleep(end: &mut End) -> Result<Came, Error> {
    loop {
        if let Some(came) = end.try_look()? {
            return Ok(came);
        }
        if end.transport.arm(true) {
            let (fd, _) = end.transport.watched();
            assert!(wait_readable(fd, None).expect("wait"));
        }
    }
}

/// The timer thread looks so rarely that it does not help.
fn rarely() -> Timing {
    Timing {
        keepalive: Duration::from_secs(600),
        idle_timeout: Duration::from_secs(3600),
        ..timing()
    }
}

#[test]
fn a_descriptor_tells_of_everything_that_comes() {
    const ROUNDS: u32 = 60;
    let _dog = Watchdog::new();
    let nets = [
        Net::plain(rarely()).expect("net"),
        Net::tls(credentials(), rarely()).expect("net"),
    ];
    for net in nets {
        for bytes in [PAGE, 1 << 20] {
            let at = open(&net);
            let relay = Relay::new(at);
            let [mut one, mut other] = pair(&net, at, relay.at, "descriptor");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let (frame, came) = asleep(&mut other).expect("a frame");
                        assert!(came == pattern(round, bytes), "round {round}");
                        other.send(&frame, Vec::new());
                    }
                    match asleep(&mut other) {
                        Err(gone) => assert_eq!(gone, ErrorKind::PeerGone, "{gone}"),
                        more => panic!("{more:?}"),
                    }
                });
                let mut back = 0;
                for round in 0..ROUNDS {
                    while round - back == 4 {
                        let (frame, _) = asleep(&mut one).expect("a frame");
                        assert_eq!(frame, back.to_le_bytes());
                        back += 1;
                    }
                    one.send(&round.to_le_bytes(), pattern(round, bytes));
                    // The end that connected makes another connection, and both ends are told by it.
                    if round == ROUNDS / 2 {
                        relay.cut_after(bytes as u64 / 2);
                    }
                }
                while back < ROUNDS {
                    let (frame, _) = asleep(&mut one).expect("a frame");
                    assert_eq!(frame, back.to_le_bytes());
                    back += 1;
                }
                drop(one);
            });
            assert!(relay.connections() > 1);
        }
    }
}
