//! Mappings. Every shared mapping is kept out of forked children.
//!
//! `mmap` and `MADV_DONTFORK` are two calls: if another thread forks exactly between them, the child inherits that one
//! mapping. Linux offers no way to close this gap.

use crate::errno;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// The allowed use of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// `PROT_NONE`
    None,
    /// `PROT_READ`
    Read,
    /// `PROT_READ | PROT_WRITE`
    ReadWrite,
}

impl Access {
    fn prot(self) -> ProtFlags {
        match self {
            Access::None => ProtFlags::empty(),
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

fn non_null(ptr: *mut core::ffi::c_void) -> io::Result<NonNull<u8>> {
    NonNull::new(ptr.cast()).ok_or_else(|| io::Error::other("the kernel mapped page zero"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Reserves addresses without memory: `len` zeros that can be read and never written, aligned to `align` (a power
/// of two, at least a page).
pub fn reserve(len: usize, align: usize) -> io::Result<NonNull<u8>> {
    let base = reserve_as(Access::Read, len, align)?;
    // SAFETY: exactly the reservation just made, which no other code knows.
    unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork)? };
    Ok(base)
}

/// Reserves addresses that cannot be used yet, for private memory, aligned as for [`reserve`]. A forked child gets a
/// copy. They count only for the address space, and are in no dump: [`open_private`] makes parts of them usable.
pub fn reserve_closed(len: usize, align: usize) -> io::Result<NonNull<u8>> {
    reserve_undumped(Access::None, len, align)
}

/// Reserves addresses like [`reserve_closed`], but of zeros that can be read. They can be written once [`open_private`]
/// allows it.
pub fn reserve_read_only(len: usize, align: usize) -> io::Result<NonNull<u8>> {
    reserve_undumped(Access::Read, len, align)
}

fn reserve_undumped(access: Access, len: usize, align: usize) -> io::Result<NonNull<u8>> {
    let base = reserve_as(access, len, align)?;
    // A debugger dumps inaccessible memory too. Only the size of its dumps depends on this hint.
    // SAFETY: exactly the reservation just made, which no other code knows.
    let _ = unsafe { hint(base, len, Hint::DontDump) };
    Ok(base)
}

fn reserve_as(access: Access, len: usize, align: usize) -> io::Result<NonNull<u8>> {
    let page = crate::page_size();
    if len == 0 || !len.is_multiple_of(page) || !align.is_power_of_two() || align < page {
        return Err(invalid("reserve: length or alignment"));
    }
    let padded = len
        .checked_add(align - page)
        .ok_or_else(|| invalid("reserve: too long"))?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new anonymous mapping at an address the kernel picks touches no existing memory.
    let raw = unsafe { rustix::mm::mmap_anonymous(null_mut(), padded, access.prot(), flags)? };
    let start = raw.addr();
    let before = start.next_multiple_of(align) - start;
    let after = padded - before - len;
    // SAFETY: `before <= align - page`, so all three pieces lie inside the mapping just made, which no other code
    // knows; only the padding at both ends goes.
    unsafe {
        let base = raw.cast::<u8>().add(before).cast();
        if before > 0 {
            rustix::mm::munmap(raw, before)?;
        }
        if after > 0 {
            rustix::mm::munmap(raw.cast::<u8>().add(before + len).cast(), after)?;
        }
        non_null(base)
    }
}

/// The range in which a mapping must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Within {
    /// The mapping begins at a multiple of it, a power of two.
    pub align: usize,
    /// Begins there or behind.
    pub from: usize,
    /// Ends there or before.
    pub to: usize,
}

impl Within {
    pub const ANYWHERE: Within = Within {
        align: 1,
        from: 0,
        to: usize::MAX,
    };

    /// Raises the alignment to at least `align`.
    #[must_use]
    pub fn aligned(self, align: usize) -> Within {
        let align = self.align.max(align);
        Within { align, ..self }
    }
}

/// Places in a range that [`reserve_within`] tries, at most.
const PROBES: usize = 4096;
/// User addresses end there, or behind.
const TOP: usize = 1 << 47;

/// Reserves addresses like [`reserve`], but within a range. Fails if none of the places that it tries is free.
pub fn reserve_within(len: usize, within: Within) -> io::Result<NonNull<u8>> {
    let page = crate::page_size();
    let align = within.align.max(page);
    if (within.from, within.to) == (0, usize::MAX) {
        return reserve(len, align);
    }
    if len == 0 || !len.is_multiple_of(page) || !align.is_power_of_two() {
        return Err(invalid("reserve: length or alignment"));
    }
    let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "no free addresses there");
    let last = within.to.min(TOP).checked_sub(len).ok_or_else(none)?;
    let first = within.from.max(align).checked_next_multiple_of(align);
    let first = first.filter(|first| *first <= last).ok_or_else(none)?;
    let step = len.max((last - first) / PROBES).next_multiple_of(align);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    for at in (first..=last).step_by(step) {
        let addr = std::ptr::with_exposed_provenance_mut(at);
        // SAFETY: NOREPLACE touches nothing that is mapped.
        let raw = unsafe { rustix::mm::mmap_anonymous(addr, len, ProtFlags::READ, flags) };
        // The place is taken, or below the addresses that a process may map.
        let Ok(raw) = raw else { continue };
        // SAFETY: exactly the mapping just made, which no other code knows.
        unsafe { rustix::mm::madvise(raw, len, Advice::LinuxDontFork)? };
        return non_null(raw);
    }
    Err(none())
}

/// Reserves addresses for private memory: `len` zeros that can be read and written, aligned to `align` (a power of two,
/// at least a page). A page takes memory when it is first written, until [`discard`]; a forked child gets a copy.
pub fn reserve_private(len: usize, align: usize) -> io::Result<NonNull<u8>> {
    // Closed at first: the padding of an alignment then counts for no limit, and a locked process fills none of it.
    let base = reserve_closed(len, align)?;
    // SAFETY: exactly the reservation just made, which no other code knows.
    let opened = unsafe { open_private(base, len) };
    if let Err(error) = opened {
        // SAFETY: as above.
        unsafe { unmap(base, len)? };
        return Err(error);
    }
    Ok(base)
}

/// Opens a part of a [closed reservation](reserve_closed) for reading and writing: zeros at first. Fails if a limit of
/// the process, or of a machine with strict overcommit, forbids it. In a process that locks its memory it takes memory
/// at once.
///
/// # Safety
/// The caller owns the range, page-aligned.
pub unsafe fn open_private(addr: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: passed on to the caller.
    unsafe {
        protect(addr, len, Access::ReadWrite)?;
        hint(addr, len, Hint::DoDump)
    }
}

/// Gives the memory of private pages back, and makes the range a part of a [closed reservation](reserve_closed) again.
///
/// # Safety
/// The range is page-aligned private memory of the caller's, and nothing uses it any more.
pub unsafe fn close_private(addr: NonNull<u8>, len: usize) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: passed on to the caller.
    unsafe {
        rustix::mm::mmap_anonymous(addr.as_ptr().cast(), len, ProtFlags::empty(), flags)?;
        // For the reason in `reserve_undumped`.
        let _ = hint(addr, len, Hint::DontDump);
    }
    Ok(())
}

/// Changes the length of private memory, and moves it if necessary. The contents stay.
///
/// # Safety
/// The range is a whole mapping of the caller's, made by [`reserve_private`], and nothing points into it any more when
/// this returns.
pub unsafe fn resize_private(
    addr: NonNull<u8>,
    len: usize,
    new_len: usize,
) -> io::Result<NonNull<u8>> {
    let flags = rustix::mm::MremapFlags::MAYMOVE;
    // SAFETY: passed on to the caller.
    non_null(unsafe { rustix::mm::mremap(addr.as_ptr().cast(), len, new_len, flags)? })
}

/// Gives the memory of private pages back to the kernel at once; they read as zeros from then on.
///
/// # Safety
/// The range is page-aligned private memory of the caller's, and nothing needs its contents.
pub unsafe fn discard(addr: NonNull<u8>, len: usize) -> io::Result<()> {
    let at = addr.as_ptr().cast::<core::ffi::c_void>();
    // SAFETY: passed on to the caller.
    let discarded = unsafe { rustix::mm::madvise(at, len, Advice::LinuxDontNeed) };
    match discarded {
        // Memory that the process locks (mlock, mlockall) goes back only at this request.
        Err(Errno::INVAL) => {
            // SAFETY: as above; the kernel checks the range.
            let locked = unsafe { libc::madvise(at, len, libc::MADV_DONTNEED_LOCKED) };
            errno::checked(locked).map(drop)
        }
        other => other.map_err(Into::into),
    }
}

/// Maps `len` bytes of `fd` at an address of the kernel's choice, shared, not inherited by children.
pub fn map_shared(
    fd: impl AsFd,
    access: Access,
    len: usize,
    offset: u64,
) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address the kernel picks touches no existing memory.
    let raw = unsafe {
        rustix::mm::mmap(
            null_mut(),
            len,
            access.prot(),
            MapFlags::SHARED,
            fd.as_fd(),
            offset,
        )?
    };
    // SAFETY: exactly the mapping just made, which no other code knows.
    unsafe {
        if let Err(error) = rustix::mm::madvise(raw, len, Advice::LinuxDontFork) {
            rustix::mm::munmap(raw, len)?;
            return Err(error.into());
        }
    }
    non_null(raw)
}

/// Maps a shared file for reading and writing, like [`map_shared`].
pub fn map_shared_rw(fd: impl AsFd, len: usize, offset: u64) -> io::Result<NonNull<u8>> {
    map_shared(fd, Access::ReadWrite, len, offset)
}

/// Maps `fd` at `addr`, and replaces the mapping there.
///
/// If the kernel fails half-way it may leave a hole there. The hole is closed again with zeros that can only be read.
///
/// # Safety
/// `addr..addr + len` is page-aligned and belongs to the caller's own reservation, and nothing uses the memory mapped
/// there.
pub unsafe fn map_fixed(
    addr: NonNull<u8>,
    fd: impl AsFd,
    access: Access,
    len: usize,
    offset: u64,
) -> io::Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { map_at(addr, fd.as_fd(), access, len, offset, MapFlags::SHARED) }
}

