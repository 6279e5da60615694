//! The memory of an arena's pages.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use tranship_sys::{map, memfd};
use tranship_zone::PAGE;

const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == PAGE);

/// The alignment of windows, for huge pages. Private memory is made accessible in units of it too.
const ALIGN: usize = 2 << 20;

/// A window of addresses, and the source of memory for its pages.
///
/// Offsets are bytes from the window's start, multiples of a page of 4096 bytes. Any thread may call any method. The
/// arena calls `commit` and `decommit` under its lock, for ranges that do not overlap, and never twice in a row for the
/// same page. Neither may call the arena.
///
/// # Safety
/// `base() .. base() + bytes()` are addresses of the value's own, aligned to a page, for as long as it lives. If it has
/// [`own_pages`](Self::own_pages), only their runs are. Committed
/// pages can be read and written, and keep what is written into them until `decommit`.
pub unsafe trait Memory: Send + Sync + 'static {
    /// Returns the address of the window's start.
    fn base(&self) -> NonNull<u8>;
    /// Returns the length of the window, bytes.
    fn bytes(&self) -> u64;
    /// Prepares pages that are going to be used. Returns `false`, and changes nothing, if there is no memory for them
    /// (a quota, a full machine). It may block as long as an allocation may.
    fn commit(&self, range: Range<u64>) -> bool;
    /// Takes pages back that are no longer used, and whose contents are no longer needed.
    fn decommit(&self, range: Range<u64>);
    /// Returns the allocator that places runs of pages, if the arena is not to place them by itself. Then nothing is
    /// committed or decommitted.
    fn own_pages(&self) -> Option<&dyn OwnPages> {
        None
    }
}

/// An allocator of runs of pages (`uma_zone_set_allocf`, `uma_zone_set_freef`): for memory that the program obtains by
/// itself, such as a device's. The arena calls it under a keg's lock, so it may not use the keg's zones.
///
/// # Safety
/// A run that `alloc` returns can be read and written, and belongs to the arena until `free`.
pub unsafe trait OwnPages: Send + Sync {
    /// Allocates `bytes`, a multiple of 4096, aligned to 4096. `None`: there are none now.
    fn alloc(&self, bytes: u64) -> Option<NonNull<u8>>;
    /// Takes a run back.
    fn free(&self, first: NonNull<u8>, bytes: u64);
}

/// Private anonymous memory: a page takes memory when it is first written, and gives it back by `madvise`. A forked
/// child has its own copy.
///
/// Only 2 MiB around committed pages can be read and written. The rest of the window is inaccessible: it counts for no
/// limit but that of the address space, and a program that walks its own writable memory does not fill it.
#[derive(Debug)]
pub struct Private {
    base: NonNull<u8>,
    len: usize,
    /// Committed pages of each 2 MiB. Only the arena writes it, under its lock.
    committed: Box<[AtomicU16]>,
    beside: Vec<Beside>,
}

/// A table beside a window.
#[derive(Debug)]
struct Beside {
    base: NonNull<u8>,
    /// Bytes for each 2 MiB of the window.
    each: usize,
}

// SAFETY: plain memory; the arena's users decide which thread may touch which part.
unsafe impl Send for Private {}
// SAFETY: as above.
unsafe impl Sync for Private {}

impl Private {
    /// Reserves a window of `bytes`, rounded up to 2 MiB. No memory is taken yet.
    ///
    /// # Errors
    /// The error of `mmap`: there is no such range of addresses.
    pub fn reserve(bytes: u64) -> io::Result<Self> {
        Self::reserve_with(bytes, &[])
    }

