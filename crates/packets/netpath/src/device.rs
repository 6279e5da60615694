//! A TAP device for smoltcp whose frames are mbufs.
//!
//! A received frame is in a cluster, and the token lends that cluster itself: nothing is copied. A longer frame is a
//! chain. smoltcp needs one slice, so such a chain is linearised, and counted.

use crate::tap::Tap;
use crate::wire::ETHERNET;
use rustix::fd::{AsFd, BorrowedFd};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use std::io;
use tranship_mbuf::{Chain, ClusterSize, Mbufs};

/// The frames and bytes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    /// Frames that came.
    pub received: u64,
    /// Frames that went.
    pub sent: u64,
    /// Received frames in more than one cluster that were copied into one piece.
    pub linearised: u64,
    /// Frames that were lost: no mbuf was free, or the kernel had no room.
    pub dropped: u64,
}

/// A TAP device over an allocator of mbufs.
#[derive(Debug)]
pub struct MbufDevice {
    tap: Tap,
    mbufs: Mbufs,
    mtu: usize,
    cluster: ClusterSize,
    frames: Frames,
    error: Option<io::Error>,
}

impl MbufDevice {
    /// Makes a device for frames of up to `mtu` bytes of payload (at most 16 KiB with their header), received into
    /// clusters of a size.
    #[must_use]
    pub fn new(tap: Tap, mbufs: Mbufs, mtu: usize, cluster: ClusterSize) -> Self {
        Self {
            tap,
            mbufs,
            mtu,
            cluster,
            frames: Frames::default(),
            error: None,
        }
    }

    /// Returns the counters of the device so far.
    #[must_use]
    pub fn frames(&self) -> Frames {
        self.frames
    }

    /// Returns the cluster size for a frame to be sent: smoltcp writes one slice.
    fn cluster_for(&self, bytes: usize) -> ClusterSize {
        ClusterSize::for_bytes(bytes).unwrap_or(ClusterSize::Jumbo16)
    }

    /// Takes the first error of the device since the last call; smoltcp has no way to report it.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }
}

/// Takes a frame of at most `room` bytes off a device, into a chain of clusters of that size. Returns `None` if there
/// is no frame, or no mbuf for it. In the latter case it stays in the kernel's queue.
///
/// # Errors
/// The device's error.
pub fn receive(
    tap: &Tap,
    mbufs: &Mbufs,
    cluster: ClusterSize,
    room: usize,
) -> io::Result<Option<Chain>> {
    let Ok(mut chain) = mbufs.getjcl(cluster) else {
        return Ok(None);
    };
    let more = room.saturating_sub(cluster.bytes());
    if more > 0 && chain.reserve(more).is_err() {
        return Ok(None);
    }
    let bytes = chain.fill_with(|slices| tap.receive(slices).map(Option::unwrap_or_default))?;
    mbufs.count_size(bytes);
    Ok((bytes > 0).then_some(chain))
}

impl Device for MbufDevice {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        // The answer's mbuf comes first: a frame that cannot be answered stays in the kernel's queue.
        let answer = self
            .mbufs
            .getjcl(self.cluster_for(self.mtu + ETHERNET))
            .ok()?;
        let got = receive(&self.tap, &self.mbufs, self.cluster, self.mtu + ETHERNET);
        let chain = match got {
            Ok(chain) => chain?,
            Err(error) => {
                self.error.get_or_insert(error);
                return None;
            }
        };
        self.frames.received += 1;
        let chain = if chain.count() > 1 {
            self.frames.linearised += 1;
            let Ok(whole) = linear(&self.mbufs, &chain) else {
                self.frames.dropped += 1;
                return None;
            };
            whole
        } else {
            chain
        };
        let sending = Sending {
            packet: answer,
            tap: &self.tap,
            frames: &mut self.frames,
            error: &mut self.error,
        };
        Some((Received(chain), sending))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        let packet = self
            .mbufs
            .getjcl(self.cluster_for(self.mtu + ETHERNET))
            .ok()?;
        Some(Sending {
            packet,
            tap: &self.tap,
            frames: &mut self.frames,
            error: &mut self.error,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET;
        capabilities
    }
}

/// Copies the frame into one cluster.
fn linear(mbufs: &Mbufs, chain: &Chain) -> Result<Chain, tranship_mbuf::Error> {
    let cluster = ClusterSize::for_bytes(chain.len()).unwrap_or(ClusterSize::Jumbo16);
    let mut whole = mbufs.getjcl(cluster)?;
    for piece in chain.iter().filter_map(|mbuf| mbuf.bytes()) {
        whole.append(piece)?;
    }
    Ok(whole)
}

/// A received frame.
#[derive(Debug)]
pub struct Received(Chain);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        let first = self.0.iter().next().and_then(|mbuf| mbuf.bytes());
        work(first.unwrap_or_default())
    }
}

/// The permission to send a frame, with the frame's mbuf.
#[derive(Debug)]
pub struct Sending<'a> {
    packet: Chain,
    tap: &'a Tap,
    frames: &'a mut Frames,
    error: &'a mut Option<io::Error>,
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, len: usize, work: F) -> R {
        let mut result = None;
        let written = self.packet.fill_with(|slices| {
            result = Some(work(&mut slices[0][..len]));
            Ok(len)
        });
        let sent = written.and_then(|_| {
            let slices = self.packet.io_slices().unwrap_or_default();
            self.tap.send(&slices)
        });
        match sent {
            Ok(true) => self.frames.sent += 1,
            Ok(false) => self.frames.dropped += 1,
            Err(error) => _ = self.error.get_or_insert(error),
        }
        result.expect("`fill_with` calls once")
    }
}

impl AsFd for MbufDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}
