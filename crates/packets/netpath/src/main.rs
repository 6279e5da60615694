//! `tranship-netpath`: the echo server and the forwarder as programs, and a laboratory that measures both with iperf3.
//!
//! NOT here: the work on frames (`forward`, `server`), devices (`device`, `tap`).

#![deny(unsafe_code)]

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::sync::atomic::AtomicBool;
use tranship_mbuf::{Calls, ClusterSize, Mbufs};
use tranship_netpath::device::MbufDevice;
use tranship_netpath::forward::{Address, Forwarder, Port};
use tranship_netpath::measure::{self, Load, Measured, Setup};
use tranship_netpath::server::Server;
use tranship_netpath::tap::{Offload, Tap};
use tranship_netpath::{lab, run, tables};

/// A packet path over mbufs: an echo server, a forwarder, and a laboratory to measure them in. Needs root.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serves TCP and UDP echo on port 7 and iperf3 on port 5201 of a TAP device that it makes.
    Echo(Echo),
    /// Forwards between two TAP devices that it makes: a packet to one side's address reaches the other side's peer.
    Forward(Forward),
    /// Measures both with iperf3 in network namespaces of their own, and prints how often each routine was called.
    Lab {
        /// Seconds of each test.
        #[arg(long, default_value_t = 2)]
        seconds: u32,
    },
}

#[derive(Args, Debug)]
struct Echo {
    /// Name of the device.
    #[arg(long, default_value = "echo0")]
    tap: String,
    /// The server's address and prefix.
    #[arg(long, default_value = "10.77.1.1/24")]
    address: String,
    /// Bytes of payload of a frame.
    #[arg(long, default_value_t = 1500)]
    mtu: usize,
    /// Clusters that frames are received into; longer frames are chains, which are linearised.
    #[arg(long, value_enum, default_value_t = Cluster::Std)]
    cluster: Cluster,
}

#[derive(Args, Debug)]
struct Forward {
    /// Names of the two devices.
    #[arg(long, num_args = 2, default_values = ["left0", "right0"])]
    tap: Vec<String>,
    /// The forwarder's own address on each side.
    #[arg(long, num_args = 2, default_values = ["10.77.1.1", "10.77.2.1"])]
    address: Vec<std::net::Ipv4Addr>,
    /// The peer's address on each side.
    #[arg(long, num_args = 2, default_values = ["10.77.1.2", "10.77.2.2"])]
    peer: Vec<std::net::Ipv4Addr>,
    /// Bytes of payload of a frame on each side.
    #[arg(long, num_args = 2, default_values = ["1500", "1500"])]
    mtu: Vec<usize>,
    /// Takes TCP segments of up to 64 KiB from the kernel, with checksums to be completed by it.
    #[arg(long)]
    segments: bool,
    /// Keeps the last packets, sharing their clusters: headers are copied before they are rewritten.
    #[arg(long)]
    mirror: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Cluster {
    /// 2 KiB.
    Std,
    /// 4 KiB.
    Page,
    /// 9 KiB.
    Jumbo9,
    /// 16 KiB.
    Jumbo16,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Echo(options) => echo(&options),
        Command::Forward(options) => forward(&options),
        Command::Lab { seconds } => laboratory(seconds),
    }
}

fn echo(options: &Echo) -> Result<()> {
    let cluster = match options.cluster {
        Cluster::Std => ClusterSize::Std,
        Cluster::Page => ClusterSize::Page,
        Cluster::Jumbo9 => ClusterSize::Jumbo9,
        Cluster::Jumbo16 => ClusterSize::Jumbo16,
    };
    let address = options.address.parse();
    let address =
        address.map_err(|()| anyhow!("{:?} is no address with prefix", options.address))?;
    let tap = Tap::open(&options.tap, Offload::None).with_context(|| options.tap.clone())?;
    let mut device = MbufDevice::new(tap, Mbufs::new()?, options.mtu, cluster);
    let mut server = Server::new(&mut device, [2, 0, 0, 0, 77, 1], address, 1);
    eprintln!(
        "serving {} on {}; `ip link set {0} up` and give it an address",
        options.address, options.tap
    );
    run::serve(&mut server, &mut device, &AtomicBool::new(false)).map(drop)
}

