//! Memfds and their seals.

use crate::errno;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

pub use rustix::fs::SealFlags as Seals;

/// `statfs.f_type` of tmpfs.
pub const TMPFS_MAGIC: u64 = 0x0102_1994;
/// `statfs.f_type` of hugetlbfs, which is not used.
pub const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// Makes a memfd: close-on-exec, never executable (which also allows seals), mode 0.
///
/// With mode 0, a process needs capabilities to reopen the memfd by its path in `/proc`. The seals make even that
/// harmless.
pub fn create(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::fchmod(&fd, Mode::empty())?;
    Ok(fd)
}

/// Returns the seals in force.
pub fn seals(fd: impl AsFd) -> io::Result<Seals> {
    Ok(rustix::fs::fcntl_get_seals(fd)?)
}

/// Adds seals.
pub fn add_seals(fd: impl AsFd, seals: Seals) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(fd, seals)?)
}

/// Sets the file's size without giving it memory.
pub fn set_len(fd: impl AsFd, len: u64) -> io::Result<()> {
    Ok(rustix::fs::ftruncate(fd, len)?)
}

/// Gives the file its size and all its memory.
///
/// It works in steps, so that a process that gets signals all the time still advances. At a cgroup's limit this does
/// not fail: the kernel kills a process instead. Ask [`crate::cgroup::headroom`] first.
pub fn fallocate(fd: impl AsFd, len: u64) -> io::Result<()> {
    const STEP: u64 = 8 << 20;
    let mut at = 0;
    while at < len {
        let step = STEP.min(len - at);
        match rustix::fs::fallocate(fd.as_fd(), FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Appends `len` bytes of memory to the file, in a single copy by the kernel. The kernel takes memory as it copies. At
/// a cgroup's limit it behaves like [`fallocate`].
///
/// # Safety
/// The range can be read; it may change meanwhile.
pub unsafe fn append(fd: impl AsFd, mut from: *const u8, mut len: usize) -> io::Result<()> {
    while len > 0 {
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: the rest of the range, which can be read, as the caller promises. The kernel copes with changes.
        let written = errno::retried(|| unsafe { libc::write(fd, from.cast(), len) })?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        // SAFETY: the kernel wrote no more than there was.
        from = unsafe { from.add(written) };
        len -= written;
    }
    Ok(())
}

/// Gives a part of the file memory, within the file's size. At a cgroup's limit it behaves like [`fallocate`].
pub fn fallocate_range(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    retry(|| rustix::fs::fallocate(fd.as_fd(), FallocateFlags::KEEP_SIZE, offset, len))
}

/// Takes away the memory of a part of the file: it reads as zeros from then on, in every mapping.
pub fn punch(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
    retry(|| rustix::fs::fallocate(fd.as_fd(), flags, offset, len))
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// The kernel's facts about a file from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Size, bytes.
    pub size: u64,
    /// The file's memory, in units of 512 bytes.
    pub blocks: u64,
    /// Permission bits, without the file type.
    pub mode: u32,
    /// `statfs.f_type`.
    pub fs_type: u64,
    /// A regular file on tmpfs (and so not on hugetlbfs).
    pub is_tmpfs: bool,
    /// The inode's number.
    pub inode: u64,
}

/// Returns the memory behind the end of a file, where none should be, in bytes. Waits for no lock of the file (Linux
/// 6.5).
pub fn beyond(fd: impl AsFd, end: u64) -> io::Result<u64> {
    let range = [end, 0]; // to the last page there is
    let mut found = CacheStat::default();
    // SAFETY: the kernel reads two words and writes five, of locals.
    let asked = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_fd().as_raw_fd(),
            range.as_ptr(),
            &raw mut found,
            0,
        )
    };
    errno::checked(asked)?;
    // Evicted: in the swap.
    Ok((found.cache + found.evicted).saturating_mul(crate::page_size() as u64))
}

/// The call's number, which is equal on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cache: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Says whether the file is a memfd, or a file on tmpfs. The kernel rejects any other kind of file at once, whatever
/// its maker does with it. Ask this first about a descriptor from an untrusted peer.
pub fn has_seals(fd: impl AsFd) -> bool {
    seals(fd).is_ok()
}

/// Asks the kernel about a file. A file system in user space may never answer: see [`has_seals`].
pub fn facts(fd: impl AsFd) -> io::Result<Facts> {
    let stat = rustix::fs::fstat(fd.as_fd())?;
    let statfs = rustix::fs::fstatfs(fd.as_fd())?;
    // The type's width differs between architectures; both magics fit 32 bits.
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    let fs_type = (statfs.f_type as u64) & 0xffff_ffff;
    let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    Ok(Facts {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        fs_type,
        is_tmpfs: regular && fs_type == TMPFS_MAGIC,
        inode: stat.st_ino,
    })
}

/// A quick look at a descriptor's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Glance {
    /// Size, bytes.
    pub size: u64,
    /// The file's memory, bytes.
    pub resident: u64,
    /// The inode's number.
    pub inode: u64,
}

