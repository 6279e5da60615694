//! iperf3 against the echo server and through the forwarder, in namespaces of their own.

use crate::device::{Frames, MbufDevice};
use crate::forward::{Address, Forwarded, Forwarder, Port};
use crate::lab::Host;
use crate::link::Link;
use crate::run;
use crate::server::Server;
use crate::tap::{Offload, Tap, VNET_HEADER};
use anyhow::{Context, Result, anyhow, bail};
use rustix::fd::{AsFd, BorrowedFd};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use tranship_mbuf::{Calls, Chain, ClusterSize, Mbufs, Routine};

/// The traffic that iperf3 sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Load {
    /// A TCP stream in writes of a number of bytes.
    Tcp {
        /// Bytes of a write.
        message: usize,
        /// Bytes of each socket's buffer; the kernel's choice if `None`.
        window: Option<usize>,
    },
    /// A TCP stream from server to client.
    TcpBack {
        /// Bytes of a write.
        message: usize,
    },
    /// UDP datagrams of a number of bytes.
    Udp {
        /// Bytes of a datagram.
        message: usize,
        /// Bits a second; as many as possible if `None`.
        rate: Option<u64>,
    },
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Payload that arrived, 10^6 bits a second.
    pub received_mbit_s: f64,
    /// Payload that was sent, 10^6 bits a second.
    pub sent_mbit_s: f64,
    /// Calls of `m_pullup`, and how many of them copied.
    pub pullup: (u64, u64),
    /// Frames copied into one piece for smoltcp.
    pub linearised: u64,
    /// Packets whose headers were copied before they were rewritten.
    pub copied_on_write: u64,
    /// Pieces that packets were cut into.
    pub pieces: u64,
    /// Packets that were put together out of fragments.
    pub reassembled: u64,
    /// Frames lost here.
    pub dropped: u64,
}

/// The settings of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// MTU of the client's port, bytes.
    pub mtu: usize,
    /// MTU of the server's port behind the forwarder, bytes.
    pub far_mtu: usize,
    /// Clusters that the echo server receives into.
    pub cluster: ClusterSize,
    /// The work that the forwarder's ports leave to it.
    pub offload: Offload,
    /// Whether the client lets its packets be cut on their way.
    pub may_fragment: bool,
    /// Whether the forwarder keeps the packets for a mirror, so that it must copy headers before it writes them.
    pub mirror: bool,
    /// Seconds of a test.
    pub seconds: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mtu: 1500,
            far_mtu: 1500,
            cluster: ClusterSize::Std,
            offload: Offload::None,
            may_fragment: false,
            mirror: false,
            seconds: 3,
        }
    }
}

const CLIENT: [u8; 4] = [10, 77, 1, 2];
const NEAR: Address = Address {
    ethernet: [2, 0, 0, 0, 77, 1],
    ip: [10, 77, 1, 1],
};
const FAR: Address = Address {
    ethernet: [2, 0, 0, 0, 77, 2],
    ip: [10, 77, 2, 1],
};
const SERVER: [u8; 4] = [10, 77, 2, 2];

/// Measures a load against the echo server.
///
/// # Errors
/// If a requirement is missing here, or a program fails.
pub fn echo(mbufs: &Mbufs, load: Load, setup: Setup) -> Result<Measured> {
    let client = Host::new("client")?;
    let tap = device(Offload::None)?;
    client.plug(&tap, &with_prefix(CLIENT), setup.mtu)?;
    let mut device = MbufDevice::new(tap, mbufs.clone(), setup.mtu, setup.cluster);
    let address = with_prefix(NEAR.ip)
        .parse()
        .map_err(|()| anyhow!("an address"))?;
    let mut server = Server::new(&mut device, NEAR.ethernet, address, 1);
    let before = Calls::now();
    let (answer, frames) = beside(
        |stop| run::serve(&mut server, &mut device, stop),
        || iperf(&client, NEAR.ip, load, setup.seconds),
    )?;
    let (sent, received) = answer;
    Ok(measured(
        sent,
        received,
        &before,
        frames,
        Forwarded::default(),
    ))
}

/// Measures a load through the forwarder, to an iperf3 server behind it.
///
/// # Errors
/// Those of [`echo`].
pub fn forwarded(mbufs: &Mbufs, load: Load, setup: Setup) -> Result<Measured> {
    through(mbufs, load, setup, |tap| tap)
}

