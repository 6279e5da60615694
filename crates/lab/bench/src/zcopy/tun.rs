//! The sink `tun` of `zc-send`: a stand-in for a network card. Replies go into a TUN device that takes segments of up to 64 KiB (TSO); behind it this process
//! plays all clients, as far as TCP needs them: it reads the headers of what comes, acknowledges, and asks for the next value. No byte of a value is copied
//! on the way out, and none is received by a kernel.
//!
//! ```text
//!   server (core 0): TCP of the kernel ──► zc-tun 10.80.0.1 ──► headers read, the rest dropped (core 1): 10.80.0.2
//!                                      ◄── acknowledgements, requests
//! ```

use super::work::{CONNECTIONS, HEADER, Work};
use crate::clock;
use crate::party::Party;
use crate::stats::{Measured, Samples};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Instant;

const DEVICE: &str = "zc-tun";
/// Where the server is, and where all clients are.
const SERVER: [u8; 4] = [10, 80, 0, 1];
const CLIENT: [u8; 4] = [10, 80, 0, 2];
/// Of the first client's port.
const FIRST_PORT: u16 = 40_000;
/// `struct virtio_net_hdr`.
const FRONT: usize = 10;
/// Headers without options.
const IP: usize = 20;
const TCP: usize = 20;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PUSH: u8 = 8;
const ACK: u8 = 16;
/// As a card's would be: an IPv4 packet's longest.
const SEGMENT: u16 = 1460;
const WINDOW_SHIFT: u8 = 10;

/// Can a namespace and a TUN device be made here? Tried in a process that ends.
pub fn possible() -> Result<(), String> {
    let tried = Command::new("unshare")
        .args(["-n", "ip", "tuntap", "add", "dev", DEVICE, "mode", "tun"])
        .output();
    match tried {
        Ok(tried) if tried.status.success() => Ok(()),
        Ok(tried) => Err(format!(
            "needs root and /dev/net/tun: {}",
            String::from_utf8_lossy(&tried.stderr).trim()
        )),
        Err(error) => Err(format!("unshare, of util-linux: {error}")),
    }
}

/// The server's part: comes into the namespace that the clients made.
pub fn enter(party: &Party) -> Result<()> {
    let (_, fds) = party.recv(1)?;
    let space = fds.into_iter().next().context("no namespace")?;
    // SAFETY: this process has one thread, and nothing of the former namespace.
    let entered = unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) };
    ensure!(entered == 0, "setns: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Where the server listens.
pub const LISTEN: &str = "10.80.0.1:0";

fn alone_with_a_device(party: &Party) -> Result<File> {
    // SAFETY: a new network namespace for this process, which has one thread, takes nothing from anybody.
    ensure!(unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0, "unshare");
    let device = tranship_sys::tun::tun(DEVICE, true).context("a TUN device")?;
    for words in [
        format!("address add 10.80.0.1/24 dev {DEVICE}"),
        format!("link set {DEVICE} up"),
    ] {
        let done = Command::new("ip").args(words.split(' ')).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "ip {words}: {}", said.trim());
    }
    let space: OwnedFd = File::open("/proc/self/ns/net")?.into();
    party.send(0, 0, &[space.as_fd()])?;
    Ok(File::from(device))
}

/// One client's end of a connection.
#[derive(Debug, Default)]
struct Peer {
    port: u16,
    /// What it sends next, and what it has received up to.
    next: u32,
    received: u32,
    /// Something came that is not acknowledged.
    owes: bool,
    connected: bool,
    missing: usize,
    asked: u64,
}

/// What is known of a packet of the server's.
struct Came {
    number: usize,
    sequence: u32,
    flags: u8,
    bytes: u32,
}

struct Net {
    device: File,
    port: u16,
    peers: Vec<Peer>,
}

