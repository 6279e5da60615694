//! The memory of a pool in one domain.
//!
//! | trust | the creator | everybody else |
//! |---|---|---|
//! | full, half | maps it | maps the same memfd, writable |
//! | producer | maps it, the only writer | maps the same memfd, read-only |
//! | none, or carried bytes | maps it | makes memory of its own, which only it can write |

use crate::account::{Account, Charge};
use crate::{Access, Code, PoolInfo, Trust};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use tranship_region::{Guarded, RoMapping, Sealing, View, guarded, verify_as};
use tranship_sys::map;
use tranship_sys::process::identity;

/// A pool's bytes here.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) map: Guarded,
    /// What is shown to others; None where bytes are carried.
    fd: Arc<OwnedFd>,
    buffer_bytes: usize,
    /// All of it, readable whatever `map` allows: for carriers of bytes.
    readable: OnceLock<RoMapping>,
    /// For memory that this domain made.
    _charge: Option<Charge>,
}

fn length(info: &PoolInfo) -> Result<(usize, usize), Code> {
    let page = tranship_sys::page_size();
    let bytes = usize::try_from(info.buffer_bytes).map_err(|_| Code::AllocSize)?;
    if bytes == 0 || !bytes.is_multiple_of(page) {
        return Err(Code::AllocSize);
    }
    let count = usize::try_from(info.buffers).map_err(|_| Code::AllocCount)?;
    let len = bytes.checked_mul(count).ok_or(Code::AllocCount)?;
    if len == 0 || isize::try_from(len).is_err() {
        return Err(Code::AllocCount);
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
    pub(crate) fn make(info: &PoolInfo, account: &Arc<Account>) -> Result<Memory, Code> {
        let (buffer_bytes, len) = length(info)?;
        let charge = account.charge(len as u64)?;
        let made = Guarded::make("tranship-bulk", len, buffer_bytes >= 2 << 20);
        let (fd, map) = made.map_err(|_| Code::Memory)?;
        Ok(Memory {
            map,
            fd: Arc::new(fd),
            buffer_bytes,
            readable: OnceLock::new(),
            _charge: Some(charge),
        })
    }

    /// As [`Memory::make`], for a domain that did not create the pool: nothing is accessible yet. It may be shown on
    /// as the level prescribes.
    pub(crate) fn make_own(
        info: &PoolInfo,
        trust: Trust,
        account: &Arc<Account>,
    ) -> Result<Memory, Code> {
        let memory = Memory::make(info, account)?;
        guarded::seal(&memory.fd, sealing(trust)).map_err(|_| Code::Memory)?;
        memory.close_all()?;
        Ok(memory)
    }

    /// Seals what [`Memory::make`] made, as its trust level wants it.
    pub(crate) fn seal(&self, trust: Trust) -> Result<(), Code> {
        guarded::seal(&self.fd, sealing(trust)).map_err(|_| Code::PoolMap)
    }

    /// Maps what the other end has shown, after looking whether it is what its level prescribes.
    pub(crate) fn open(info: &PoolInfo, trust: Trust, fd: Arc<OwnedFd>) -> Result<Memory, Code> {
        let (buffer_bytes, len) = length(info)?;
        verify_as(&*fd, len, sealing(trust)).map_err(|_| Code::PoolMap)?;
        let most = match trust {
            Trust::Full | Trust::Half => map::Access::ReadWrite,
            Trust::Producer | Trust::None => map::Access::Read,
        };
        let map = Guarded::map(&*fd, len, most).map_err(|_| Code::PoolMap)?;
        let memory = Memory {
            map,
            fd,
            buffer_bytes,
            readable: OnceLock::new(),
            _charge: None,
        };
        if trust == Trust::Half {
            memory.close_all()?;
        }
        Ok(memory)
    }

    /// Maps the other end's own memory, to take snapshots of.
    pub(crate) fn open_mirror(info: &PoolInfo, fd: &OwnedFd) -> Result<RoMapping, Code> {
        let (_, len) = length(info)?;
        verify_as(fd, len, Sealing::OneWriter).map_err(|_| Code::PoolMap)?;
        RoMapping::map(fd, len).map_err(|_| Code::PoolMap)
    }

    fn close_all(&self) -> Result<(), Code> {
        let closed = self.map.protect(0, self.map.len(), map::Access::None);
        closed.map_err(|_| Code::PoolMap)
    }

    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// The file behind it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// All of it, however its pieces are protected.
    pub(crate) fn readable(&self) -> Result<View<'_>, Code> {
        if let Some(map) = self.readable.get() {
            return Ok(map.view());
        }
        let map = RoMapping::map(&*self.fd, self.map.len()).map_err(|_| Code::Memory)?;
        Ok(self.readable.get_or_init(|| map).view())
    }

    /// Is this what we have already?
    pub(crate) fn is_same(&self, fd: &OwnedFd) -> bool {
        matches!((identity(&*self.fd), identity(fd)), (Ok(a), Ok(b)) if a == b)
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

    pub(crate) fn protect(&self, index: u32, access: Access) -> Result<(), Code> {
        let access = match access {
            Access::None => map::Access::None,
            Access::Read => map::Access::Read,
            Access::ReadWrite => map::Access::ReadWrite,
        };
        let piece = (self.offset(index), self.buffer_bytes);
        let done = self.map.protect(piece.0, piece.1, access);
        done.map_err(|_| Code::BufferMap)
    }
}
