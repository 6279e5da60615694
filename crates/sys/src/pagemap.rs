//! Which pages of a private mapping of a file are still the file's.
//!
//! A page of such a mapping is the file's own until it is written; then the kernel puts a private copy there. The page
//! tables say which, and so whether a file still is what the mapping shows.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// `PAGEMAP_SCAN` of `linux/fs.h`, Linux 6.7: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u32 = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// `struct page_region`
#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// This process's page tables, to be asked.
///
/// Opened once and kept: a process that makes itself undumpable later cannot open it any more, unless it is root. It
/// shows the memory of the process that opened it, and so is of no use in a forked child.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// Opens `/proc/self/pagemap`.
    pub fn open() -> io::Result<Pagemap> {
        File::open("/proc/self/pagemap").map(Pagemap)
    }

    /// Has any page of the range been written since it was mapped? The range is whole pages, mapped privately from
    /// a file. Cost: one system call; before Linux 6.7 one for every 4096 pages.
    pub fn is_touched(&self, addr: NonNull<u8>, len: usize) -> io::Result<bool> {
        match self.scan(addr, len) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                self.read(addr, len)
            }
            answer => answer,
        }
    }

    fn scan(&self, addr: NonNull<u8>, len: usize) -> io::Result<bool> {
        let mut found = Region::default();
        let start = addr.addr().get() as u64;
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start,
            end: start + len as u64,
            vec: (&raw mut found).expose_provenance() as u64,
            vec_len: 1,
            max_pages: 1,
            // Here, or swapped out, and not the file's.
            category_inverted: PAGE_IS_FILE,
            category_mask: PAGE_IS_FILE,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT,
            ..ScanArg::default()
        };
        // SAFETY: the argument is as long as it says, and so is the vector of one region, which the kernel fills.
        let regions = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg) };
        match regions {
            -1 => Err(io::Error::last_os_error()),
            regions => Ok(regions > 0),
        }
    }

    /// The older way: one word a page.
    fn read(&self, addr: NonNull<u8>, len: usize) -> io::Result<bool> {
        const FILE: u64 = 1 << 61;
        const SWAPPED_OR_PRESENT: u64 = 3 << 62;
        let page = crate::page_size();
        let mut words = [0u8; 8 * 4096];
        let (mut at, end) = (addr.addr().get() / page, (addr.addr().get() + len) / page);
        while at < end {
            let bytes = 8 * (end - at).min(4096);
            self.0.read_exact_at(&mut words[..bytes], 8 * at as u64)?;
            let own = |word: &[u8]| {
                let word = word
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte));
                word & SWAPPED_OR_PRESENT != 0 && word & FILE == 0
            };
            if words[..bytes].chunks_exact(8).any(own) {
                return Ok(true);
            }
            at += bytes / 8;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{map, memfd};

    #[test]
    fn a_written_page_is_found_and_a_read_one_is_not() {
        let page = crate::page_size();
        let len = 5000 * page;
        let fd = memfd::create("test").expect("memfd");
        memfd::fallocate(&fd, len as u64).expect("fallocate");
        let base = map::reserve(len, page).expect("reserve");
        // SAFETY: our own reservation.
        unsafe { map::map_private_fixed(base, &fd, map::Access::ReadWrite, len, 0) }.expect("map");
        let pagemap = Pagemap::open().expect("pagemap");
        let both = |from: usize, pages: usize| {
            // SAFETY: inside the mapping.
            let at = unsafe { base.add(from * page) };
            let read = pagemap.read(at, pages * page).expect("read");
            // An older kernel has only the one.
            let scan = pagemap.scan(at, pages * page).unwrap_or(read);
            assert_eq!(scan, read);
            assert_eq!(pagemap.is_touched(at, pages * page).expect("ask"), read);
            read
        };
        assert!(!both(0, 5000));
        for at in (0..len).step_by(page) {
            // SAFETY: inside the mapping.
            unsafe { base.add(at).read_volatile() };
        }
        assert!(!both(0, 5000));
        // SAFETY: inside the mapping.
        unsafe { base.add(4500 * page + 7).write_volatile(1) };
        assert!(both(0, 5000) && both(4500, 1));
        assert!(!both(0, 4500) && !both(4501, 499));
        // SAFETY: our own, and nobody uses it.
        unsafe { map::unmap(base, len) }.expect("unmap");
    }
}
