//! Links: the source and the destination of frames, and the header of `virtio` in front of them.

use crate::tap::{Offload, Tap, VNET_HEADER};
use crate::wire::{self, ETHERNET, Ethernet, Ipv4};
use std::io::{self, IoSlice};
use std::num::NonZeroU16;
use tranship_mbuf::{Chain, ClusterSize, Mbufs};

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is only the pseudo-header's sum.
pub const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the checksum was verified.
pub const CHECKED: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_NONE`
pub const NO_SEGMENTS: u8 = 0;
/// `VIRTIO_NET_HDR_GSO_TCPV4`
const TCP_SEGMENTS: u8 = 1;
/// Longest frame with segments: an IPv4 packet of 64 KiB.
const LONGEST: usize = ETHERNET + 65535;

/// The source and destination of frames: a TAP device, a channel, or in tests a queue.
pub trait Link {
    /// Takes the next frame, of at most `room` bytes, into clusters of a size if the link allocates. The vnet header is
    /// in front if there is offload. `None`: there is no frame, or no mbuf for it.
    ///
    /// # Errors
    /// If the link is gone.
    fn receive(
        &self,
        mbufs: &Mbufs,
        cluster: ClusterSize,
        room: usize,
    ) -> io::Result<Option<Chain>>;
    /// Sends a frame, with the vnet header in front if there is offload; `false` if it is lost.
    ///
    /// # Errors
    /// If the link is gone.
    fn send(&self, frame: &Chain, vnet: &[u8; VNET_HEADER]) -> io::Result<bool>;
    /// Returns the work that the link leaves to the program.
    fn offload(&self) -> Offload;
    /// Says whether the link takes a frame now.
    fn has_room(&self) -> bool {
        true
    }
}

impl Link for Tap {
    fn receive(
        &self,
        mbufs: &Mbufs,
        cluster: ClusterSize,
        room: usize,
    ) -> io::Result<Option<Chain>> {
        let Ok(mut chain) = mbufs.getjcl(cluster) else {
            // The frame stays in the kernel's queue.
            return Ok(None);
        };
        let more = room.saturating_sub(cluster.bytes());
        if more > 0 && chain.reserve(more).is_err() {
            return Ok(None);
        }
        let bytes =
            chain.fill_with(|slices| Tap::receive(self, slices).map(Option::unwrap_or_default))?;
        mbufs.count_size(bytes);
        Ok((bytes > 0).then_some(chain))
    }

    fn send(&self, frame: &Chain, vnet: &[u8; VNET_HEADER]) -> io::Result<bool> {
        let Some(mut slices) = frame.io_slices() else {
            return Ok(false);
        };
        if self.offload() == Offload::Segments {
            slices.insert(0, IoSlice::new(vnet));
        }
        self.send_slices(&slices)
    }

    fn offload(&self) -> Offload {
        Tap::offload(self)
    }
}

/// Returns the bytes of the longest frame.
#[must_use]
pub fn room(offload: Offload, mtu: usize) -> usize {
    match offload {
        Offload::None => ETHERNET + mtu,
        Offload::Segments => VNET_HEADER + LONGEST,
    }
}

/// Leaves the checksum of a TCP or UDP packet to the link: puts the pseudo-header's sum in its place, and returns the
/// vnet header. `segment`: the bytes of payload of each segment that the link cuts.
#[must_use]
pub fn leave_checksum(frame: &mut [u8], segment: Option<NonZeroU16>) -> [u8; VNET_HEADER] {
    let mut vnet = [0; VNET_HEADER];
    let Some((ip, at)) = transport(frame) else {
        return vnet;
    };
    let start = ETHERNET + ip.header;
    let partial = !wire::finish(pseudo_sum(&frame[ETHERNET..], &ip));
    frame[start + at..start + at + 2].copy_from_slice(&partial.to_be_bytes());
    vnet[0] = NEEDS_CHECKSUM;
    let mut put = |place: usize, value: usize| {
        let value = u16::try_from(value).unwrap_or(u16::MAX);
        vnet[place..place + 2].copy_from_slice(&value.to_ne_bytes());
    };
    put(6, start);
    put(8, at);
    if let Some(bytes) = segment {
        let words = usize::from(frame[start + 12] >> 4);
        put(2, start + words * 4);
        put(4, bytes.get().into());
        vnet[1] = TCP_SEGMENTS;
    }
    vnet
}

/// Verifies the checksum of a received TCP or UDP packet over IPv4, if the link has not. Other frames pass.
#[must_use]
pub fn is_right(frame: &[u8], vnet: &[u8; VNET_HEADER]) -> bool {
    if vnet[0] & (NEEDS_CHECKSUM | CHECKED) != 0 {
        return true;
    }
    let Some((ip, at)) = transport(frame) else {
        return true;
    };
    let (start, end) = (ETHERNET + ip.header, ETHERNET + ip.total);
    if ip.protocol == 17 && frame[start + at..start + at + 2] == [0, 0] {
        return true;
    }
    wire::finish(pseudo_sum(&frame[ETHERNET..], &ip) + wire::sum(&frame[start..end])) == 0
}

/// Returns the IPv4 header of a whole packet with a transport's checksum, and the offset of that in its payload.
fn transport(frame: &[u8]) -> Option<(Ipv4, usize)> {
    let ethernet = Ethernet::read(frame)?;
    let ip = (ethernet.kind == wire::TYPE_IPV4).then(|| Ipv4::read(&frame[ETHERNET..]))??;
    let at = ip.checksum_at().filter(|_| !ip.is_fragment())?;
    let header = if ip.protocol == 6 { 20 } else { 8 };
    let fits = ip.total >= ip.header + header && frame.len() >= ETHERNET + ip.total;
    fits.then_some((ip, at))
}

fn pseudo_sum(packet: &[u8], ip: &Ipv4) -> u32 {
    let bytes = u32::try_from(ip.total - ip.header).unwrap_or(0);
    wire::sum(&packet[12..20]) + u32::from(ip.protocol) + bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP packet of 1 byte, 10.0.0.1 to 10.0.0.2, with a right checksum.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 20 + 20 + 1];
        frame[12..14].copy_from_slice(&wire::TYPE_IPV4.to_be_bytes());
        let packet = &mut frame[ETHERNET..];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[32] = 5 << 4;
        packet[40] = 77;
        wire::cut(packet, 20, 41, 0, false);
        let ip = Ipv4::read(packet).expect("a header");
        let right = wire::finish(pseudo_sum(packet, &ip) + wire::sum(&packet[20..]));
        packet[36..38].copy_from_slice(&right.to_be_bytes());
        frame
    }

    #[test]
    fn a_checksum_is_verified_unless_the_link_has() {
        let good = frame();
        let plain = [0; VNET_HEADER];
        assert!(is_right(&good, &plain));
        for at in ETHERNET + 20..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(!is_right(&bad, &plain), "byte {at}");
            let mut checked = plain;
            checked[0] = CHECKED;
            assert!(is_right(&bad, &checked));
        }
    }

    #[test]
    fn a_checksum_that_is_left_is_the_sum_that_a_device_completes() {
        let good = frame();
        let mut left = good.clone();
        let vnet = leave_checksum(&mut left, None);
        assert_eq!((vnet[0], vnet[1]), (NEEDS_CHECKSUM, NO_SEGMENTS));
        // As a device does: the sum from the start on, which has the pseudo-header's in it.
        let start = usize::from(u16::from_ne_bytes([vnet[6], vnet[7]]));
        let at = start + usize::from(u16::from_ne_bytes([vnet[8], vnet[9]]));
        let whole = wire::finish(wire::sum(&left[start..]));
        left[at..at + 2].copy_from_slice(&whole.to_be_bytes());
        assert_eq!(left, good);
        let vnet = leave_checksum(&mut left, NonZeroU16::new(1460));
        let put = [54_u16.to_ne_bytes(), 1460_u16.to_ne_bytes()].concat();
        assert_eq!((vnet[1], &vnet[2..6]), (TCP_SEGMENTS, &put[..]));
    }
}
