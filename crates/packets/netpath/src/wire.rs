//! Headers on the wire, read and rewritten in place: Ethernet, ARP, IPv4, the checksums of TCP, UDP and ICMP.
//!
//! RFC 791 (IPv4), 826 (ARP), 1071 and 1624 (checksums). Nothing here allocates or copies.

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Bytes of an IPv4 header without options.
pub const IPV4: usize = 20;
/// Bytes of an ARP packet for Ethernet and IPv4.
pub const ARP: usize = 28;
/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const TYPE_ARP: u16 = 0x0806;
/// The broadcast hardware address.
pub const BROADCAST: [u8; 6] = [0xff; 6];

const MORE_FRAGMENTS: u16 = 0x2000;
const DONT_FRAGMENT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;

fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Returns the sum of 16-bit words that RFC 1071 describes, not yet folded or complemented. An odd last byte counts as
/// high.
#[must_use]
pub fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)))
        .sum()
}

/// Folds a sum to 16 bits and complements it.
#[must_use]
pub fn finish(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// Updates a checksum after `old` bytes that it covers became `new` ones: RFC 1624, equation 3.
#[must_use]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let inverted: u32 = old.chunks(2).map(|w| u32::from(!get16(w, 0))).sum();
    finish(u32::from(!checksum) + inverted + sum(new))
}

/// An Ethernet header at the front of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// The receiver.
    pub destination: [u8; 6],
    /// The sender.
    pub source: [u8; 6],
    /// The protocol of the payload.
    pub kind: u16,
}

impl Ethernet {
    /// Reads a header; `None` if the frame is shorter.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        (frame.len() >= ETHERNET).then(|| Self {
            destination: array(frame, 0),
            source: array(frame, 6),
            kind: get16(frame, 12),
        })
    }

    /// Writes the header to the front.
    ///
    /// # Panics
    /// If the frame is shorter than [`ETHERNET`].
    pub fn write(&self, frame: &mut [u8]) {
        frame[..6].copy_from_slice(&self.destination);
        frame[6..12].copy_from_slice(&self.source);
        put16(frame, 12, self.kind);
    }
}

/// An ARP question or answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// Whether it is a question.
    pub question: bool,
    /// Hardware and protocol address of the sender.
    pub sender: ([u8; 6], [u8; 4]),
    /// Hardware and protocol address of the target.
    pub target: ([u8; 6], [u8; 4]),
}

impl Arp {
    /// Reads an ARP packet for Ethernet and IPv4; `None` if it is another one.
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<Self> {
        let fits = packet.len() >= ARP && packet[..6] == [0, 1, 8, 0, 6, 4];
        let operation = fits.then(|| get16(packet, 6))?;
        matches!(operation, 1 | 2).then(|| Self {
            question: operation == 1,
            sender: (array(packet, 8), array(packet, 14)),
            target: (array(packet, 18), array(packet, 24)),
        })
    }

    /// Returns the packet's bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; ARP] {
        let mut packet = [0; ARP];
        packet[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        put16(&mut packet, 6, if self.question { 1 } else { 2 });
        packet[8..14].copy_from_slice(&self.sender.0);
        packet[14..18].copy_from_slice(&self.sender.1);
        packet[18..24].copy_from_slice(&self.target.0);
        packet[24..28].copy_from_slice(&self.target.1);
        packet
    }
}

/// The fields of an IPv4 header that a forwarder needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4 {
    /// Bytes of the header, options included.
    pub header: usize,
    /// Bytes of the packet, header included.
    pub total: usize,
    /// The packet that a fragment belongs to.
    pub id: u16,
    /// Whether the packet may be cut.
    pub may_fragment: bool,
    /// Whether there are later fragments.
    pub more: bool,
    /// The payload's offset in the whole packet's payload, bytes.
    pub offset: usize,
    /// Remaining hops.
    pub ttl: u8,
    /// 1 ICMP, 6 TCP, 17 UDP.
    pub protocol: u8,
    /// The sender.
    pub source: [u8; 4],
    /// The receiver.
    pub destination: [u8; 4],
}

impl Ipv4 {
    /// Reads a header at the front of a packet and checks version, lengths and checksum; `None` if anything is wrong.
    /// `total` may exceed the bytes that are here.
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        let header = usize::from(first & 15) * 4;
        if first >> 4 != 4 || header < IPV4 || packet.len() < header {
            return None;
        }
        let total = usize::from(get16(packet, 2));
        if total < header || finish(sum(&packet[..header])) != 0 {
            return None;
        }
        let flags = get16(packet, 6);
        Some(Self {
            header,
            total,
            id: get16(packet, 4),
            may_fragment: flags & DONT_FRAGMENT == 0,
            more: flags & MORE_FRAGMENTS != 0,
            offset: usize::from(flags & OFFSET) * 8,
            ttl: packet[8],
            protocol: packet[9],
            source: array(packet, 12),
            destination: array(packet, 16),
        })
    }

    /// Says whether it is a part of a larger packet.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.more || self.offset > 0
    }

    /// Returns the offset of the transport's checksum in the payload, if it has one that covers the addresses.
    #[must_use]
    pub fn checksum_at(&self) -> Option<usize> {
        match self.protocol {
            6 => Some(16),
            17 => Some(6),
            _ => None,
        }
    }
}

