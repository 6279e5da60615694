//! A shared mapping over a memfd: what the raw ring lives in.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Mapped bytes, zeroed at the start; unmapped on drop.
#[derive(Debug)]
pub struct Shared {
    fd: OwnedFd,
    at: NonNull<u8>,
    len: usize,
}

impl Shared {
    /// Makes a memfd with all its pages there, and maps it.
    pub fn make(len: usize) -> Result<Self> {
        let fd = memfd_create("bench", MemfdFlags::CLOEXEC)?;
        fallocate(&fd, FallocateFlags::empty(), 0, len as u64)
            .with_context(|| format!("{len} bytes of shared memory"))?;
        Self::map(fd, len)
    }

    /// Maps one that another process made.
    pub fn map(fd: OwnedFd, len: usize) -> Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing. POPULATE: no fault
        // while we measure.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED | MapFlags::POPULATE,
                &fd,
                0,
            )?
        };
        Ok(Self {
            fd,
            at: NonNull::new(at.cast()).context("mapped at 0")?,
            len,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The address of `offset`, which must leave `len` bytes behind it.
    pub fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{offset}+{len} of {}",
            self.len
        );
        // SAFETY: inside the mapping, as just checked; it stays mapped as long as `self` lives.
        unsafe { self.at.add(offset) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of exactly this length; every user of its addresses is dropped before.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
