//! Owned mappings of whole memfds.

use crate::View;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use tranship_sys::{ForkGuard, map};

/// The part that both kinds share. It unmaps when dropped, except in a forked child, which did not inherit the mapping
/// and may have another one at these addresses.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
    guard: ForkGuard,
}

impl Owned {
    pub(crate) fn new(fd: impl AsFd, access: map::Access, len: usize) -> io::Result<Owned> {
        let guard = ForkGuard::new()?;
        let base = map::map_shared(fd, access, len, 0)?;
        Ok(Owned { base, len, guard })
    }

    /// Moves the pages to the addresses of `other`, whose pages are unmapped in the same step. Returns itself if that
    /// is impossible.
    fn take_place_of(mut self, other: &Owned) -> Result<(), Owned> {
        if self.len != other.len {
            return Err(self);
        }
        // SAFETY: both ranges are mappings of that length that their owners keep. A reader through `other` finds mapped
        // pages at every moment, and reads both kinds of pages as memory that others may write.
        match unsafe { map::move_onto(self.base, self.len, other.base) } {
            Ok(()) => {
                self.len = 0;
                Ok(())
            }
            Err(_) => Err(self),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A mapping that has moved leaves nothing here.
        if self.len > 0 && !self.guard.is_child() {
            // SAFETY: made by `new`, dropped once, and all that points into it borrows from it.
            let _ = unsafe { map::unmap(self.base, self.len) };
        }
    }
}

// SAFETY: an address range; the code that reads or writes its contents is responsible for them.
unsafe impl Send for Owned {}
// SAFETY: as for Send.
unsafe impl Sync for Owned {}

macro_rules! mapping {
    ($name:ident) => {
        impl $name {
            /// Returns the length, bytes.
            #[inline]
            pub fn len(&self) -> usize {
                self.0.len
            }

            /// Returns false: a mapping has at least one page.
            #[inline]
            pub fn is_empty(&self) -> bool {
                false
            }

            /// Returns a view of the whole mapping, for reading while another process may write it.
            #[inline]
            pub fn view(&self) -> View<'_> {
                // SAFETY: mapped and readable for as long as `self` lives.
                unsafe { View::new(self.0.base.as_ptr(), self.0.len) }
            }

            /// Says whether this is a forked child, in which the memory is not mapped.
            #[inline]
            pub fn is_forked_child(&self) -> bool {
                self.0.guard.is_child()
            }

            /// Returns the address of `T` at `offset`, checked for bounds and alignment.
            pub fn at<T>(&self, offset: usize) -> NonNull<T> {
                self.array(offset, 1)
            }

            /// Returns the address of `count` of `T` at `offset`, checked for bounds and alignment. The values come
            /// from the layouts, never from a peer: a violation is an error in this code.
            pub fn array<T>(&self, offset: usize, count: usize) -> NonNull<T> {
                let end = size_of::<T>()
                    .checked_mul(count)
                    .and_then(|bytes| bytes.checked_add(offset));
                assert!(end.is_some_and(|end| end <= self.0.len));
                // SAFETY: the bound was just checked.
                let at = unsafe { self.0.base.add(offset) }.cast::<T>();
                assert!(at.is_aligned());
                at
            }
        }
    };
}

/// A mapping for reading only. Its writer may change it at any time.
#[derive(Debug)]
pub struct RoMapping(Owned);
mapping!(RoMapping);

impl RoMapping {
    /// Maps the first `len` bytes. The file must have been verified: otherwise touching it may raise SIGBUS.
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<RoMapping> {
        Ok(RoMapping(Owned::new(fd, map::Access::Read, len)?))
    }

    /// Shows another file of the same length at the same addresses from now on: pointers into `self` stay valid.
    /// Returns the other mapping if that is impossible.
    pub(crate) fn show_instead(&self, other: RoMapping) -> Result<(), RoMapping> {
        other.0.take_place_of(&self.0).map_err(RoMapping)
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn base(&self) -> *const u8 {
        self.0.base.as_ptr()
    }
}

/// A mapping for reading and writing.
#[derive(Debug)]
pub struct RwMapping(Owned);
mapping!(RwMapping);

impl RwMapping {
    /// Maps the first `len` bytes; for a region with one writer this works only before it is sealed.
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<RwMapping> {
        Ok(RwMapping(Owned::new(fd, map::Access::ReadWrite, len)?))
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.0.base.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Opts, RoMapping, make};

    fn mapped_at(addr: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        maps.contains(&format!("{addr:x}-"))
    }

    #[test]
    fn a_reader_sees_the_writer_and_drop_unmaps() {
        // Counted by name: another test may get the address at once.
        let mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
            maps.matches("drop-unmaps").count()
        };
        let len = tranship_sys::page_size();
        let (fd, rw) = make("drop-unmaps", len, Opts::default()).expect("make");
        let ro = RoMapping::map(&fd, len).expect("map");
        // SAFETY: in bounds, and no reference to it exists.
        unsafe { rw.base().add(5).write_volatile(9) };
        assert_eq!(ro.view().read::<u8>(5), Ok(9));
        assert_eq!(mapped(), 2);
        drop(ro);
        assert_eq!(mapped(), 1);
    }

    #[test]
    fn a_forked_child_has_no_mapping_and_dropping_there_unmaps_nothing() {
        let len = tranship_sys::page_size();
        let (_fd, rw) = make("test", len, Opts::default()).expect("make");
        let addr = rw.base();
        // SAFETY: the child only maps, reads /proc and leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let gone = !mapped_at(addr.addr()) && rw.is_forked_child();
            // Something of the child's own at the same address must survive the drop.
            // SAFETY: nothing is mapped there, as just seen.
            let own = unsafe {
                rustix::mm::mmap_anonymous(
                    addr.cast(),
                    len,
                    rustix::mm::ProtFlags::READ,
                    rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED_NOREPLACE,
                )
            };
            drop(rw);
            let kept = own.is_ok() && mapped_at(addr.addr());
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(gone && kept))) };
        }
        let pid = rustix::process::Pid::from_raw(pid);
        let status = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
        let (_, status) = status.expect("waitpid").expect("child");
        assert_eq!(status.exit_status(), Some(0));
        assert!(!rw.is_forked_child());
    }
}