/// Maps `fd` privately, in place of the mapping at `addr`. Written pages belong to this process alone, and take memory
/// of their own.
///
/// # Safety
/// The rules of [`map_fixed`] hold.
pub unsafe fn map_private_fixed(
    addr: NonNull<u8>,
    fd: impl AsFd,
    access: Access,
    len: usize,
    offset: u64,
) -> io::Result<()> {
    // Without NORESERVE the kernel counts all pages that could be written, and refuses a size that it can never back.
    // SAFETY: passed on to the caller.
    unsafe { map_at(addr, fd.as_fd(), access, len, offset, MapFlags::PRIVATE) }
}

/// How a mapping that forked children inherit treats writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Writes go to the file, and all its mappings show them: the parent sees its child's writes.
    Shared,
    /// Writes go to a private copy of the page. No swap is reserved for them.
    Private,
}

/// Maps `fd` at `addr`, and replaces the mapping there in one step. A concurrent write goes either to the old mapping
/// or to the new one. Forked children inherit this mapping, unlike all others here.
///
/// # Safety
/// `addr..addr + len` is page-aligned and belongs to the caller's own reservation. Code that uses the memory there
/// tolerates the exchange.
pub unsafe fn map_inherited(
    addr: NonNull<u8>,
    fd: impl AsFd,
    access: Access,
    sharing: Sharing,
    len: usize,
    offset: u64,
) -> io::Result<()> {
    let kind = match sharing {
        Sharing::Shared => MapFlags::SHARED,
        Sharing::Private => MapFlags::PRIVATE | MapFlags::NORESERVE,
    };
    let (at, flags) = (addr.as_ptr().cast(), kind | MapFlags::FIXED);
    // SAFETY: the caller owns the range and answers for the code that uses it.
    unsafe { rustix::mm::mmap(at, len, access.prot(), flags, fd, offset)? };
    Ok(())
}