pub fn ask(party: &Party, work: Work) -> Result<Vec<Measured>> {
    let device = alone_with_a_device(party)?;
    let port = u16::try_from(party.hear(0)?)?;
    let mut net = Net {
        device,
        port,
        peers: (0..CONNECTIONS)
            .map(|number| Peer {
                port: FIRST_PORT + u16::try_from(number).unwrap_or(0),
                ..Peer::default()
            })
            .collect(),
    };
    net.connect()?;
    let measured = net.measure(work);
    net.reset()?;
    Ok(vec![measured?])
}

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let add = |sum: u32, word: &[u8]| {
        sum + u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]))
    };
    let mut sum = words.fold(0, add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

impl Net {
    /// Sends for a client.
    fn send(&mut self, number: usize, flags: u8, bytes: &[u8]) -> Result<()> {
        let peer = &mut self.peers[number];
        // Maximum segment size, window scale, and one that is nothing.
        let [high, low] = SEGMENT.to_be_bytes();
        let all = [2, 4, high, low, 3, 3, WINDOW_SHIFT, 1];
        let options = if flags & SYN != 0 { &all[..] } else { &[] };
        let len = IP + TCP + options.len() + bytes.len();
        let mut packet = vec![0; FRONT + IP];
        let ip = &mut packet[FRONT..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&u16::try_from(len)?.to_be_bytes());
        ip[6] = 0x40; // not to be cut
        ip[8] = 64;
        ip[9] = 6;
        ip[12..16].copy_from_slice(&CLIENT);
        ip[16..20].copy_from_slice(&SERVER);
        let checked = sum(ip);
        ip[10..12].copy_from_slice(&checked.to_be_bytes());
        packet.extend(peer.port.to_be_bytes());
        packet.extend(self.port.to_be_bytes());
        packet.extend(peer.next.to_be_bytes());
        packet.extend(peer.received.to_be_bytes());
        packet.push(u8::try_from((TCP + options.len()) / 4)? << 4);
        packet.push(flags);
        packet.extend(u16::MAX.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend_from_slice(options);
        packet.extend_from_slice(bytes);
        let tcp = FRONT + IP;
        let pseudo = u16::try_from(packet.len() - tcp)?.to_be_bytes();
        let pseudo = [0, 6, pseudo[0], pseudo[1]];
        let checked = [&CLIENT[..], &SERVER, &pseudo, &packet[tcp..]].concat();
        let checked = sum(&checked).to_be_bytes();
        packet[tcp + 16..tcp + 18].copy_from_slice(&checked);
        peer.next = peer
            .next
            .wrapping_add(u32::try_from(bytes.len())? + u32::from(flags & (SYN | FIN) != 0));
        peer.owes = false;
        ensure!(
            self.device.write(&packet)? == packet.len(),
            "a packet was cut"
        );
        Ok(())
    }

    /// The headers of the next packet; the rest of it is dropped.
    fn take(&mut self) -> Result<Option<Came>> {
        loop {
            let mut room = [0; FRONT + IP + 60];
            let got = match self.device.read(&mut room) {
                Ok(got) => got.min(room.len()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let packet = &room[..got];
            // Neighbour discovery and such are not for us.
            let Some(tcp) = packet.get(FRONT + IP..).filter(|tcp| tcp.len() >= TCP) else {
                continue;
            };
            if packet[FRONT] != 0x45 || packet[FRONT + 9] != 6 {
                continue;
            }
            let short = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
            let total = u16::from_be_bytes([packet[FRONT + 2], packet[FRONT + 3]]);
            let heads = IP + usize::from(tcp[12] >> 4) * 4;
            let number = usize::from(short(2).wrapping_sub(FIRST_PORT));
            if number >= self.peers.len() {
                continue;
            }
            return Ok(Some(Came {
                number,
                sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
                flags: tcp[13],
                bytes: u32::try_from(usize::from(total).saturating_sub(heads))?,
            }));
        }
    }

    fn connect(&mut self) -> Result<()> {
        for number in 0..self.peers.len() {
            self.send(number, SYN, &[])?;
        }
        let begun = Instant::now();
        while self.peers.iter().any(|peer| !peer.connected) {
            ensure!(begun.elapsed().as_secs() < 10, "the server does not answer");
            let Some(came) = self.take()? else { continue };
            if came.flags & (SYN | ACK) == SYN | ACK {
                let peer = &mut self.peers[came.number];
                peer.received = came.sequence.wrapping_add(1);
                peer.connected = true;
                self.send(came.number, ACK, &[])?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, work: Work) -> Result<Measured> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % work.count as u64
        };
        let reply = (HEADER + work.value) * work.depth;
        let mut samples = Samples::new(1 << 22, u32::try_from(work.depth)?);
        let warm = Instant::now();
        let mut begun: Option<Instant> = None;
        let mut served = 0u64;
        loop {
            for number in 0..self.peers.len() {
                if self.peers[number].missing > 0 {
                    continue;
                }
                let now = clock::ticks();
                let asked = self.peers[number].asked;
                if asked > 0 && begun.is_some() {
                    served += work.depth as u64;
                    samples.push(now - asked);
                }
                let request: Vec<u8> = (0..work.depth).flat_map(|_| next().to_le_bytes()).collect();
                self.peers[number].missing = reply;
                self.peers[number].asked = now;
                self.send(number, PUSH | ACK, &request)?;
            }
            // What came is acknowledged when there is no more, or much.
            for _ in 0..64 {
                let Some(came) = self.take()? else { break };
                let peer = &mut self.peers[came.number];
                if came.flags & (RST | FIN) != 0 {
                    bail!("the server ended a connection");
                }
                peer.owes |= came.bytes > 0;
                // What comes again, and what comes too early, is only answered.
                if came.sequence == peer.received {
                    peer.received = peer.received.wrapping_add(came.bytes);
                    peer.missing = peer
                        .missing
                        .checked_sub(came.bytes as usize)
                        .context("more came than was asked for")?;
                }
            }
            for number in 0..self.peers.len() {
                if self.peers[number].owes && self.peers[number].missing > 0 {
                    self.send(number, ACK, &[])?;
                }
            }
            match begun {
                // Until the set has been touched and the chooser has looked around.
                None if warm.elapsed() > work.budget => begun = Some(Instant::now()),
                Some(begun) if begun.elapsed() > work.budget && served > 0 => {
                    let seconds = begun.elapsed().as_secs_f64();
                    let mut measured = samples.finish("").context("no sample")?;
                    measured.per_second = served as f64 / seconds;
                    return Ok(measured);
                }
                _ => {}
            }
        }
    }

    /// So that the server ends, too.
    fn reset(&mut self) -> Result<()> {
        (0..self.peers.len()).try_for_each(|number| self.send(number, RST | ACK, &[]))
    }
}