    /// Reserves a window, with tables beside it: for each 2 MiB of the window, one table of each size in `beside`. A
    /// table can be read and written while pages of its 2 MiB are committed. It is zeros each time that this begins.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve), or if a number of bytes is no multiple of a page.
    pub fn reserve_with(bytes: u64, beside: &[usize]) -> io::Result<Self> {
        let len = window_len(bytes)?;
        let (chunks, page) = (len / ALIGN, tranship_sys::page_size());
        let mut private = Self {
            base: map::reserve_closed(len, ALIGN)?,
            len,
            committed: (0..chunks).map(|_| AtomicU16::new(0)).collect(),
            beside: Vec::with_capacity(beside.len()),
        };
        for &each in beside {
            if !each.is_multiple_of(page) {
                let error =
                    format!("a table of {each} bytes for each 2 MiB: not a multiple of {page}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
            }
            let base = map::reserve_closed(chunks * each, page)?;
            private.beside.push(Beside { base, each });
        }
        Ok(private)
    }

    /// Returns the addresses of the tables beside the window.
    pub fn beside(&self) -> impl Iterator<Item = NonNull<u8>> {
        self.beside.iter().map(|beside| beside.base)
    }

    /// Calls `each` for every 2 MiB that the bytes reach into, with its number, its count, and how many of its pages
    /// they are.
    fn chunks(&self, range: &Range<u64>, mut each: impl FnMut(usize, &AtomicU16, u16) -> bool) {
        let (start, len) = part(range, self.len);
        let mut at = start;
        while at < start + len {
            let chunk = at / ALIGN;
            let end = (start + len).min((chunk + 1) * ALIGN);
            let pages = u16::try_from((end - at) / PAGE_BYTES).expect("at most 512");
            if !each(chunk, &self.committed[chunk], pages) {
                return;
            }
            at = end;
        }
    }

    fn open(&self, chunk: usize) -> bool {
        let opened = |base: NonNull<u8>, each: usize| {
            // SAFETY: inside our mappings; open pages stay as they are.
            unsafe { map::open_private(base.add(chunk * each), each) }.is_ok()
        };
        let mut beside = self.beside.iter();
        beside.all(|beside| opened(beside.base, beside.each)) && opened(self.base, ALIGN)
    }

    /// Closes a chunk of which nothing is committed. If the kernel refuses, the memory stays: the only harm is the
    /// size.
    fn close(&self, chunk: usize) {
        // SAFETY: inside our mappings, whose contents there are no longer needed.
        unsafe {
            let at = self.base.add(chunk * ALIGN);
            let _ = map::close_private(at, ALIGN).or_else(|_| map::discard(at, ALIGN));
            for beside in &self.beside {
                let at = beside.base.add(chunk * beside.each);
                if map::close_private(at, beside.each).is_err() {
                    at.write_bytes(0, beside.each);
                }
            }
        }
    }
}

// SAFETY: the mapping is made in `reserve_with` and unmapped in `drop`; committed pages are open; anonymous private
// pages keep their contents until they are discarded.
unsafe impl Memory for Private {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.len as u64
    }

    fn commit(&self, range: Range<u64>) -> bool {
        let mut done = range.start;
        self.chunks(&range, |chunk, count, pages| {
            // Relaxed: under the arena's lock.
            let before = count.load(Ordering::Relaxed);
            if before == 0 && !self.open(chunk) {
                return false;
            }
            count.store(before + pages, Ordering::Relaxed);
            done += u64::from(pages) * PAGE;
            true
        });
        if done < range.end {
            self.decommit(range.start..done);
        }
        done == range.end
    }

    fn decommit(&self, range: Range<u64>) {
        let mut at = range.start;
        self.chunks(&range, |chunk, count, pages| {
            // Relaxed: as in `commit`.
            let after = count.load(Ordering::Relaxed) - pages;
            count.store(after, Ordering::Relaxed);
            let (offset, len) = part(&(at..at + u64::from(pages) * PAGE), self.len);
            if after == 0 {
                self.close(chunk);
            } else {
                // SAFETY: inside our mapping (`part` checks), whose contents there the arena no longer needs. If the
                // kernel refuses, the memory stays: nothing is wrong but the size.
                let _ = unsafe { map::discard(self.base.add(offset), len) };
            }
            at += len as u64;
            true
        });
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: our own mappings, which nothing uses any more.
        unsafe {
            let _ = map::unmap(self.base, self.len);
            for beside in &self.beside {
                let _ = map::unmap(beside.base, self.len / ALIGN * beside.each);
            }
        }
    }
}

