//! The weather is as configured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tranship_testkit::lab::{self, Lab, Weather};
use tranship_testkit::{Control, Peer, Random, Watchdog, child, skipped};

// Sends back the bytes that it gets.
child!(
    fn echo(ctl: Control) {
        let (namespace, at): (std::path::PathBuf, SocketAddr) =
            ctl.recv().expect("control").expect("start");
        lab::enter(&namespace).expect("enter");
        let listener = TcpListener::bind(at).expect("listen");
        ctl.send(&()).expect("control");
        let (mut one, _) = listener.accept().expect("accept");
        let mut bytes = vec![0; 1 << 16];
        while let Ok(got @ 1..) = one.read(&mut bytes) {
            if one.write_all(&bytes[..got]).is_err() {
                break;
            }
        }
    }
);

// Sends a message and returns the bytes that came back.
child!(
    fn asks(ctl: Control) {
        let (namespace, at): (std::path::PathBuf, SocketAddr) =
            ctl.recv().expect("control").expect("start");
        lab::enter(&namespace).expect("enter");
        let mut one = TcpStream::connect(at).expect("connect");
        ctl.send(&()).expect("control");
        while let Some(bytes) = ctl.recv::<usize>().expect("control") {
            let sent: Vec<u8> = (0..bytes).map(|n| n.to_le_bytes()[0]).collect();
            let mut back = vec![0; bytes];
            let mut writer = one.try_clone().expect("clone");
            std::thread::scope(|scope| {
                scope.spawn(|| writer.write_all(&sent).expect("send"));
                one.read_exact(&mut back).expect("receive");
            });
            ctl.send(&(back == sent)).expect("control");
        }
    }
);

fn hosts(lab: &Lab) -> (Peer, Peer) {
    let at = SocketAddr::from((lab.address(0), 7700));
    let (one, two) = (
        echo().start().expect("start"),
        asks().start().expect("start"),
    );
    one.send(&(lab.namespace(0), at)).expect("send");
    let () = one.expect();
    two.send(&(lab.namespace(1), at)).expect("send");
    let () = two.expect();
    (one, two)
}

#[test]
fn bytes_pass_in_any_weather_but_a_partition() {
    let _dog = Watchdog::new();
    if let Err(why) = lab::possible() {
        return skipped(why);
    }
    let lab = Lab::new(Random::printed("lab")).expect("lab");
    let (_echo, asks) = hosts(&lab);
    let whole = |bytes: usize| {
        asks.send(&bytes).expect("send");
        assert!(asks.expect::<bool>(), "{bytes} bytes came back changed");
    };
    whole(1 << 20);
    let lost = lab.frames().1;
    assert_eq!(lost, 0);
    lab.weather(Weather {
        loss_per_mille: 10,
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(2),
        partition: false,
    });
    while lab.frames().1 < 5 {
        whole(1 << 18);
    }
    lab.weather(Weather {
        partition: true,
        ..Weather::default()
    });
    asks.send(&1000usize).expect("send");
    let loses_two = || {
        let (_, lost) = lab.frames();
        while lab.frames().1 < lost + 2 {
            std::thread::yield_now();
        }
        lab.frames().0
    };
    // Frames that were delayed before are out by then: the second is lost only when the first was waited for in vain.
    let passed = loses_two();
    assert_eq!(loses_two(), passed, "nothing passes");
    lab.weather(Weather::default());
    assert!(asks.expect::<bool>());
}