fn forward(options: &Forward) -> Result<()> {
    let offload = if options.segments {
        Offload::Segments
    } else {
        Offload::None
    };
    let port = |side: usize| -> Result<Port<Tap>> {
        let tap =
            Tap::open(&options.tap[side], offload).with_context(|| options.tap[side].clone())?;
        let address = Address {
            ethernet: [2, 0, 0, 0, 77, u8::try_from(side)? + 1],
            ip: options.address[side].octets(),
        };
        Ok(Port::new(
            tap,
            address,
            options.peer[side].octets(),
            options.mtu[side],
        ))
    };
    let mut forwarder = Forwarder::new(Mbufs::new()?, [port(0)?, port(1)?], options.mirror);
    eprintln!(
        "forwarding between {} and {}",
        options.tap[0], options.tap[1]
    );
    run::forward(&mut forwarder, &AtomicBool::new(false)).map(drop)
}

fn laboratory(seconds: u32) -> Result<()> {
    if let Err(missing) = lab::possible() {
        bail!("the laboratory: {missing:#}");
    }
    let (mbufs, before) = (Mbufs::new()?, Calls::now());
    mbufs.record_sizes(true);
    println!(
        "{:<42} {:>10} {:>10} {:>9} {:>7} {:>8} {:>8} {:>8}",
        "", "sent", "received", "pullups", "copying", "cow", "cut", "joined"
    );
    for (what, way, load, setup) in rows(seconds) {
        let row = way(&mbufs, load, setup).with_context(|| what.to_owned())?;
        println!(
            "{what:<42} {:>5.0} Mb/s {:>5.0} Mb/s {:>9} {:>7} {:>8} {:>8} {:>8}",
            row.sent_mbit_s,
            row.received_mbit_s,
            row.pullup.0,
            row.pullup.1,
            row.copied_on_write,
            row.pieces,
            row.reassembled
        );
    }
    println!("\n{}", tables::describe(&mbufs, &before));
    Ok(())
}

type Way = fn(&Mbufs, Load, Setup) -> Result<Measured>;

fn rows(seconds: u32) -> Vec<(&'static str, Way, Load, Setup)> {
    let stream = Load::Tcp {
        message: 32768,
        window: None,
    };
    let back = Load::TcpBack { message: 32768 };
    let datagrams = |message| Load::Udp {
        message,
        rate: Some(500_000_000),
    };
    let setup = Setup {
        seconds,
        ..Setup::default()
    };
    let jumbo = Setup { mtu: 9000, ..setup };
    let mirror = Setup {
        mirror: true,
        ..setup
    };
    let segments = Setup {
        offload: Offload::Segments,
        ..setup
    };
    let cut = Setup {
        mtu: 9000,
        may_fragment: true,
        ..setup
    };
    let join = Setup {
        far_mtu: 9000,
        ..setup
    };
    vec![
        ("echo server, TCP", measure::echo, stream, setup),
        ("echo server, TCP from it", measure::echo, back, setup),
        ("echo server, UDP", measure::echo, datagrams(1400), setup),
        (
            "echo server, TCP, 9000 B frames in chains",
            measure::echo,
            stream,
            jumbo,
        ),
        ("forwarder, TCP", measure::forwarded, stream, setup),
        (
            "forwarder, TCP, copy on write",
            measure::forwarded,
            stream,
            mirror,
        ),
        (
            "forwarder, TCP in segments of 64 KiB",
            measure::forwarded,
            stream,
            segments,
        ),
        (
            "forwarder, UDP of 8000 B cut to 1500 B",
            measure::forwarded,
            datagrams(8000),
            cut,
        ),
        (
            "forwarder, UDP of 8000 B put together",
            measure::forwarded,
            datagrams(8000),
            join,
        ),
    ]
}