/// A memfd. Pages are allocated when they are committed, so that a full machine is an error and not a signal. They are
/// given back by punching holes. The mapping is shared; forked children do not have it.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; the arena's users decide which thread may touch which part.
unsafe impl Send for File {}
// SAFETY: as above.
unsafe impl Sync for File {}

impl File {
    /// Makes a memfd of `bytes`, rounded up to 2 MiB, without memory, and maps it. `/proc` shows `name`.
    ///
    /// # Errors
    /// Those of `memfd_create`, `ftruncate` and `mmap`.
    pub fn create(name: &str, bytes: u64) -> io::Result<Self> {
        let len = window_len(bytes)?;
        let fd = memfd::create(name)?;
        memfd::set_len(&fd, len as u64)?;
        let base = map::map_shared_rw(&fd, len, 0)?;
        Ok(Self { fd, base, len })
    }

    /// Returns the file; an item's offset in it is its offset in the window.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// SAFETY: the mapping is made in `create` and unmapped in `drop`; a file's pages keep their contents until a hole is
// punched. Another holder of the descriptor can write or punch holes: the user decides which process gets the
// descriptor.
unsafe impl Memory for File {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.len as u64
    }

    fn commit(&self, range: Range<u64>) -> bool {
        memfd::fallocate_range(&self.fd, range.start, range.end - range.start).is_ok()
    }

    fn decommit(&self, range: Range<u64>) {
        let _ = memfd::punch(&self.fd, range.start, range.end - range.start);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing uses any more.
        let _ = unsafe { map::unmap(self.base, self.len) };
    }
}

fn window_len(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes.max(1))
        .ok()
        .and_then(|bytes| bytes.checked_next_multiple_of(ALIGN))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a window of that length"))
}

/// Returns the offset and length of a range.
///
/// # Panics
/// If the range is not in the window.
fn part(range: &Range<u64>, len: usize) -> (usize, usize) {
    assert!(
        range.start <= range.end && range.end <= len as u64,
        "bytes {range:?} of {len}"
    );
    let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
    let (start, end) = (start.expect("below len"), end.expect("up to len"));
    (start, end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the access rights at an address, as `/proc/self/maps` shows them.
    fn rights(at: NonNull<u8>) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let holds = |line: &&str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            let hex = |text| usize::from_str_radix(text, 16).ok();
            Some((hex(from)?..hex(to)?).contains(&at.addr().get()))
        };
        let line = maps.lines().find(|line| holds(line) == Some(true));
        line.expect("mapped")
            .split(' ')
            .nth(1)
            .expect("rights")
            .to_owned()
    }

    #[test]
    fn only_what_is_committed_is_accessible_and_the_table_beside_is_zeros_again() {
        const MIB: u64 = 1 << 20;
        let private = Private::reserve_with(16 * MIB, &[4096, 8192]).expect("addresses");
        let table = private.beside().nth(1).expect("a table");
        // SAFETY: inside the window, and its table.
        let [window, table] = unsafe { [private.base().add(4 << 20), table.add(2 * 8192)] };
        assert_eq!([rights(window), rights(table)], ["---p", "---p"]);
        for _ in 0..3 {
            // Of three units of 2 MiB, the first and last in part.
            assert!(private.commit(3 * MIB..7 * MIB));
            assert!(private.commit(7 * MIB..8 * MIB));
            // SAFETY: committed; its table can be written with it.
            unsafe {
                assert_eq!([window.read(), table.read()], [0, 0]);
                window.write(7);
                table.write(7);
                private.decommit(5 * MIB..8 * MIB);
                assert_eq!([window.read(), table.read()], [7, 7]);
            }
            assert_eq!([rights(window), rights(table)], ["rw-p", "rw-p"]);
            private.decommit(3 * MIB..5 * MIB);
            assert_eq!([rights(window), rights(table)], ["---p", "---p"]);
        }
        assert!(Private::reserve_with(MIB, &[100]).is_err());
    }
}
