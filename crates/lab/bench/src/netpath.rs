//! `netpath`: iperf3 through a forwarder, and against an echo server, of mbufs (figure 8 of "Network Buffer Allocation in
//! the FreeBSD Operating System", with the paper's sizes). Forwarders with frames in the paper's other allocators
//! (`netbufs`) are measured beside it.
//!
//! A row's time is that of one message, its rate the messages that arrived.

use anyhow::Result;
use std::process::Command;
use std::sync::Arc;
use tranship_items::reaper::{self, Driver};
use tranship_mbuf::{Calls, Mbufs, SIZE_CLASSES};
use tranship_netpath::lab;
use tranship_netpath::measure::{self as network, Load, Setup};
use tranship_netpath::tap::Offload;

use crate::bench::Bench;
use crate::netbufs::{Frame, Lists, PacketSource, Zones};
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

/// Socket and message sizes of the paper's TCP tests, bytes.
const TCP: [(usize, usize); 6] = [
    (57344, 4096),
    (57344, 8192),
    (57344, 32768),
    (32768, 4096),
    (32768, 8192),
    (32768, 32768),
];
/// Message sizes of its UDP tests, bytes.
const UDP: [usize; 3] = [64, 1024, 1472];

type Way = fn(&Mbufs, Load, Setup) -> Result<network::Measured>;

/// The forwarders. The last two take frames of at most 2 KiB.
const SYSTEMS: [(&str, Way); 5] = [
    ("mbufs", network::forwarded),
    ("heap", network::forwarded_on_the_heap),
    ("kernel", network::routed_by_the_kernel),
    ("4.x", |mbufs, load, setup| {
        forwarded_in(Arc::new(Lists::new()?), mbufs, load, setup)
    }),
    ("mballoc", |mbufs, load, setup| {
        reaper::set_driver(Driver::Nobody);
        let measured = Zones::new().and_then(|it| forwarded_in(Arc::new(it), mbufs, load, setup));
        reaper::set_driver(Driver::Thread);
        measured
    }),
];
/// Those that take longer frames, too.
const OF_SEGMENTS: usize = 3;

fn forwarded_in(
    from: Arc<dyn PacketSource>,
    mbufs: &Mbufs,
    load: Load,
    setup: Setup,
) -> Result<network::Measured> {
    network::forwarded_in(mbufs, load, setup, &|room| Frame::take(&from, room))
}

#[derive(Debug, clap::Args)]
pub struct Netpath;

impl Bench for Netpath {
    const REFERENCES: &'static [&'static str] = &["heap", "kernel", "4.x", "mballoc"];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.map(|(name, _)| name).to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        measure(common)
    }
}

fn measure(common: &Common) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if let Err(missing) = lab::possible() {
        eprintln!("SKIPPED: netpath: {missing:#}");
        return Ok(outcome);
    }
    if Command::new("iperf3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: netpath: no iperf3: apt-get install iperf3");
        return Ok(outcome);
    }
    let mbufs = Mbufs::new()?;
    mbufs.record_sizes(true);
    let before = Calls::now();
    let setup = Setup {
        seconds: 1,
        ..Setup::default()
    };
    let segments = Setup {
        offload: Offload::Segments,
        ..setup
    };
    let mut group = |mode, message, load, ways: &[(&'static str, Way, Setup)]| {
        let key = Key::of(mode).payload(message);
        let wanted = ways.iter().filter(|(name, ..)| common.wants(name));
        let cells = wanted.map(|&(system, way, setup)| {
            let mbufs = mbufs.clone();
            Cell::of(system, key.clone(), move |_| {
                let network = way(&mbufs, load, setup)?;
                let bytes = network.received_mbit_s * 1e6 / 8.0;
                Ok(vec![Measured::rate(bytes / message as f64)])
            })
        });
        outcome.group(common.runs(), cells.collect());
    };
    let forwarders = SYSTEMS.map(|(name, way)| (name, way, setup));
    // A run takes a second whatever is asked.
    let (tcp, udp) = match common.is_quick() {
        true => (&TCP[5..], &UDP[2..]),
        false => (&TCP[..], &UDP[..]),
    };
    for &(window, message) in tcp {
        let load = Load::Tcp {
            message,
            window: Some(window),
        };
        let mode = match window {
            57344 => "forward, TCP, sockets of 57344 B",
            _ => "forward, TCP, sockets of 32768 B",
        };
        group(mode, message, load, &forwarders);
    }
    for &message in udp {
        let load = Load::Udp {
            message,
            rate: None,
        };
        group("forward, UDP", message, load, &forwarders);
    }
    let stream = Load::Tcp {
        message: 32768,
        window: None,
    };
    let in_segments: Vec<_> = SYSTEMS[..OF_SEGMENTS]
        .iter()
        .map(|&(name, way)| (name, way, segments))
        .collect();
    group(
        "forward, TCP in segments of 64 KiB",
        32768,
        stream,
        &in_segments,
    );
    group(
        "echo server, TCP",
        32768,
        stream,
        &[("mbufs", network::echo, setup)],
    );
    outcome.rows.extend(counts(&mbufs, &before));
    Ok(outcome)
}

/// Packets by size (the paper's figure 2), and calls of each routine (figure 3).
#[allow(clippy::cast_precision_loss, reason = "counts for people")]
fn counts(mbufs: &Mbufs, before: &Calls) -> Vec<Row> {
    let row = |key: Key, name: &'static str, count: u64| {
        let facts = Facts::from([(name.into(), count as f64)]);
        Row::of("mbufs", key, &[Measured::facts(facts)])
    };
    let stats = mbufs.stats();
    let bounds = SIZE_CLASSES.into_iter().chain([1 << 16]);
    let sizes = bounds.zip(stats.sizes.0);
    let sizes = sizes.map(|(bound, count)| row(Key::of("sizes").payload(bound), "packets", count));
    let calls = Calls::now().since(before);
    let calls = calls.iter().filter(|(.., count)| *count > 0);
    let calls = calls.map(|(_, name, count)| row(Key::of("calls").op(name), "calls", count));
    // The zones count what the routines' fast path does not.
    let zones = [
        ("m_getcl", stats.packets.allocs),
        ("m_get, m_gethdr", stats.mbufs.allocs),
    ];
    let zones = zones.map(|(name, count)| row(Key::of("calls").op(name), "calls", count));
    sizes.chain(calls).chain(zones).collect()
}