/// Measures a load through the forwarder with frames in vectors of the general-purpose allocator. A program without
/// clusters works this way.
///
/// # Errors
/// Those of [`echo`].
pub fn forwarded_on_the_heap(mbufs: &Mbufs, load: Load, setup: Setup) -> Result<Measured> {
    forwarded_in(mbufs, load, setup, &|room| Some(vec![0; room]))
}

/// Measures a load through the forwarder with frames in another allocator's memory, one piece for each frame, attached
/// to mini-mbufs. `take` has memory for a number of bytes, or none.
///
/// # Errors
/// Those of [`echo`].
pub fn forwarded_in<T: AsMut<[u8]> + Send + 'static>(
    mbufs: &Mbufs,
    load: Load,
    setup: Setup,
    take: &(impl Fn(usize) -> Option<T> + Sync),
) -> Result<Measured> {
    through(mbufs, load, setup, |tap| OtherTap(tap, take))
}

/// Measures a load through the kernel's own router, between virtual devices, without translating addresses: the cost of
/// a forwarder that never leaves the kernel.
///
/// # Errors
/// Those of [`echo`].
pub fn routed_by_the_kernel(_: &Mbufs, load: Load, setup: Setup) -> Result<Measured> {
    let (client, router, server) = (
        Host::new("client")?,
        Host::new("router")?,
        Host::new("server")?,
    );
    let address = |ip| with_prefix(ip);
    let (near, far) = (address(NEAR.ip), address(FAR.ip));
    client.wire(
        ("left", &address(CLIENT)),
        &router,
        ("left", &near),
        setup.mtu,
    )?;
    server.wire(
        ("right", &address(SERVER)),
        &router,
        ("right", &far),
        setup.far_mtu,
    )?;
    router.set("net/ipv4/ip_forward", "1")?;
    client.run("ip", &["route", "add", "default", "via", &dotted(NEAR.ip)])?;
    server.run("ip", &["route", "add", "default", "via", &dotted(FAR.ip)])?;
    let _running = server.spawn("iperf3", &["--server", "--one-off"])?;
    server.listening("5201")?;
    let before = Calls::now();
    let (sent, received) = iperf(&client, SERVER, load, setup.seconds)?;
    Ok(measured(
        sent,
        received,
        &before,
        Frames::default(),
        Forwarded::default(),
    ))
}

fn through<L: Link + AsFd + Send>(
    mbufs: &Mbufs,
    load: Load,
    setup: Setup,
    link: impl Fn(Tap) -> L,
) -> Result<Measured> {
    let (client, server) = (Host::new("client")?, Host::new("server")?);
    let (left, right) = (device(setup.offload)?, device(setup.offload)?);
    client.plug(&left, &with_prefix(CLIENT), setup.mtu)?;
    server.plug(&right, &with_prefix(SERVER), setup.far_mtu)?;
    if setup.may_fragment {
        client.set("net/ipv4/ip_no_pmtu_disc", "1")?;
    }
    let ports = [
        Port::new(link(left), NEAR, CLIENT, setup.mtu),
        Port::new(link(right), FAR, SERVER, setup.far_mtu),
    ];
    let mut forwarder = Forwarder::new(mbufs.clone(), ports, setup.mirror);
    let _running = server.spawn("iperf3", &["--server", "--one-off"])?;
    let before = Calls::now();
    let (answer, done) = beside(
        |stop| run::forward(&mut forwarder, stop),
        || {
            server.listening("5201")?;
            iperf(&client, NEAR.ip, load, setup.seconds)
        },
    )?;
    let (sent, received) = answer;
    Ok(measured(sent, received, &before, Frames::default(), done))
}

/// A TAP device whose frames are in another allocator's memory.
struct OtherTap<'a, F>(Tap, &'a F);

impl<T: AsMut<[u8]> + Send + 'static, F: Fn(usize) -> Option<T>> Link for OtherTap<'_, F> {
    fn receive(&self, mbufs: &Mbufs, _: ClusterSize, room: usize) -> io::Result<Option<Chain>> {
        let Some(mut frame) = self.1(room) else {
            return Ok(None);
        };
        let into = IoSliceMut::new(&mut frame.as_mut()[..room]);
        let Some(bytes) = self.0.receive(&mut [into])? else {
            return Ok(None);
        };
        let Ok(mut chain) = mbufs.mini() else {
            return Ok(None);
        };
        if chain.attach_mut(frame).is_err() {
            return Ok(None);
        }
        chain.truncate(bytes);
        Ok(Some(chain))
    }