/// # Safety
/// The rules of [`map_fixed`] hold.
unsafe fn map_at(
    addr: NonNull<u8>,
    fd: BorrowedFd<'_>,
    access: Access,
    len: usize,
    offset: u64,
    kind: MapFlags,
) -> io::Result<()> {
    let flags = kind | MapFlags::FIXED;
    // SAFETY: the caller owns the range and nothing uses the memory there.
    let mapped =
        unsafe { rustix::mm::mmap(addr.as_ptr().cast(), len, access.prot(), flags, fd, offset) };
    if let Err(error) = mapped {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: NOREPLACE touches nothing that is mapped; in a hole of our own reservation it restores it.
        unsafe {
            if let Ok(again) =
                rustix::mm::mmap_anonymous(addr.as_ptr().cast(), len, ProtFlags::READ, flags)
            {
                let _ = rustix::mm::madvise(again, len, Advice::LinuxDontFork);
            }
        }
        return Err(error.into());
    }
    // SAFETY: exactly the mapping just made, in a range the caller owns.
    unsafe { rustix::mm::madvise(addr.as_ptr().cast(), len, Advice::LinuxDontFork)? };
    Ok(())
}

/// Replaces the mappings in the range with zeros that can be read and never written. They take no memory.
///
/// # Safety
/// The rules of [`map_fixed`] hold.
pub unsafe fn make_blank(addr: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { make_anonymous(addr, len, ProtFlags::READ) }
}

