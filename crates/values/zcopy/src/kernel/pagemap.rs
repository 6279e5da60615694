//! Which pages of a private mapping of a file are still the file's.
//!
//! A page of such a mapping is the file's own until it is written. Then the kernel puts a private copy there. The page
//! tables show which pages are copies, and so whether the mapping still shows the file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// `PAGEMAP_SCAN` of `linux/fs.h`, Linux 6.7: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u32 = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// `struct page_region`
#[repr(C)]
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

/// This process's page tables.
///
/// The file is opened once and kept, because a process that makes itself undumpable later can no longer open it, unless
/// it is root. It shows the memory of the process that opened it, so it is useless in a forked child.
#[derive(Debug)]
pub struct Pagemap(File);

impl AsFd for Pagemap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Pagemap {
    /// Opens `/proc/self/pagemap`.
    pub fn open() -> io::Result<Pagemap> {
        File::open("/proc/self/pagemap").map(Pagemap)
    }

    /// Says whether any page of the range has been written since it was mapped. The range is whole pages, mapped
    /// privately from a file. Cost: one system call; before Linux 6.7 one for every 4096 pages.
    pub fn is_touched(&self, addr: NonNull<u8>, len: usize) -> io::Result<bool> {
        let mut first = [const { 0..0 }; 1];
        Ok(self.touched(addr, len, &mut first)? > 0)
    }

    /// Finds the runs of pages in a range that have been written, in bytes from its start: the first ones, as many as
    /// there is room for. Returns their number.
    pub fn touched(
        &self,
        addr: NonNull<u8>,
        len: usize,
        runs: &mut [Range<usize>],
    ) -> io::Result<usize> {
        match self.scan(addr, len, runs) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                self.read(addr, len, runs)
            }
            answer => answer,
        }
    }

    fn scan(&self, addr: NonNull<u8>, len: usize, runs: &mut [Range<usize>]) -> io::Result<usize> {
        let mut found = [const {
            Region {
                start: 0,
                end: 0,
                categories: 0,
            }
        }; MOST];
        let room = runs.len().min(MOST);
        let start = addr.addr().get();
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: start as u64,
            end: (start + len) as u64,
            vec: found.as_mut_ptr().expose_provenance() as u64,
            vec_len: room as u64,
            // Here, or swapped out, and not the file's.
            category_inverted: PAGE_IS_FILE,
            category_mask: PAGE_IS_FILE,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_FILE,
            ..ScanArg::default()
        };
        // SAFETY: the argument is as long as it says, and so is the vector of regions, which the kernel fills.
        let count = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg) };
        let count = usize::try_from(count)
            .map_err(|_: std::num::TryFromIntError| io::Error::last_os_error())?;
        let inside = |at: u64| usize::try_from(at).map_or(len, |at| at - start);
        for (run, region) in runs.iter_mut().zip(&found[..count.min(room)]) {
            *run = inside(region.start)..inside(region.end);
        }
        Ok(count.min(room))
    }

    /// Reads the page tables in the older way: one word for each page.
    fn read(&self, addr: NonNull<u8>, len: usize, runs: &mut [Range<usize>]) -> io::Result<usize> {
        const FILE: u64 = 1 << 61;
        const SWAPPED_OR_PRESENT: u64 = 3 << 62;
        let page = tranship_sys::page_size();
        let mut words = [0u8; 8 * 4096];
        let begin = addr.addr().get() / page;
        let (mut at, end) = (begin, (addr.addr().get() + len) / page);
        let mut count = 0;
        while at < end {
            let bytes = 8 * (end - at).min(4096);
            self.0.read_exact_at(&mut words[..bytes], 8 * at as u64)?;
            for (number, word) in words[..bytes].chunks_exact(8).enumerate() {
                let word = word
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte));
                if word & SWAPPED_OR_PRESENT == 0 || word & FILE != 0 {
                    continue;
                }
                let from = (at + number - begin) * page;
                if count > 0 && runs[count - 1].end == from {
                    runs[count - 1].end += page;
                } else if count < runs.len() {
                    runs[count] = from..from + page;
                    count += 1;
                } else {
                    return Ok(count);
                }
            }
            at += bytes / 8;
        }
        Ok(count)
    }
}

/// Most runs that are asked for at once.
const MOST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_sys::{map, memfd};

    type Way = fn(&Pagemap, NonNull<u8>, usize, &mut [Range<usize>]) -> io::Result<usize>;

    #[test]
    fn a_written_page_is_found_and_a_read_one_is_not() {
        let page = tranship_sys::page_size();
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
            let runs = |way: Way| {
                let mut runs = [const { 0..0 }; 3];
                let count = way(&pagemap, at, pages * page, &mut runs)?;
                Ok::<_, io::Error>(runs[..count].to_vec())
            };
            let read = runs(Pagemap::read).expect("read");
            // An older kernel has only this way.
            let scan = runs(Pagemap::scan).unwrap_or_else(|_| read.clone());
            assert_eq!(scan, read);
            let any = pagemap.is_touched(at, pages * page).expect("ask");
            assert_eq!(any, !read.is_empty());
            if from == 4400 {
                assert_eq!(read, [100 * page..101 * page, 200 * page..202 * page]);
            }
            any
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
        for number in [4600, 4601] {
            // SAFETY: inside the mapping.
            unsafe { base.add(number * page).write_volatile(1) };
        }
        assert!(both(4400, 300));
        // SAFETY: this test's own mapping, and nothing uses it.
        unsafe { map::unmap(base, len) }.expect("unmap");
    }
}