/// Gives an IPv4 header (at the front) its length, its place in the whole packet, and a new checksum.
///
/// # Panics
/// If `header` is not that of `packet`, or the offset is not a multiple of 8.
pub fn cut(packet: &mut [u8], header: usize, total: usize, offset: usize, more: bool) {
    assert!(
        offset.is_multiple_of(8),
        "fragments begin at multiples of 8, this one at {offset}"
    );
    let keep = get16(packet, 6) & DONT_FRAGMENT;
    let units = u16::try_from(offset / 8).unwrap_or(OFFSET) & OFFSET;
    put16(packet, 2, u16::try_from(total).unwrap_or(u16::MAX));
    put16(
        packet,
        6,
        keep | units | if more { MORE_FRAGMENTS } else { 0 },
    );
    put16(packet, 10, 0);
    let checksum = finish(sum(&packet[..header]));
    put16(packet, 10, checksum);
}

/// Rewrites source and destination of the packet at the front, lowers the hop count, and updates every checksum that
/// covers them. `partial`: the transport's checksum is only the pseudo-header's sum, as a device with checksum offload
/// leaves it.
///
/// # Panics
/// If `packet` does not hold the headers; see [`headers`].
pub fn rewrite(packet: &mut [u8], ip: &Ipv4, source: [u8; 4], destination: [u8; 4], partial: bool) {
    let old: [u8; 8] = array(packet, 12);
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&destination);
    let new: [u8; 8] = array(packet, 12);
    let old_hop = [packet[8], packet[9]];
    packet[8] = packet[8].saturating_sub(1);
    let new_hop = [packet[8], packet[9]];
    let checksum = update(get16(packet, 10), &old, &new);
    let checksum = update(checksum, &old_hop, &new_hop);
    put16(packet, 10, checksum);
    // Only the first fragment has the transport's header; UDP may go without a checksum.
    let Some(at) = ip.checksum_at().filter(|_| ip.offset == 0) else {
        return;
    };
    let at = ip.header + at;
    let checksum = get16(packet, at);
    if ip.protocol == 17 && checksum == 0 {
        return;
    }
    let mut new_checksum = if partial {
        !update(!checksum, &old, &new)
    } else {
        update(checksum, &old, &new)
    };
    if ip.protocol == 17 && new_checksum == 0 {
        new_checksum = 0xffff;
    }
    put16(packet, at, new_checksum);
}

/// Returns how many bytes at the front of the packet [`rewrite`] touches.
#[must_use]
pub fn headers(ip: &Ipv4) -> usize {
    let transport = ip.checksum_at().filter(|_| ip.offset == 0);
    ip.header + transport.map_or(0, |at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 3: the words 0001 f203 f4f5 f6f7 add up to ddf2.
    #[test]
    fn the_sum_of_the_standard() {
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(finish(sum(&words)), !0xddf2);
        assert_eq!(sum(&[1]), 0x100, "an odd byte counts as high");
    }

    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let total = u16::try_from(IPV4 + payload.len()).expect("short");
        let mut packet = vec![
            0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        put16(&mut packet, 2, total);
        let checksum = finish(sum(&packet));
        put16(&mut packet, 10, checksum);
        packet.extend_from_slice(payload);
        packet
    }

    fn transport_sum(packet: &[u8], protocol: u8) -> u32 {
        let length = u32::try_from(packet.len() - IPV4).expect("short");
        sum(&packet[12..20]) + u32::from(protocol) + length + sum(&packet[IPV4..])
    }

    #[test]
    fn a_rewritten_packet_has_right_checksums() {
        for (protocol, at) in [(6, 16), (17, 6)] {
            let mut payload = (0..99).collect::<Vec<u8>>();
            put16(&mut payload, at, 0);
            let mut bytes = packet(protocol, &payload);
            let checksum = finish(transport_sum(&bytes, protocol));
            put16(&mut bytes, IPV4 + at, checksum);
            let ip = Ipv4::read(&bytes).expect("a good header");
            rewrite(&mut bytes, &ip, [192, 168, 7, 9], [172, 16, 200, 1], false);
            let after = Ipv4::read(&bytes).expect("still a good header");
            assert_eq!(
                (after.source, after.destination),
                ([192, 168, 7, 9], [172, 16, 200, 1])
            );
            assert_eq!(after.ttl, 63);
            assert_eq!(finish(transport_sum(&bytes, protocol)), 0);
        }
    }

    #[test]
    fn a_partial_checksum_stays_the_pseudo_headers_sum() {
        let mut bytes = packet(6, &[0; 40]);
        let pseudo = |bytes: &[u8]| !finish(sum(&bytes[12..20]) + 6 + 40);
        let before = pseudo(&bytes);
        put16(&mut bytes, IPV4 + 16, before);
        let ip = Ipv4::read(&bytes).expect("a good header");
        rewrite(&mut bytes, &ip, [1, 2, 3, 4], [5, 6, 7, 8], true);
        assert_eq!(get16(&bytes, IPV4 + 16), pseudo(&bytes));
    }

    #[test]
    fn bad_headers_are_refused() {
        let good = packet(17, &[0; 8]);
        assert!(Ipv4::read(&good).is_some());
        for at in 0..IPV4 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(Ipv4::read(&bad), None, "byte {at}");
        }
        for short in 0..IPV4 {
            assert_eq!(Ipv4::read(&good[..short]), None, "{short} bytes");
        }
    }

    #[test]
    fn arp_and_ethernet_come_back_as_they_went() {
        let arp = Arp {
            question: true,
            sender: ([1; 6], [2; 4]),
            target: ([3; 6], [4; 4]),
        };
        assert_eq!(Arp::read(&arp.bytes()), Some(arp));
        assert_eq!(Arp::read(&arp.bytes()[1..]), None);
        let header = Ethernet {
            destination: BROADCAST,
            source: [7; 6],
            kind: TYPE_ARP,
        };
        let mut frame = [0; ETHERNET];
        header.write(&mut frame);
        assert_eq!(Ethernet::read(&frame), Some(header));
    }
}