/// Returns the file that a number stands for in this process now, or `None` for no descriptor. It serves observers of
/// all files of a process, which come and go meanwhile. It takes no descriptor of them, because that would keep their
/// memory alive.
pub fn glance(number: RawFd) -> Option<Glance> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes a local, which is as large as it expects; a number that is no descriptor is an error.
    if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: it succeeded, so the kernel has written all of it.
    let stat = unsafe { stat.assume_init() };
    Some(Glance {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        resident: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
        inode: stat.st_ino,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_says_what_there_is_and_that_there_is_nothing() {
        let fd = create("test").expect("memfd");
        set_len(&fd, 3 << 20).expect("size");
        let seen = glance(fd.as_raw_fd()).expect("a descriptor");
        assert_eq!((seen.size, seen.resident), (3 << 20, 0));
        fallocate(&fd, 3 << 20).expect("fallocate");
        let full = glance(fd.as_raw_fd()).expect("a descriptor");
        assert_eq!((full.resident, full.inode), (3 << 20, seen.inode));
        assert_eq!(glance(-1), None);
    }

    #[test]
    fn a_fresh_memfd_is_closed_to_all_and_not_executable() {
        let fd = create("test").expect("memfd");
        fallocate(&fd, 20 << 20).expect("fallocate");
        let facts = facts(&fd).expect("facts");
        assert_eq!((facts.size, facts.mode), (20 << 20, 0));
        assert!(facts.is_tmpfs && facts.blocks * 512 >= facts.size);
        assert_eq!(seals(&fd).expect("seals"), Seals::EXEC);
        add_seals(&fd, Seals::GROW | Seals::SEAL).expect("add");
        assert!(set_len(&fd, 21 << 20).is_err());
        assert!(add_seals(&fd, Seals::SHRINK).is_err());
    }

    #[test]
    fn a_sparse_file_shows_in_its_blocks() {
        let fd = create("test").expect("memfd");
        set_len(&fd, 1 << 20).expect("size");
        let facts = facts(&fd).expect("facts");
        assert_eq!((facts.size, facts.blocks), (1 << 20, 0));
    }

    #[test]
    fn memory_beyond_the_end_is_found() {
        let fd = create("test").expect("memfd");
        let page = crate::page_size() as u64;
        fallocate(&fd, 3 * page).expect("fallocate");
        assert_eq!(beyond(&fd, 3 * page).expect("cachestat"), 0);
        let more = FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&fd, more, 5 * page, 2 * page).expect("fallocate");
        assert_eq!(beyond(&fd, 3 * page).expect("cachestat"), 2 * page);
    }

    #[test]
    fn other_file_systems_are_told_apart() {
        let proc = std::fs::File::open("/proc/self/status").expect("open");
        assert!(!facts(&proc).expect("facts").is_tmpfs);
        let (pipe, _other) = rustix::pipe::pipe().expect("pipe");
        assert!(!facts(&pipe).expect("facts").is_tmpfs);
    }
}