/// Replaces the mappings in the range with zeros that can be written. Written bytes stay private to this process until
/// something else is mapped there.
///
/// # Safety
/// The rules of [`map_fixed`] hold.
pub unsafe fn make_scratch(addr: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { make_anonymous(addr, len, ProtFlags::READ | ProtFlags::WRITE) }
}

/// # Safety
/// The rules of [`map_fixed`] hold.
unsafe fn make_anonymous(addr: NonNull<u8>, len: usize, prot: ProtFlags) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller owns the range and nothing uses the memory there.
    unsafe {
        let raw = rustix::mm::mmap_anonymous(addr.as_ptr().cast(), len, prot, flags)?;
        rustix::mm::madvise(raw, len, Advice::LinuxDontFork)?;
    }
    Ok(())
}

/// Moves a mapping onto another one of the same length, which it replaces in one step.
///
/// # Safety
/// Both ranges are mappings of the caller's. Nothing points into the first one any more. Code that points into the
/// second one tolerates the first one's contents there.
pub unsafe fn move_onto(from: NonNull<u8>, len: usize, onto: NonNull<u8>) -> io::Result<()> {
    // SAFETY: passed on to the caller.
    unsafe {
        rustix::mm::mremap_fixed(
            from.as_ptr().cast(),
            len,
            len,
            rustix::mm::MremapFlags::MAYMOVE,
            onto.as_ptr().cast(),
        )?;
    }
    Ok(())
}

/// Maps pages of a shared mapping a second time at `onto`, for reading, in place of the mapping there.
///
/// # Safety
/// `from..from + len` is one file's, and mapped shared; the caller owns `onto..onto + len`, which nothing uses.
pub unsafe fn show_again(from: NonNull<u8>, len: usize, onto: NonNull<u8>) -> io::Result<()> {
    // SAFETY: an old length of 0 leaves the first mapping as it is; the rest is the caller promises it.
    unsafe {
        let flags = rustix::mm::MremapFlags::MAYMOVE;
        rustix::mm::mremap_fixed(from.as_ptr().cast(), 0, len, flags, onto.as_ptr().cast())?;
        protect(onto, len, Access::Read)
    }
}

/// Unmaps the range.
///
/// # Safety
/// The caller owns the range and nothing uses the memory there, now or later.
pub unsafe fn unmap(addr: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: handed on to the caller.
    unsafe { rustix::mm::munmap(addr.as_ptr().cast(), len) }.map_err(Into::into)
}

/// Changes the range's access rights.
///
/// # Safety
/// The caller owns the range, and no reference into it needs more than `access` gives.
pub unsafe fn protect(addr: NonNull<u8>, len: usize, access: Access) -> io::Result<()> {
    let flags = match access {
        Access::None => MprotectFlags::empty(),
        Access::Read => MprotectFlags::READ,
        Access::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
    };
    // SAFETY: handed on to the caller.
    unsafe { rustix::mm::mprotect(addr.as_ptr().cast(), len, flags) }.map_err(Into::into)
}

