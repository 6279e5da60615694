//! The memory of a pool in one domain.
//!
//! | trust | the creator | everybody else |
//! |---|---|---|
//! | full, half | maps it | maps the same memfd, writable |
//! | producer | maps it, the only writer | maps the same memfd, read-only |
//! | none, or carried bytes | maps it | makes memory of its own, which only it can write |
//! | none | besides, for each channel over which it sends, what was sent over it (`staging`) | the same |
//! | none, large buffers | each buffer a memfd by itself (`pieces`) | the same, of those it was sent |

mod budget;
mod carried;
mod pieces;
mod staging;

use crate::account::{Account, Charge};
use crate::{Access, Error, Kind, PoolInfo, Trust};
use budget::Budget;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tranship_region::{Guarded, MakeError, RoMapping, Sealing, View, guarded, verify_as};
use tranship_sys::map::{self, Within};
use tranship_sys::process::identity;
use tranship_sys::{limits, memfd};

pub(crate) use pieces::{Pieces, Sent};
pub(crate) use staging::Staging;

/// From this buffer size on a pool of level `none` sends each buffer in a sealed memfd of its own, unless its program says
/// otherwise ([`crate::Domain::seal_from`]), and only where the kernel gives memfds huge pages. Smaller ones are copied out
/// by the receiver, which is faster: `docs/bulk.md` has the measurements.
pub const SEAL_FROM_BYTES: u64 = 4 << 20;

/// Are buffers of this size to be sealed, each by itself? `from` is what the program says.
pub(crate) fn seals(buffer_bytes: u64, from: Option<u64>) -> bool {
    match from {
        Some(from) => buffer_bytes >= from,
        None => buffer_bytes >= SEAL_FROM_BYTES && limits::shmem_huge_pages(),
    }
}

/// A pool's bytes here.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) map: Guarded,
    /// All of it, for others; None where there are pieces.
    fd: Option<Arc<OwnedFd>>,
    buffer_bytes: usize,
    budget: OnceLock<Budget>,
    /// It is being made into pieces, or has been: it is one no more.
    split: AtomicBool,
    /// All of it, readable whatever `map` allows: for carriers of bytes.
    readable: OnceLock<RoMapping>,
    /// For memory that this domain made; held until it is dropped.
    charge: Option<Charge>,
}

fn length(info: &PoolInfo) -> Result<(usize, usize), Error> {
    let page = tranship_sys::page_size();
    let bytes = usize::try_from(info.buffer_bytes).map_err(Error::of(Kind::AllocSize))?;
    if bytes == 0 || !bytes.is_multiple_of(page) {
        return Err(Kind::AllocSize.into());
    }
    let count = usize::try_from(info.buffers).map_err(Error::of(Kind::AllocCount))?;
    let len = bytes.checked_mul(count).ok_or(Kind::AllocCount)?;
    if len == 0 || isize::try_from(len).is_err() {
        return Err(Kind::AllocCount.into());
    }
    Ok((bytes, len))
}

fn sealing(trust: Trust) -> Sealing {
    match trust {
        Trust::Full | Trust::Half => Sealing::Shared,
        Trust::Producer | Trust::None => Sealing::OneWriter,
    }
}

impl Memory {
    /// New memory, not sealed: nobody is shown it yet.
    pub(crate) fn make(
        info: &PoolInfo,
        account: &Arc<Account>,
        within: Within,
    ) -> Result<Memory, Error> {
        let (buffer_bytes, len) = length(info)?;
        let charge = account.charge(len as u64)?;
        let huge = buffer_bytes >= guarded::HUGE;
        let made = Guarded::make_within("tranship-bulk", len, huge, within);
        let nowhere = |error: &std::io::Error| error.kind() == ErrorKind::AddrNotAvailable;
        let (fd, map) = made.map_err(|error| match &error {
            MakeError::Io { source, .. } if nowhere(source) => Error::of(Kind::PoolMap)(error),
            _ => error.into(),
        })?;
        Ok(Memory::new(map, Some(Arc::new(fd)), buffer_bytes).charged(charge))
    }

    fn new(map: Guarded, fd: Option<Arc<OwnedFd>>, buffer_bytes: usize) -> Memory {
        Memory {
            map,
            fd,
            buffer_bytes,
            budget: OnceLock::new(),
            split: AtomicBool::new(false),
            readable: OnceLock::new(),
            charge: None,
        }
    }

    /// Addresses for pieces. What this domain writes in them, or makes to be written, is charged to it as if it did that to
    /// all of them.
    pub(crate) fn reserve(
        info: &PoolInfo,
        account: &Arc<Account>,
        within: Within,
    ) -> Result<Memory, Error> {
        let (buffer_bytes, len) = length(info)?;
        let charge = account.charge(len as u64)?;
        let within = match buffer_bytes {
            guarded::HUGE.. => within.aligned(guarded::HUGE),
            _ => within,
        };
        let map = Guarded::reserve(len, within).map_err(Error::of(Kind::PoolMap))?;
        Ok(Memory::new(map, None, buffer_bytes).charged(charge))
    }

    fn charged(mut self, charge: Charge) -> Memory {
        self.charge = Some(charge);
        self
    }

    /// Asks for as much again as one buffer has; None: nobody is charged for this memory.
    fn charge_more(&self) -> Result<Option<Charge>, Error> {
        let more = |charge: &Charge| charge.more(self.buffer_bytes as u64);
        self.charge.as_ref().map(more).transpose()
    }

