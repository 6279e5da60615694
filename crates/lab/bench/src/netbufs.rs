//! The allocators that "Network Buffer Allocation in the FreeBSD Operating System" compares, made anew:
//!
//! | | |
//! |---|---|
//! | `4.x` | one list each of free mbufs and clusters, under a lock |
//! | `mballoc` | our zones with caches; the caller has them give no memory back |

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};

pub const MBUF: usize = 256;
pub const CLUSTER: usize = 2048;
const PAGE: usize = 4096;
const WINDOW: u64 = 1 << 30;

/// An mbuf and its cluster.
pub type Packet = [NonNull<u8>; 2];

pub trait PacketSource: Send + Sync {
    fn take(&self) -> Result<Packet>;
    /// # Safety
    /// The packet was taken from here, and is given back once.
    unsafe fn give(&self, packet: Packet);
}

/// `4.x`
pub struct Lists {
    arena: Arc<Arena>,
    free: [Mutex<Vec<NonNull<u8>>>; 2],
}

// SAFETY: the lists own their items, which are only memory.
unsafe impl Send for Lists {}
// SAFETY: as above; each list has a lock.
unsafe impl Sync for Lists {}

impl Lists {
    pub fn new() -> Result<Lists> {
        Ok(Lists {
            arena: Arc::new(Arena::private(WINDOW)?),
            free: Default::default(),
        })
    }
}

impl PacketSource for Lists {
    fn take(&self) -> Result<Packet> {
        let mut packet = [NonNull::dangling(); 2];
        for ((list, bytes), place) in self.free.iter().zip([MBUF, CLUSTER]).zip(&mut packet) {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            if list.is_empty() {
                let page = self.arena.alloc_pages(1).context("out of memory")?;
                // SAFETY: inside the page, which is ours.
                list.extend((0..PAGE).step_by(bytes).map(|at| unsafe { page.add(at) }));
            }
            *place = list.pop().context("no item")?;
        }
        Ok(packet)
    }

    unsafe fn give(&self, packet: Packet) {
        for (list, item) in self.free.iter().zip(packet) {
            list.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(item);
        }
    }
}

/// `mballoc`
pub struct Zones([ItemZone<Bytes>; 2]);

impl Zones {
    pub fn new() -> Result<Zones> {
        let arena = Arc::new(Arena::private(WINDOW)?);
        let zone = |name: &str, bytes: usize| -> Result<_> {
            let keg = ItemKeg::new(&arena, bytes as u64, bytes as u64)?;
            Ok(ItemZone::new(&keg, Bytes, ItemOptions::named(name)))
        };
        Ok(Zones([zone("mbuf", MBUF)?, zone("cluster", CLUSTER)?]))
    }
}

impl PacketSource for Zones {
    fn take(&self) -> Result<Packet> {
        let mut packet = [NonNull::dangling(); 2];
        for (zone, place) in self.0.iter().zip(&mut packet) {
            *place = zone.alloc(()).context("out of memory")?;
        }
        Ok(packet)
    }

    unsafe fn give(&self, packet: Packet) {
        for (zone, item) in self.0.iter().zip(packet) {
            // SAFETY: the caller promises it.
            unsafe { zone.free(item) };
        }
    }
}

/// Memory for a frame: the cluster of a packet.
pub struct Frame {
    of: Arc<dyn PacketSource>,
    packet: Packet,
}

// SAFETY: the frame owns its packet, which is only memory.
unsafe impl Send for Frame {}

impl Frame {
    /// Takes memory for a frame of at most `room` bytes, if a cluster has so many.
    pub fn take(of: &Arc<dyn PacketSource>, room: usize) -> Option<Frame> {
        let packet = (room <= CLUSTER).then(|| of.take().ok())??;
        let of = Arc::clone(of);
        // SAFETY: an mbuf, just taken. Its header is written as for each packet.
        unsafe { packet[0].write_bytes(0, 64) };
        Some(Frame { of, packet })
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: a cluster of this frame's alone, of memory that was zero when the arena got it.
        unsafe { NonNull::slice_from_raw_parts(self.packet[1], CLUSTER).as_mut() }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: taken from there, and given back here alone.
        unsafe { self.of.give(self.packet) };
    }
}