/// Says whether this process can read the page at an address. Any address may be asked about: nothing is read here, and
/// no memory is changed.
///
/// The check calls rt_sigprocmask(2) with an invalid operation: the kernel reads the signal set before it rejects the
/// operation. Sandboxes allow that call, because the C library needs it.
#[must_use]
pub fn can_read(page: usize) -> bool {
    // SAFETY: an operation that does not exist changes nothing.
    let asked = unsafe {
        let nothing = std::ptr::null_mut::<libc::sigset_t>();
        libc::syscall(libc::SYS_rt_sigprocmask, -1, page, nothing, 8)
    };
    asked == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// Advice that changes no contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// Use huge pages if possible.
    Huge,
    /// Never uses huge pages.
    NoHuge,
    /// Leaves it out of core dumps.
    DontDump,
    /// Includes it in core dumps (again).
    DoDump,
    /// Fill the page tables for reading, now.
    PopulateRead,
    /// Fills the page tables for writing, now; gives the file memory if it has none.
    PopulateWrite,
}

/// Gives the kernel advice about a mapping.
///
/// # Safety
/// The caller owns the range.
pub unsafe fn hint(addr: NonNull<u8>, len: usize, hint: Hint) -> io::Result<()> {
    let advice = match hint {
        Hint::Huge => Advice::LinuxHugepage,
        Hint::NoHuge => Advice::LinuxNoHugepage,
        Hint::DontDump => Advice::LinuxDontDump,
        Hint::DoDump => Advice::LinuxDoDump,
        Hint::PopulateRead => Advice::LinuxPopulateRead,
        Hint::PopulateWrite => Advice::LinuxPopulateWrite,
    };
    // SAFETY: none of these changes contents; the caller owns the range.
    unsafe { rustix::mm::madvise(addr.as_ptr().cast(), len, advice) }.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd;

    /// Returns the kernel's description of the mapping that contains the address. The kernel merges similar neighbours.
    fn smaps_of(addr: NonNull<u8>) -> String {
        let contains = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            let parse = |hex| usize::from_str_radix(hex, 16).ok();
            Some((parse(from)?..parse(to)?).contains(&addr.addr().get()))
        };
        let all = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut lines = all.lines().skip_while(|line| contains(line) != Some(true));
        let first = lines.next().expect("not mapped");
        let flags = lines.find(|line| line.starts_with("VmFlags"));
        format!("{first} {}", flags.expect("flags"))
    }

    #[test]
    fn a_reservation_is_aligned_and_takes_a_file_in_its_middle() {
        let page = crate::page_size();
        let base = reserve(64 * page, 2 << 20).expect("reserve");
        assert_eq!(base.addr().get() % (2 << 20), 0);
        let fd = memfd::create("test").expect("memfd");
        memfd::fallocate(&fd, page as u64).expect("fallocate");
        // SAFETY: inside our own reservation.
        unsafe {
            let slot = base.add(3 * page);
            map_fixed(slot, &fd, Access::ReadWrite, page, 0).expect("map");
            slot.as_ptr().write_volatile(7);
            let other = map_shared(&fd, Access::Read, page, 0).expect("second");
            assert_eq!(other.as_ptr().read_volatile(), 7);
            for addr in [base, slot, other] {
                assert!(
                    smaps_of(addr).contains(" dc"),
                    "no DONTFORK: {}",
                    smaps_of(addr)
                );
            }
            unmap(other, page).expect("unmap");
            make_blank(slot, page).expect("back");
            assert!(smaps_of(base).contains("r--p"));
            unmap(base, 64 * page).expect("unmap");
        }
    }

    #[test]
    fn a_failed_fixed_map_leaves_the_reservation() {
        let page = crate::page_size();
        let base = reserve(page, page).expect("reserve");
        let (pipe, _other) = rustix::pipe::pipe().expect("pipe");
        // SAFETY: our own reservation; a pipe cannot be mapped.
        unsafe {
            assert!(map_fixed(base, &pipe, Access::Read, page, 0).is_err());
            assert!(smaps_of(base).contains("r--p"));
            unmap(base, page).expect("unmap");
        }
    }

    #[test]
    fn impossible_lengths_are_errors() {
        assert!(reserve(0, 4096).is_err());
        assert!(reserve(usize::MAX - 4095, 2 << 20).is_err());
        assert!(reserve(5, 4096).is_err());
        assert!(reserve(1 << 62, 4096).is_err());
    }
}
