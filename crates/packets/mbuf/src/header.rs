//! The packet header.

use crate::sendtag::SendTag;
use crate::tag::Tags;

/// The facts about a packet beside its bytes and its length (`struct pkthdr`). They stay with the packet even if its
/// first mbuf changes.
#[derive(Debug, Default)]
#[repr(C)]
#[doc(alias = "pkthdr")]
pub struct Header {
    /// Meta-data of any kind, in a list.
    pub tags: Tags,
    /// The send queue or rate limit of the packet.
    pub send_tag: Option<SendTag>,
    /// The time of receipt, ns; valid with [`Flags::TSTMP`](crate::Flags::TSTMP).
    pub timestamp_ns: u64,
    /// Number of the receiving interface (`rcvif`).
    pub interface: u32,
    /// Hash of its flow.
    pub flow_id: u32,
    /// The checks that the device did, or is to do.
    pub checksum: Checksum,
    /// Value of a partial checksum, or offset at which one belongs (`csum_data`).
    pub checksum_data: u16,
    /// 802.1Q tag; valid with [`Flags::VLANTAG`](crate::Flags::VLANTAG) (`ether_vtag`).
    pub vlan: u16,
    /// Payload bytes of each segment that the device cuts (`tso_segsz`).
    pub segment_bytes: u16,
    /// Routing table (`fibnum`).
    pub fib: u16,
    /// The way in which the flow's hash was made (`rsstype`).
    pub hash_kind: u8,
    /// Bytes of the link header (`l2hlen`).
    pub l2_bytes: u8,
    /// Bytes of the network header (`l3hlen`).
    pub l3_bytes: u8,
    /// Bytes of the transport header (`l4hlen`).
    pub l4_bytes: u8,
}

const _: () = {
    assert!(size_of::<Header>() == 48);
    assert!(size_of::<Tags>() == 8 && size_of::<Option<SendTag>>() == 8);
    assert!(std::mem::offset_of!(Header, send_tag) == 8);
};

impl Header {
    /// Makes a copy with copies of the tags, like `m_dup_pkthdr`; `None` if there is no memory for the tags.
    #[doc(alias = "m_dup_pkthdr")]
    #[doc(alias = "m_copy_pkthdr")]
    #[must_use]
    pub fn duplicate(&self) -> Option<Header> {
        Some(Header {
            tags: self.tags.copy_chain()?,
            ..self.without_tags()
        })
    }

    /// Says whether the header has no tags and no send tag, so that it needs no destructor. Reads both words at once.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        // SAFETY: the first two fields are pointers or null.
        let words = unsafe { std::ptr::from_ref(self).cast::<[usize; 2]>().read() };
        words[0] | words[1] == 0
    }

    /// Makes a copy without the tags, but with a reference to the send tag.
    #[must_use]
    pub fn without_tags(&self) -> Header {
        Header {
            tags: Tags::new(),
            send_tag: self.send_tag.clone(),
            ..*self
        }
    }
}

/// Checksum offload (`csum_flags`): for a received packet the device's checks, for a sent one the device's task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
#[doc(alias = "csum_flags")]
pub struct Checksum(pub u32);

impl Checksum {
    /// For a sent packet: compute the IPv4 header's checksum (`CSUM_IP`).
    pub const IP: Checksum = Checksum(1);
    /// For a sent packet: compute UDP's checksum over IPv4 (`CSUM_IP_UDP`).
    pub const UDP: Checksum = Checksum(1 << 1);
    /// For a sent packet: compute TCP's checksum over IPv4 (`CSUM_IP_TCP`).
    pub const TCP: Checksum = Checksum(1 << 2);
    /// For a sent packet: compute SCTP's checksum over IPv4 (`CSUM_IP_SCTP`).
    pub const SCTP: Checksum = Checksum(1 << 3);
    /// For a sent packet: cut it into TCP segments (`CSUM_IP_TSO`).
    pub const TSO: Checksum = Checksum(1 << 4);
    /// For a sent packet: compute UDP's checksum over IPv6 (`CSUM_IP6_UDP`).
    pub const UDP_IPV6: Checksum = Checksum(1 << 9);
    /// For a sent packet: compute TCP's checksum over IPv6 (`CSUM_IP6_TCP`).
    pub const TCP_IPV6: Checksum = Checksum(1 << 10);
    /// For a sent packet: cut it into TCP segments over IPv6 (`CSUM_IP6_TSO`).
    pub const TSO_IPV6: Checksum = Checksum(1 << 12);
    /// For a received packet: the network header's checksum was checked (`CSUM_L3_CALC`).
    pub const L3_CHECKED: Checksum = Checksum(1 << 24);
    /// For a received packet: the network header's checksum is right (`CSUM_L3_VALID`).
    pub const L3_VALID: Checksum = Checksum(1 << 25);
    /// For a received packet: the transport's checksum was checked (`CSUM_L4_CALC`).
    pub const L4_CHECKED: Checksum = Checksum(1 << 26);
    /// For a received packet: the transport's checksum is right (`CSUM_L4_VALID`).
    pub const L4_VALID: Checksum = Checksum(1 << 27);
    /// For a received packet: the segments of several packets were joined (`CSUM_COALESCED`).
    pub const COALESCED: Checksum = Checksum(1 << 31);

    /// Says whether all of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Checksum) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Checksum {
    type Output = Checksum;
    fn bitor(self, other: Checksum) -> Checksum {
        Checksum(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for Checksum {
    fn bitor_assign(&mut self, other: Checksum) {
        self.0 |= other.0;
    }
}
