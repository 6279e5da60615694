//! A link below smoltcp that keeps received payload, and puts the program's bytes into frames that are sent.

use super::flow::{Flows, Remote, Seen};
use crate::link::Link;
use crate::tap::{Offload, VNET_HEADER};
use crate::wire::{self, ETHERNET, Ethernet, Ipv4};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use tranship_mbuf::{Chain, ClusterSize, Mbufs};

/// Bytes of the longest headers: Ethernet, IPv4 and TCP with options.
const HEADERS: usize = ETHERNET + 60 + 60;
/// Bytes of a TCP header without options.
const TCP: usize = 20;
const SYN: u8 = 2;

/// The link.
#[derive(Debug)]
pub(super) struct ByReference<L> {
    link: L,
    mbufs: Mbufs,
    me: Remote,
    pub flows: RefCell<Flows>,
}

/// A TCP segment's header, read out of a frame.
struct Segment {
    source: Remote,
    destination: Remote,
    sequence: u32,
    is_syn: bool,
    payload: Range<usize>,
}

impl<L: Link> ByReference<L> {
    pub(super) fn new(link: L, mbufs: Mbufs, ip: [u8; 4], port: u16) -> ByReference<L> {
        ByReference {
            link,
            mbufs,
            me: (ip, port),
            flows: RefCell::default(),
        }
    }

    pub(super) fn link(&self) -> &L {
        &self.link
    }
}

impl<L: Link> Link for ByReference<L> {
    fn receive(
        &self,
        mbufs: &Mbufs,
        cluster: ClusterSize,
        room: usize,
    ) -> io::Result<Option<Chain>> {
        let frame = self.link.receive(mbufs, cluster, room)?;
        let segment = frame.as_ref().and_then(|frame| {
            let mut head = [0; HEADERS];
            let bytes = frame.len().checked_sub(VNET_HEADER)?;
            read(copy_head(frame, VNET_HEADER, &mut head)?, bytes)
        });
        let seen = segment.filter(|segment| segment.destination == self.me);
        self.flows.borrow_mut().seen = seen.map(|segment| {
            let Range { start, end } = segment.payload;
            let payload = VNET_HEADER + start..VNET_HEADER + end;
            Seen {
                remote: segment.source,
                // A SYN has a number of its own, before the payload.
                sequence: segment.sequence.wrapping_add(segment.is_syn.into()),
                // Without mbufs the bytes come out of smoltcp.
                payload: frame.as_ref().and_then(|frame| frame.copym(payload).ok()),
            }
        });
        Ok(frame)
    }

    fn send(&self, frame: &Chain, vnet: &[u8; VNET_HEADER]) -> io::Result<bool> {
        let mut head = [0; HEADERS];
        let Some(head) = copy_head(frame, 0, &mut head) else {
            return Ok(false);
        };
        let mut flows = self.flows.borrow_mut();
        let segment = read(head, frame.len()).filter(|segment| segment.source == self.me);
        let Some(segment) = segment else {
            return self.link.send(frame, vnet);
        };
        let (mut flow, copies) = flows.of_remote(segment.destination);
        if let Some(flow) = &mut flow
            && segment.is_syn
        {
            flow.begin(segment.sequence);
        }
        if segment.payload.is_empty() {
            return self.link.send(frame, vnet);
        }
        let (headers, len) = (segment.payload.start, segment.payload.len());
        let whole = flow.and_then(|flow| {
            let mut whole = self.mbufs.devget(&head[..headers], 0).ok()?;
            whole.cat(flow.part(segment.sequence, len)?);
            Some(whole)
        });
        let Some(whole) = whole else {
            // As if it were lost: smoltcp sends it again.
            return Ok(false);
        };
        copies.headers += headers as u64;
        copies.sent += len as u64;
        self.link.send(&whole, vnet)
    }

    fn offload(&self) -> Offload {
        self.link.offload()
    }

    fn has_room(&self) -> bool {
        self.link.has_room()
    }
}

/// Copies the headers of a frame, which lies behind `at`.
fn copy_head<'a>(frame: &Chain, at: usize, head: &'a mut [u8; HEADERS]) -> Option<&'a [u8]> {
    let len = frame.len().checked_sub(at)?.min(HEADERS);
    frame.copydata(at, &mut head[..len]).ok()?;
    Some(&head[..len])
}

/// Reads the headers of a frame of at most `bytes`; `None`: it is no whole TCP segment over IPv4.
fn read(head: &[u8], bytes: usize) -> Option<Segment> {
    let ethernet = Ethernet::read(head)?;
    let packet = (ethernet.kind == wire::TYPE_IPV4).then(|| &head[ETHERNET..])?;
    let ip = Ipv4::read(packet).filter(|ip| ip.protocol == 6 && !ip.is_fragment())?;
    let tcp = packet.get(ip.header..).filter(|tcp| tcp.len() >= TCP)?;
    let start = ETHERNET + ip.header + usize::from(tcp[12] >> 4) * 4;
    let end = ETHERNET + ip.total;
    let fits = start >= ETHERNET + ip.header + TCP && start <= end && end <= bytes;
    let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    fits.then(|| Segment {
        source: (ip.source, port(0)),
        destination: (ip.destination, port(2)),
        sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        is_syn: tcp[13] & SYN != 0,
        payload: start..end,
    })
}