    /// One sealed piece by itself, to be read.
    pub(crate) fn of_piece(fd: Arc<OwnedFd>, len: usize) -> Result<Memory, Error> {
        let map = Guarded::reserve(len, Within::ANYWHERE).map_err(Error::of(Kind::OutOfMemory))?;
        let placed = map.place_private(0, len, &*fd, map::Access::Read);
        placed.map_err(Error::of(Kind::OutOfMemory))?;
        let memory = Memory::new(map, Some(fd), len);
        memory.begin_to_split();
        Ok(memory)
    }

    /// Sees to it that each of the buffers can be a mapping by itself and, if `sealed`, a descriptor.
    pub(crate) fn take_budget(&self, buffers: u32, sealed: bool) -> Result<(), Error> {
        if self.budget.get().is_none() {
            let _ = self.budget.set(Budget::take(buffers, sealed)?);
            if !sealed {
                self.map.keep_apart(self.buffer_bytes);
            }
        }
        Ok(())
    }

    /// As [`Memory::make`], for a domain that did not create the pool: nothing is accessible yet.
    pub(crate) fn make_own(
        info: &PoolInfo,
        trust: Trust,
        account: &Arc<Account>,
        within: Within,
    ) -> Result<Memory, Error> {
        let memory = Memory::make(info, account, within)?;
        memory.seal(trust).map_err(Error::of(Kind::OutOfMemory))?;
        memory.close_all()?;
        Ok(memory)
    }

    /// Seals what [`Memory::make`] made, as its trust level wants it.
    pub(crate) fn seal(&self, trust: Trust) -> Result<(), Error> {
        let fd = self.fd.as_ref().ok_or(Kind::PoolMap)?;
        guarded::seal(fd, sealing(trust)).map_err(Error::of(Kind::PoolMap))
    }

    /// Maps what the other end has shown, after looking whether it is what its level prescribes.
    pub(crate) fn open(
        info: &PoolInfo,
        trust: Trust,
        fd: Arc<OwnedFd>,
        within: Within,
    ) -> Result<Memory, Error> {
        let (buffer_bytes, len) = length(info)?;
        verify_as(&*fd, len, sealing(trust)).map_err(Error::of(Kind::PoolMap))?;
        let most = match trust {
            Trust::Full | Trust::Half => map::Access::ReadWrite,
            Trust::Producer | Trust::None => map::Access::Read,
        };
        let map = Guarded::map_within(&*fd, len, most, within).map_err(Error::of(Kind::PoolMap))?;
        let memory = Memory::new(map, Some(fd), buffer_bytes);
        if trust == Trust::Half {
            memory.close_all()?;
        }
        Ok(memory)
    }

    /// Maps the other end's [`Staging`], to take snapshots of. [`Kind::PoolMap`] if it is not what it should be.
    pub(crate) fn open_mirror(info: &PoolInfo, fd: &OwnedFd) -> Result<RoMapping, Error> {
        let (_, len) = length(info)?;
        verify_as(fd, len, Sealing::OneWriter).map_err(Error::of(Kind::PoolMap))?;
        RoMapping::map(fd, len).map_err(Error::of(Kind::OutOfMemory))
    }

    fn close_all(&self) -> Result<(), Error> {
        let closed = self.map.protect(0, self.map.len(), map::Access::None);
        closed.map_err(Error::of(Kind::PoolMap))
    }

    pub(crate) fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.fd.clone()
    }

    /// All of it, however its pieces are protected.
    pub(crate) fn readable(&self) -> Result<View<'_>, Error> {
        if let Some(map) = self.readable.get() {
            return Ok(map.view());
        }
        if self.is_split() {
            // One piece, which stays readable.
            return self.view(0);
        }
        let fd = self.fd.as_ref().ok_or(Kind::OutOfMemory)?;
        let map = RoMapping::map(fd, self.map.len()).map_err(Error::of(Kind::OutOfMemory))?;
        Ok(self.readable.get_or_init(|| map).view())
    }

    /// Is this what we have already?
    pub(crate) fn is_same(&self, fd: &OwnedFd) -> bool {
        let Some(own) = &self.fd else { return false };
        matches!((identity(own), identity(fd)), (Ok(a), Ok(b)) if a == b)
    }

    pub(crate) fn base(&self) -> u64 {
        self.map.base().addr() as u64
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Where a buffer begins. The index was checked against the pool's count.
    pub(crate) fn offset(&self, index: u32) -> usize {
        index as usize * self.buffer_bytes
    }

    pub(crate) fn protect(&self, index: u32, access: Access) -> Result<(), Error> {
        let access = match access {
            Access::None => map::Access::None,
            Access::Read => map::Access::Read,
            Access::ReadWrite => map::Access::ReadWrite,
        };
        let piece = (self.offset(index), self.buffer_bytes);
        let done = self.map.protect(piece.0, piece.1, access);
        done.map_err(Error::of(Kind::BufferMap))
    }

    pub(crate) fn view(&self, index: u32) -> Result<View<'_>, Error> {
        let view = self.map.view(self.offset(index), self.buffer_bytes);
        view.map_err(Error::of(Kind::BufferInvalid))
    }

    pub(crate) fn is_split(&self) -> bool {
        // Ordering: relaxed; the domain's lock orders it.
        self.split.load(Ordering::Relaxed)
    }

    fn begin_to_split(&self) {
        // Ordering: relaxed; as above.
        self.split.store(true, Ordering::Relaxed);
    }

    /// A buffer has memory elsewhere: gives back what it had in the whole.
    fn forget(&self, index: u32) {
        if let Some(fd) = &self.fd {
            // What stays is memory too much until the pool ends.
            let _ = memfd::punch(fd, self.offset(index) as u64, self.buffer_bytes as u64);
        }
    }
}
