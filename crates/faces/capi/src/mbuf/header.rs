//! The fields of a packet's header.

use super::{Mbuf, borrowed};
use facade::mbuf::Header;
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;

/// The fields of a packet's header, beside its length and its tags. Later versions may add fields at the end.
#[repr(C)]
#[derive(Debug)]
pub struct Pkthdr {
    /// The time of receipt, ns; valid with M_TSTMP.
    pub rcv_tstmp: u64,
    /// Number of the receiving interface.
    pub rcvif: u32,
    /// Hash of the flow.
    pub flowid: u32,
    /// The device's checks, or its tasks.
    pub csum_flags: u32,
    /// Value of a partial checksum, or offset at which one belongs.
    pub csum_data: u16,
    /// 802.1Q tag; valid with M_VLANTAG.
    pub ether_vtag: u16,
    /// Payload bytes of each segment that the device cuts.
    pub tso_segsz: u16,
    /// Routing table.
    pub fibnum: u16,
    /// The way in which `flowid` was made.
    pub rsstype: u8,
    /// Bytes of the link header.
    pub l2hlen: u8,
    /// Bytes of the network header.
    pub l3hlen: u8,
    /// Bytes of the transport header.
    pub l4hlen: u8,
}

/// The first of the fields in the header that Rust has.
const AT: usize = offset_of!(Header, timestamp_ns);
const _: () = {
    assert!(AT + size_of::<Pkthdr>() == size_of::<Header>());
    assert!(AT + offset_of!(Pkthdr, rcvif) == offset_of!(Header, interface));
    assert!(AT + offset_of!(Pkthdr, flowid) == offset_of!(Header, flow_id));
    assert!(AT + offset_of!(Pkthdr, csum_flags) == offset_of!(Header, checksum));
    assert!(AT + offset_of!(Pkthdr, csum_data) == offset_of!(Header, checksum_data));
    assert!(AT + offset_of!(Pkthdr, ether_vtag) == offset_of!(Header, vlan));
    assert!(AT + offset_of!(Pkthdr, tso_segsz) == offset_of!(Header, segment_bytes));
    assert!(AT + offset_of!(Pkthdr, fibnum) == offset_of!(Header, fib));
    assert!(AT + offset_of!(Pkthdr, rsstype) == offset_of!(Header, hash_kind));
    assert!(AT + offset_of!(Pkthdr, l2hlen) == offset_of!(Header, l2_bytes));
    assert!(AT + offset_of!(Pkthdr, l3hlen) == offset_of!(Header, l3_bytes));
    assert!(AT + offset_of!(Pkthdr, l4hlen) == offset_of!(Header, l4_bytes));
};

/// Returns the fields of a packet's header, to read and to write (m_pkthdr). They stay there until the packet's first
/// mbuf changes or loses its header. NULL: it is no packet.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_pkthdr(m: *mut Mbuf) -> *mut Pkthdr {
    let chain = borrowed(m);
    let header = chain.and_then(|mut chain| chain.header_mut().map(std::ptr::from_mut));
    header.map_or(null_mut(), |header| {
        header.cast::<u8>().wrapping_add(AT).cast()
    })
}
