//! A forwarder between two Ethernet ports: it translates addresses, cuts packets for a smaller MTU, and joins fragments
//! for a larger one.
//!
//! A packet to one port's address reaches the other port's peer, and the answers come back. Both addresses are
//! translated. If the mbuf belongs to the forwarder alone, that is done in place, otherwise in a fresh first mbuf (copy
//! on write: only the headers are copied, the payload stays shared).

mod fragments;
mod port;
#[cfg(test)]
mod tests;
mod trouble;

use crate::link::{Link, NEEDS_CHECKSUM, NO_SEGMENTS};
use crate::tap::{Offload, VNET_HEADER};
use crate::wire::{self, Arp, ETHERNET, Ethernet, IPV4, Ipv4};
use fragments::Fragments;
pub use port::{Address, Port};
use std::collections::VecDeque;
use std::io;
use tranship_mbuf::{Chain, Mbufs};
use trouble::Trouble;

/// Most frames from one port before the other port's turn.
const BURST: usize = 64;
/// Packets that a mirror keeps.
const MIRRORED: usize = 256;

/// The packets' results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarded {
    /// Packets that left by the other port, whole.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pieces that packets were cut into.
    pub pieces: u64,
    /// Packets that were put together.
    pub reassembled: u64,
    /// Packets whose headers were copied before they were written, because another chain shared them.
    pub copied_on_write: u64,
    /// ARP questions and answers.
    pub arp: u64,
    /// Packets that were too long and must not be cut; their senders were told.
    pub too_long: u64,
    /// Frames that were not for this host, or broken.
    pub refused: u64,
    /// Frames that were lost: no mbuf, no room, or the peer's hardware address was not known yet.
    pub dropped: u64,
}

/// Two ports and the forwarding between them.
#[derive(Debug)]
pub struct Forwarder<L> {
    mbufs: Mbufs,
    ports: [Port<L>; 2],
    fragments: Fragments,
    mirror: Option<VecDeque<Chain>>,
    done: Forwarded,
    next_id: u16,
}

impl<L: Link> Forwarder<L> {
    /// Makes a forwarder. With `mirror`, the last 256 packets are kept for inspection. Their clusters are shared, so
    /// headers are copied before they are rewritten.
    pub fn new(mbufs: Mbufs, ports: [Port<L>; 2], mirror: bool) -> Self {
        Self {
            mbufs,
            ports,
            fragments: Fragments::default(),
            mirror: mirror.then(VecDeque::new),
            done: Forwarded::default(),
            next_id: 1,
        }
    }

    /// Returns the ports.
    pub fn ports(&self) -> &[Port<L>; 2] {
        &self.ports
    }

    /// Returns the packets' results so far.
    pub fn done(&self) -> Forwarded {
        self.done
    }

    /// Takes waiting packets from the ports, a burst from each; returns whether there were any.
    ///
    /// # Errors
    /// A port's error; everything taken before was handled.
    pub fn turn(&mut self) -> io::Result<bool> {
        let mut any = false;
        for from in 0..2 {
            for _ in 0..BURST {
                let Some(frame) = self.ports[from].receive(&self.mbufs)? else {
                    break;
                };
                any = true;
                match self.handle(from, frame) {
                    Ok(()) => {}
                    Err(Trouble::Refused) => self.done.refused += 1,
                    Err(Trouble::Lost) => self.done.dropped += 1,
                    Err(Trouble::Io(error)) => return Err(error),
                }
            }
        }
        self.fragments.forget_old();
        Ok(any)
    }

    fn handle(&mut self, from: usize, mut frame: Chain) -> Result<(), Trouble> {
        let mut vnet = [0; VNET_HEADER];
        if self.ports[from].offload() == Offload::Segments {
            frame.copydata(0, &mut vnet)?;
            frame.trim_front(VNET_HEADER);
        }
        let ethernet = Ethernet::read(frame.pullup(ETHERNET)?).ok_or(Trouble::Refused)?;
        self.ports[from].learn(ethernet.source);
        match ethernet.kind {
            wire::TYPE_ARP => self.arp(from, frame),
            wire::TYPE_IPV4 => self.ipv4(from, frame, vnet),
            _ => Err(Trouble::Refused),
        }
    }

