//! One port of the forwarder: a link, its own address, and its peer.

use super::trouble::Trouble;
use crate::link::{Link, room};
use crate::tap::{Offload, VNET_HEADER};
use crate::wire::{self, Arp, BROADCAST, ETHERNET, Ethernet, IPV4, Ipv4};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use tranship_mbuf::{Chain, ClusterSize, Mbufs};

/// Bytes of a refused packet's payload that its sender is sent back: RFC 792.
const SHOWN: usize = 8;

/// An Ethernet and an IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The hardware address.
    pub ethernet: [u8; 6],
    /// The IPv4 address.
    pub ip: [u8; 4],
}

/// One port.
#[derive(Debug)]
pub struct Port<L> {
    link: L,
    address: Address,
    peer_ip: [u8; 4],
    peer: Option<[u8; 6]>,
    mtu: usize,
}

impl<L: Link> Port<L> {
    /// Makes a port with an address and one peer's address, for packets of up to `mtu` bytes.
    pub fn new(link: L, address: Address, peer_ip: [u8; 4], mtu: usize) -> Self {
        Self {
            link,
            address,
            peer_ip,
            peer: None,
            mtu,
        }
    }

    /// Returns the link.
    pub fn link(&self) -> &L {
        &self.link
    }

    pub(super) fn address(&self) -> Address {
        self.address
    }

    pub(super) fn peer_ip(&self) -> [u8; 4] {
        self.peer_ip
    }

    pub(super) fn peer(&self) -> Option<[u8; 6]> {
        self.peer
    }

    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    pub(super) fn offload(&self) -> Offload {
        self.link.offload()
    }

    /// Learns the peer's hardware address. There is one peer at the other end: every sender is that peer.
    pub(super) fn learn(&mut self, source: [u8; 6]) {
        // A group address belongs to no host.
        if source[0] & 1 == 0 {
            self.peer = Some(source);
        }
    }

    pub(super) fn receive(&self, mbufs: &Mbufs) -> io::Result<Option<Chain>> {
        // Ordinary frames in a cluster of 2 KiB, the packet zone's; longer ones in a chain.
        let room = room(self.offload(), self.mtu);
        self.link.receive(mbufs, ClusterSize::Std, room)
    }

    pub(super) fn send(&self, frame: &Chain, vnet: &[u8; VNET_HEADER]) -> io::Result<bool> {
        self.link.send(frame, vnet)
    }

    /// Asks for the peer's hardware address.
    pub(super) fn ask(&self, mbufs: &Mbufs) -> Result<(), Trouble> {
        let question = Arp {
            question: true,
            sender: (self.address.ethernet, self.address.ip),
            target: ([0; 6], self.peer_ip),
        };
        self.say(mbufs, BROADCAST, &question)
    }

    /// Sends an ARP packet. It may be lost.
    pub(super) fn say(&self, mbufs: &Mbufs, to: [u8; 6], arp: &Arp) -> Result<(), Trouble> {
        let mut frame = mbufs.gethdr()?;
        frame.append(&self.ethernet(to, wire::TYPE_ARP))?;
        frame.append(&arp.bytes())?;
        self.send(&frame, &[0; VNET_HEADER])?;
        Ok(())
    }

    /// Tells a sender that its packet must be cut and may not be: ICMP 3, 4 with the MTU (RFC 1191). The frame was
    /// translated already; the quoted header has the original addresses.
    pub(super) fn too_long(
        &self,
        mbufs: &Mbufs,
        ip: &Ipv4,
        frame: &Chain,
        mtu: usize,
        id: u16,
    ) -> Result<(), Trouble> {
        let Some(peer) = self.peer else {
            return Ok(());
        };
        let shown = (ip.header + SHOWN).min(ip.total);
        let mut bytes = vec![0; ETHERNET + IPV4 + 8 + shown];
        bytes[..ETHERNET].copy_from_slice(&self.ethernet(peer, wire::TYPE_IPV4));
        let (head, icmp) = bytes[ETHERNET..].split_at_mut(IPV4);
        icmp[0] = 3;
        icmp[1] = 4;
        icmp[6..8].copy_from_slice(&u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes());
        frame.copydata(ETHERNET, &mut icmp[8..])?;
        icmp[8 + 12..8 + 16].copy_from_slice(&ip.source);
        icmp[8 + 16..8 + 20].copy_from_slice(&ip.destination);
        let checksum = wire::finish(wire::sum(icmp));
        icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
        head[0] = 0x45;
        head[4..6].copy_from_slice(&id.to_be_bytes());
        head[8] = 64;
        head[9] = 1;
        head[12..16].copy_from_slice(&self.address.ip);
        head[16..20].copy_from_slice(&ip.source);
        let total = IPV4 + 8 + shown;
        wire::cut(head, IPV4, total, 0, false);
        let mut answer = mbufs.gethdr()?;
        answer.append(&bytes)?;
        self.send(&answer, &[0; VNET_HEADER])?;
        Ok(())
    }

    fn ethernet(&self, to: [u8; 6], kind: u16) -> [u8; ETHERNET] {
        let mut bytes = [0; ETHERNET];
        let header = Ethernet {
            destination: to,
            source: self.address.ethernet,
            kind,
        };
        header.write(&mut bytes);
        bytes
    }
}

impl<L: AsFd> AsFd for Port<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