    fn send(&self, frame: &Chain, vnet: &[u8; VNET_HEADER]) -> io::Result<bool> {
        self.0.send(frame, vnet)
    }

    fn offload(&self) -> Offload {
        self.0.offload()
    }
}

impl<F> AsFd for OtherTap<'_, F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Runs a loop in a thread while `work` goes on, then stops it.
fn beside<A, B: Send>(
    run: impl FnOnce(&AtomicBool) -> Result<B> + Send,
    work: impl FnOnce() -> Result<A>,
) -> Result<(A, B)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&stop));
        let answer = work();
        // Ordering: relaxed; the flag publishes nothing else.
        stop.store(true, Ordering::Relaxed);
        let Ok(done) = running.join() else {
            bail!("the loop panicked");
        };
        Ok((answer?, done?))
    })
}

fn measured(sent: f64, received: f64, before: &Calls, frames: Frames, done: Forwarded) -> Measured {
    let calls = Calls::now().since(before);
    Measured {
        received_mbit_s: received,
        sent_mbit_s: sent,
        pullup: (calls.of(Routine::Pullup), calls.of(Routine::PullupCopied)),
        linearised: frames.linearised,
        copied_on_write: done.copied_on_write,
        pieces: done.pieces,
        reassembled: done.reassembled,
        dropped: frames.dropped + done.dropped,
    }
}

/// How often iperf3 tries to connect.
const CONNECTS: u32 = 5;

/// Runs iperf3; returns the sent and the received rate, 10^6 bits a second.
fn iperf(client: &Host, to: [u8; 4], load: Load, seconds: u32) -> Result<(f64, f64)> {
    let to = dotted(to);
    let seconds = seconds.to_string();
    let mut args = vec!["--json", "--client", &to, "--time", &seconds];
    let (message, window, rate) = match load {
        Load::Tcp { message, window } => (message, window, None),
        Load::TcpBack { message } => {
            args.push("--reverse");
            (message, None, None)
        }
        Load::Udp { message, rate } => {
            args.push("--udp");
            (message, None, Some(rate.unwrap_or(0)))
        }
    };
    let message = message.to_string();
    args.extend(["--length", &message]);
    let window = window.map(|bytes| bytes.to_string());
    if let Some(window) = &window {
        args.extend(["--window", window]);
    }
    let rate = rate.map(|bits| bits.to_string());
    if let Some(rate) = &rate {
        args.extend(["--bitrate", rate]);
    }
    // On a loaded machine no host answers for the address in time, now and then. The server still waits then.
    let mut left = CONNECTS;
    let (text, answer) = loop {
        left -= 1;
        let text = client.output("iperf3", &args)?;
        let answer: Value = serde_json::from_str(&text).context("what iperf3 printed")?;
        let problem = answer["error"].as_str().unwrap_or_default();
        if left == 0 || !problem.contains("unable to connect") {
            break (text, answer);
        }
    };
    if let Some(problem) = answer["error"].as_str() {
        return Err(anyhow!("iperf3: {problem}"));
    }
    let end = &answer["end"];
    let mbit = |value: &Value| value["bits_per_second"].as_f64().map(|bits| bits / 1e6);
    let missing = || anyhow!("iperf3 said nothing of its rate: {text}");
    if matches!(load, Load::Udp { .. }) {
        let sum = &end["sum"];
        let lost = sum["lost_percent"].as_f64().unwrap_or(0.0);
        let sent = mbit(sum).ok_or_else(missing)?;
        return Ok((sent, sent * (1.0 - lost / 100.0)));
    }
    let sent = mbit(&end["sum_sent"]).ok_or_else(missing)?;
    let received = mbit(&end["sum_received"]).ok_or_else(missing)?;
    Ok((sent, received))
}

fn device(offload: Offload) -> Result<Tap> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Ordering: only the number itself must be unique.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("np{}.{number}", std::process::id());
    Tap::open(&name, offload).with_context(|| format!("making the device {name}"))
}

fn dotted(ip: [u8; 4]) -> String {
    std::net::Ipv4Addr::from(ip).to_string()
}

fn with_prefix(ip: [u8; 4]) -> String {
    format!("{}/24", dotted(ip))
}
