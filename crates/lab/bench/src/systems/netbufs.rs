//! Allocators of network buffers: our mbufs, and what the paper compares with, made anew over our zones: what FreeBSD had (`4.x`,
//! `mballoc`).

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tranship_items::reaper::{self, Driver};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};
use tranship_mbuf::{Chain, Mbufs};

pub const MBUF: usize = 256;
pub const CLUSTER: usize = 2048;
const WINDOW: u64 = 4 << 30;

/// An mbuf with its cluster.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    pub mbuf: NonNull<u8>,
    pub cluster: NonNull<u8>,
}

// SAFETY: plain memory, handed over as a whole.
unsafe impl Send for Packet {}

/// Gives packets and takes them back, on any thread.
pub trait NetBufs: Sync {
    fn get(&self) -> Option<Packet>;
    /// Writes all of a packet that was just taken, but what is the allocator's.
    ///
    /// # Safety
    /// It came from `get`, was not filled before, and is the caller's alone.
    unsafe fn fill(&self, packet: Packet) {
        // SAFETY: the caller's. The first words of the mbuf are the allocator's.
        unsafe {
            packet.mbuf.add(16).write_bytes(1, MBUF - 16);
            packet.cluster.write_bytes(2, CLUSTER);
        }
    }
    /// # Safety
    /// It came from `get` and is given back once.
    unsafe fn put(&self, packet: Packet);
    /// What its author did about memory that is not needed any more.
    fn reclaims(&self) -> bool;
}

/// The systems, in the order in which they run.
pub const NAMES: [&str; 3] = ["tranship", "4.x", "mballoc"];

pub fn open(name: &str) -> Result<Box<dyn NetBufs>> {
    Ok(match name {
        "4.x" => Box::new(Lists::new()?),
        "mballoc" => Box::new(Zones::new()?),
        "tranship" => Box::new(Product(Mbufs::new()?)),
        _ => anyhow::bail!("no system {name}"),
    })
}

/// FreeBSD 4.x: one list of free mbufs and one of free clusters, each under a lock; pages never go back.
struct Lists {
    arena: Arena,
    free: [Mutex<Option<Link>>; 2],
}

#[derive(Clone, Copy)]
struct Link(NonNull<u8>);

// SAFETY: free memory, reached under the list's lock only.
unsafe impl Send for Link {}

const SIZES: [usize; 2] = [MBUF, CLUSTER];
const PAGE: usize = 4096;

impl Lists {
    fn new() -> Result<Self> {
        Ok(Self {
            arena: Arena::private(WINDOW)?,
            free: Default::default(),
        })
    }

    fn pop(&self, which: usize) -> Option<NonNull<u8>> {
        let mut head = self.free[which]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if head.is_none() {
            let page = self.arena.alloc_pages(1)?;
            for at in (0..PAGE).step_by(SIZES[which]).rev() {
                // SAFETY: inside the page, which is ours.
                unsafe { push(&mut head, page.add(at)) };
            }
        }
        let Link(item) = (*head)?;
        // SAFETY: a free item holds the link that `push` wrote.
        *head = unsafe { item.cast::<Option<Link>>().read() };
        Some(item)
    }

    /// # Safety
    /// The item is of this size, from here, and nobody's.
    unsafe fn give(&self, which: usize, item: NonNull<u8>) {
        let mut head = self.free[which]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: passed on to the caller.
        unsafe { push(&mut head, item) };
    }
}

/// # Safety
/// `item` is nobody's, and has room for a link.
unsafe fn push(head: &mut Option<Link>, item: NonNull<u8>) {
    // SAFETY: passed on to the caller.
    unsafe { item.cast::<Option<Link>>().write(*head) };
    *head = Some(Link(item));
}

impl NetBufs for Lists {
    fn get(&self) -> Option<Packet> {
        let mbuf = self.pop(0)?;
        let Some(cluster) = self.pop(1) else {
            // SAFETY: just taken.
            unsafe { self.give(0, mbuf) };
            return None;
        };
        Some(Packet { mbuf, cluster })
    }

    unsafe fn put(&self, packet: Packet) {
        // SAFETY: passed on to the caller.
        unsafe {
            self.give(1, packet.cluster);
            self.give(0, packet.mbuf);
        }
    }

    fn reclaims(&self) -> bool {
        false
    }
}

/// An mbuf zone and a cluster zone. Without reclamation: early FreeBSD 5's mballoc, with its caches per processor and its
/// common cache of buckets.
struct Zones {
    mbufs: ItemZone<Bytes>,
    clusters: ItemZone<Bytes>,
}

impl Zones {
    fn new() -> Result<Self> {
        reaper::set_driver(Driver::Nobody);
        let arena = Arc::new(Arena::private(WINDOW)?);
        let zone = |name: &str, bytes: usize| -> Result<_> {
            let keg = ItemKeg::new(&arena, bytes as u64, bytes as u64)?;
            Ok(ItemZone::new(&keg, Bytes, ItemOptions::named(name)))
        };
        Ok(Self {
            mbufs: zone("mbuf", MBUF)?,
            clusters: zone("cluster", CLUSTER)?,
        })
    }
}

impl NetBufs for Zones {
    fn get(&self) -> Option<Packet> {
        let mbuf = self.mbufs.alloc(())?;
        let Some(cluster) = self.clusters.alloc(()) else {
            // SAFETY: just taken.
            unsafe { self.mbufs.free(mbuf) };
            return None;
        };
        Some(Packet { mbuf, cluster })
    }

    unsafe fn put(&self, packet: Packet) {
        // SAFETY: passed on to the caller.
        unsafe {
            self.clusters.free(packet.cluster);
            self.mbufs.free(packet.mbuf);
        }
    }

    fn reclaims(&self) -> bool {
        false
    }
}

/// The product, with its default limits: `getcl` and a drop. The first word is the chain.
struct Product(Mbufs);

impl NetBufs for Product {
    fn get(&self) -> Option<Packet> {
        let chain = self.0.getcl().ok()?;
        Some(Packet {
            mbuf: chain.into_raw().cast(),
            cluster: NonNull::dangling(),
        })
    }

    unsafe fn fill(&self, packet: Packet) {
        // SAFETY: `get` made it of a chain, which is the caller's alone, and becomes one again below.
        let mut chain = unsafe { Chain::from_raw(packet.mbuf.cast()) };
        chain
            .append(&[2; CLUSTER])
            .expect("a fresh packet has that much room");
        let _ = chain.into_raw();
    }

    unsafe fn put(&self, packet: Packet) {
        // SAFETY: `get` made it of a chain; given back once, says the caller.
        drop(unsafe { Chain::from_raw(packet.mbuf.cast()) });
    }

    fn reclaims(&self) -> bool {
        true
    }
}

/// Bytes of this process that are in memory.
pub fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).context("statm")?.parse::<u64>()?;
    Ok(pages * rustix::param::page_size() as u64)
}