    fn arp(&mut self, at: usize, mut frame: Chain) -> Result<(), Trouble> {
        let packet = frame.pullup(ETHERNET + wire::ARP)?;
        let arp = Arp::read(&packet[ETHERNET..]).ok_or(Trouble::Refused)?;
        self.done.arp += 1;
        let me = self.ports[at].address();
        if arp.question && arp.target.1 == me.ip {
            let answer = Arp {
                question: false,
                sender: (me.ethernet, me.ip),
                target: arp.sender,
            };
            self.ports[at].say(&self.mbufs, arp.sender.0, &answer)?;
        }
        Ok(())
    }

    fn ipv4(
        &mut self,
        from: usize,
        mut frame: Chain,
        vnet: [u8; VNET_HEADER],
    ) -> Result<(), Trouble> {
        let mut ip = read_ip(&mut frame)?;
        if ip.destination != self.ports[from].address().ip || ip.ttl < 2 {
            return Err(Trouble::Refused);
        }
        if frame.len() < ETHERNET + ip.total {
            return Err(Trouble::Refused);
        }
        // Short frames are padded.
        frame.truncate(ETHERNET + ip.total);
        if ip.is_fragment() {
            let Some(whole) = self.fragments.add(&ip, frame)? else {
                return Ok(());
            };
            self.done.reassembled += 1;
            frame = whole;
            ip = read_ip(&mut frame)?;
        }
        if let Some(mirror) = &mut self.mirror {
            if mirror.len() == MIRRORED {
                mirror.pop_front();
            }
            mirror.push_back(frame.copypacket()?);
        }
        self.translate(from, &mut frame, &ip, &vnet)?;
        self.send(from, frame, &ip, &vnet)
    }

    /// Writes new addresses, in headers that belong to the forwarder alone.
    fn translate(
        &mut self,
        from: usize,
        frame: &mut Chain,
        ip: &Ipv4,
        vnet: &[u8; VNET_HEADER],
    ) -> Result<(), Trouble> {
        let out = &self.ports[1 - from];
        let Some(peer) = out.peer() else {
            out.ask(&self.mbufs)?;
            return Err(Trouble::Lost);
        };
        let headers = ETHERNET + wire::headers(ip);
        let mine = frame.iter().next().is_some_and(|first| first.is_writable());
        let bytes = if mine {
            frame.pulldown(0..headers)?
        } else {
            self.done.copied_on_write += 1;
            frame.copyup(headers, 0)?
        };
        let partial = vnet[0] & NEEDS_CHECKSUM != 0;
        let me = out.address();
        wire::rewrite(&mut bytes[ETHERNET..], ip, me.ip, out.peer_ip(), partial);
        let ethernet = Ethernet {
            destination: peer,
            source: me.ethernet,
            kind: wire::TYPE_IPV4,
        };
        ethernet.write(bytes);
        Ok(())
    }

    /// Sends out of the other port, cut if necessary.
    fn send(
        &mut self,
        from: usize,
        frame: Chain,
        ip: &Ipv4,
        vnet: &[u8; VNET_HEADER],
    ) -> Result<(), Trouble> {
        let out = &self.ports[1 - from];
        let segments = vnet[1] != NO_SEGMENTS && out.offload() == Offload::Segments;
        if ip.total <= out.mtu() || segments {
            let bytes = frame.len() as u64;
            if out.send(&frame, vnet)? {
                self.done.packets += 1;
                self.done.bytes += bytes;
            } else {
                self.done.dropped += 1;
            }
            return Ok(());
        }
        if !ip.may_fragment {
            self.done.too_long += 1;
            let mtu = out.mtu();
            self.next_id = self.next_id.wrapping_add(1);
            return self.ports[from].too_long(&self.mbufs, ip, &frame, mtu, self.next_id);
        }
        let mut whole = true;
        for piece in fragments::cut(frame, ip, out.mtu())? {
            self.done.pieces += 1;
            self.done.bytes += piece.len() as u64;
            whole &= out.send(&piece, &[0; VNET_HEADER])?;
        }
        if whole {
            self.done.packets += 1;
        } else {
            self.done.dropped += 1;
        }
        Ok(())
    }
}

/// Reads the IPv4 header of a frame. All of it is pulled up, and the part of the transport's header that is rewritten.
fn read_ip(frame: &mut Chain) -> Result<Ipv4, Trouble> {
    let bytes = frame.pullup(ETHERNET + IPV4)?;
    let header = usize::from(bytes[ETHERNET] & 15) * 4;
    let bytes = frame.pullup(ETHERNET + header.max(IPV4))?;
    Ipv4::read(&bytes[ETHERNET..]).ok_or(Trouble::Refused)
}
