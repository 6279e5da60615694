//! A device for smoltcp whose frames are mbufs.
//!
//! A received frame is in a cluster, and the token lends that cluster itself: nothing is copied. smoltcp needs one slice
//! that stays as it is. A chain, and a frame whose writer is not trusted, are copied into one piece, and counted.

use crate::link::{Link, is_right, leave_checksum, room};
use crate::tap::{Offload, Tap, VNET_HEADER};
use crate::wire::ETHERNET;
use rustix::fd::{AsFd, BorrowedFd};
use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::time::Instant;
use std::io;
use std::num::NonZeroUsize;
use tranship_mbuf::{Chain, ClusterSize, Mbufs};

/// The frames and bytes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    /// Frames that came.
    pub received: u64,
    /// Frames that went.
    pub sent: u64,
    /// Received frames that were copied into one private piece.
    pub linearised: u64,
    /// The bytes of those frames.
    pub linearised_bytes: u64,
    /// Frames that were lost: no mbuf was free, the link had no room, or a checksum was wrong.
    pub dropped: u64,
}

/// A link, most often a TAP device, over an allocator of mbufs.
#[derive(Debug)]
pub struct MbufDevice<L = Tap> {
    link: L,
    mbufs: Mbufs,
    mtu: usize,
    cluster: ClusterSize,
    frames: Frames,
    error: Option<io::Error>,
}

impl<L: Link> MbufDevice<L> {
    /// Makes a device for frames of up to `mtu` bytes of payload (at most 16 KiB with their header), received into
    /// clusters of a size. A link with [`Offload::Segments`] has longer ones.
    #[must_use]
    pub fn new(link: L, mbufs: Mbufs, mtu: usize, cluster: ClusterSize) -> Self {
        Self {
            link,
            mbufs,
            mtu,
            cluster,
            frames: Frames::default(),
            error: None,
        }
    }

    /// Returns the link.
    #[must_use]
    pub fn link(&self) -> &L {
        &self.link
    }

    pub(crate) fn mbufs(&self) -> &Mbufs {
        &self.mbufs
    }

    /// Returns the counters of the device so far.
    #[must_use]
    pub fn frames(&self) -> Frames {
        self.frames
    }

    /// Takes the first error of the device since the last call; smoltcp has no way to report it.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Returns the cluster size for a frame to be sent: smoltcp writes one slice.
    fn cluster_to_send(&self) -> ClusterSize {
        match self.link.offload() {
            Offload::None => ClusterSize::for_bytes(self.mtu + ETHERNET),
            Offload::Segments => None,
        }
        .unwrap_or(ClusterSize::Jumbo16)
    }

    /// Takes a frame and its vnet header off the link; `None`: there is none, or no mbuf for it.
    fn take(&mut self) -> Option<(Chain, [u8; VNET_HEADER])> {
        let offload = self.link.offload();
        let room = room(offload, self.mtu);
        let mut vnet = [0; VNET_HEADER];
        let mut chain = match self.link.receive(&self.mbufs, self.cluster, room) {
            Ok(chain) => chain?,
            Err(error) => {
                self.error.get_or_insert(error);
                return None;
            }
        };
        self.frames.received += 1;
        if offload == Offload::Segments {
            // A frame that is shorter than the header is empty then, and refused.
            let _ = chain.copydata(0, &mut vnet);
            chain.trim_front(VNET_HEADER);
        }
        Some((chain, vnet))
    }

    /// Returns the frame as one slice that stays as it is; `None`: there is no memory, or its checksum is wrong.
    fn lend(&mut self, chain: Chain, vnet: &[u8; VNET_HEADER]) -> Option<Received> {
        let is_one = chain.count() == 1 && chain.iter().all(|mbuf| mbuf.bytes().is_some());
        let received = if is_one {
            Received(chain)
        } else {
            self.frames.linearised += 1;
            self.frames.linearised_bytes += chain.len() as u64;
            Received(linear(&self.mbufs, &chain).ok()?)
        };
        let verify = self.link.offload() == Offload::Segments;
        (!verify || is_right(received.bytes(), vnet)).then_some(received)
    }
}

