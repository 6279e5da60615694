//! The echo server and the forwarder against real peers, in network namespaces of their own.

use std::process::Command;
use tranship_mbuf::Mbufs;
use tranship_netpath::lab;
use tranship_netpath::measure::{self, Load, Setup};
use tranship_netpath::tap::Offload;

/// Says whether the laboratory can run here; prints the reason if not.
fn possible() -> bool {
    let missing = lab::possible().err().map(|missing| format!("{missing:#}"));
    let iperf = Command::new("iperf3").arg("--version").output();
    let missing = missing.or(iperf
        .err()
        .map(|error| format!("iperf3 (Debian: iperf3): {error}")));
    if let Some(missing) = &missing {
        tranship_testkit::skipped(format!("no packet went anywhere: {missing}"));
    }
    missing.is_none()
}

/// Waits until all mbufs are back; the zones' own thread may have some in its hands just now.
fn all_back(mbufs: &Mbufs) {
    while mbufs.stats().outstanding() > 0 {
        std::thread::yield_now();
    }
}

/// Ends the test run if something hangs.
fn watchdog() {
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(300));
        eprintln!("watchdog: five minutes are over");
        std::process::abort();
    });
}

const SECOND: Setup = Setup {
    mtu: 1500,
    far_mtu: 1500,
    cluster: tranship_mbuf::ClusterSize::Std,
    offload: Offload::None,
    may_fragment: false,
    mirror: false,
    seconds: 1,
};
const STREAM: Load = Load::Tcp {
    message: 32768,
    window: None,
};
const DATAGRAMS: Load = Load::Udp {
    message: 8000,
    rate: Some(50_000_000),
};

#[test]
fn iperf3_measures_the_echo_server() {
    if !possible() {
        return;
    }
    watchdog();
    let mbufs = Mbufs::new().expect("mbufs");
    let run = |load, setup| measure::echo(&mbufs, load, setup).expect("a measurement");
    assert!(run(STREAM, SECOND).received_mbit_s > 0.0);
    assert!(run(Load::TcpBack { message: 32768 }, SECOND).received_mbit_s > 0.0);
    let small = Load::Udp {
        message: 1400,
        rate: Some(20_000_000),
    };
    assert!(run(small, SECOND).received_mbit_s > 0.0);
    let jumbo = run(
        STREAM,
        Setup {
            mtu: 9000,
            ..SECOND
        },
    );
    assert!(
        jumbo.received_mbit_s > 0.0 && jumbo.linearised > 0,
        "{jumbo:?}"
    );
    all_back(&mbufs);
}

#[test]
fn iperf3_measures_the_forwarder() {
    if !possible() {
        return;
    }
    watchdog();
    let mbufs = Mbufs::new().expect("mbufs");
    let run = |load, setup| measure::forwarded(&mbufs, load, setup).expect("a measurement");
    let plain = run(STREAM, SECOND);
    assert!(
        plain.received_mbit_s > 0.0 && plain.copied_on_write == 0,
        "{plain:?}"
    );
    let mirrored = run(
        STREAM,
        Setup {
            mirror: true,
            ..SECOND
        },
    );
    assert!(
        mirrored.received_mbit_s > 0.0 && mirrored.copied_on_write > 0,
        "{mirrored:?}"
    );
    let segments = run(
        STREAM,
        Setup {
            offload: Offload::Segments,
            ..SECOND
        },
    );
    assert!(segments.received_mbit_s > 0.0, "{segments:?}");
    let cut = run(
        DATAGRAMS,
        Setup {
            mtu: 9000,
            may_fragment: true,
            ..SECOND
        },
    );
    assert!(cut.received_mbit_s > 0.0 && cut.pieces > 0, "{cut:?}");
    let joined = run(
        DATAGRAMS,
        Setup {
            far_mtu: 9000,
            ..SECOND
        },
    );
    assert!(
        joined.received_mbit_s > 0.0 && joined.reassembled > 0,
        "{joined:?}"
    );
    all_back(&mbufs);
}