impl<L: Link> Device for MbufDevice<L> {
    type RxToken<'a>
        = Received
    where
        L: 'a;
    type TxToken<'a>
        = Sending<'a, L>
    where
        L: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_, L>)> {
        // The answer's mbuf comes first: a frame that cannot be answered stays in the kernel's queue.
        let answer = self.mbufs.getjcl(self.cluster_to_send()).ok()?;
        let received = loop {
            let (chain, vnet) = self.take()?;
            match self.lend(chain, &vnet) {
                Some(received) => break received,
                None => self.frames.dropped += 1,
            }
        };
        Some((received, self.sending(answer)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_, L>> {
        if !self.link.has_room() {
            return None;
        }
        let packet = self.mbufs.getjcl(self.cluster_to_send()).ok()?;
        Some(self.sending(packet))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET;
        if self.link.offload() == Offload::Segments {
            capabilities.checksum.tcp = Checksum::None;
            capabilities.checksum.udp = Checksum::None;
            capabilities.segmentation.tcpv4 = NonZeroUsize::new(ClusterSize::Jumbo16.bytes());
        }
        capabilities
    }
}

impl<L> MbufDevice<L> {
    fn sending(&mut self, packet: Chain) -> Sending<'_, L> {
        Sending {
            packet,
            link: &self.link,
            meta: PacketMeta::default(),
            frames: &mut self.frames,
            error: &mut self.error,
        }
    }
}

/// Copies the frame into one piece.
fn linear(mbufs: &Mbufs, chain: &Chain) -> Result<Chain, tranship_mbuf::Error> {
    let len = chain.len();
    let Some(cluster) = ClusterSize::for_bytes(len) else {
        let mut whole = vec![0; len];
        chain.copydata(0, &mut whole)?;
        let mut long = mbufs.mini()?;
        long.attach_mut(whole).map_err(|(error, _)| error)?;
        return Ok(long);
    };
    let mut whole = mbufs.getjcl(cluster)?;
    let mut copied = Ok(());
    let _ = whole.fill_with(|slices| {
        copied = chain.copydata(0, &mut slices[0][..len]);
        Ok(len)
    });
    copied.map(|()| whole)
}

/// A received frame.
#[derive(Debug)]
pub struct Received(Chain);

impl Received {
    fn bytes(&self) -> &[u8] {
        let first = self.0.iter().next().and_then(|mbuf| mbuf.bytes());
        first.unwrap_or_default()
    }
}

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(self.bytes())
    }
}

/// The permission to send a frame, with the frame's mbuf.
#[derive(Debug)]
pub struct Sending<'a, L> {
    packet: Chain,
    link: &'a L,
    meta: PacketMeta,
    frames: &'a mut Frames,
    error: &'a mut Option<io::Error>,
}

impl<L: Link> phy::TxToken for Sending<'_, L> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, len: usize, work: F) -> R {
        let (mut result, mut vnet) = (None, [0; VNET_HEADER]);
        let segment = self.meta.segmentation_offload_size;
        let leaves = self.link.offload() == Offload::Segments;
        let written = self.packet.fill_with(|slices| {
            let frame = &mut slices[0][..len];
            result = Some(work(frame));
            if leaves {
                vnet = leave_checksum(frame, segment);
            }
            Ok(len)
        });
        match written.and_then(|_| self.link.send(&self.packet, &vnet)) {
            Ok(true) => self.frames.sent += 1,
            Ok(false) => self.frames.dropped += 1,
            Err(error) => _ = self.error.get_or_insert(error),
        }
        result.expect("`fill_with` calls once")
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.meta = meta;
    }
}

impl<L: AsFd> AsFd for MbufDevice<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
