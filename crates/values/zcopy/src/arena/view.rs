//! The arena's memory: one memfd, mapped twice.
//!
//! ```text
//!            pageblock, being filled        full, sent many times
//!   window   MAP_SHARED, read and write     MAP_PRIVATE, read and write
//!                    │                               ┊ a write gets a page of its own
//!   memfd    ────────▼───────────────────────────────▼──────────────────
//!                    ▲                               ▲
//!   pages    MAP_SHARED, read only: what the kernel is given to send
//! ```
//!
//! The program uses the window. A pageblock is *frozen* by mapping it anew, privately. At that instant the file's pages
//! stop changing for ever, whichever thread goes on writing, because the kernel copies on write. Nothing is written to
//! a page that was once given to the kernel. The file's pages are replaced by fresh ones (a hole is punched) before the
//! addresses are used again. This needs no signal handler, no write protection, and no list of memory under way.
//!
//! Addresses of which nothing is in use are inaccessible in both (`opened`).
//!
//! Holes need small pages: a hole in part of a huge page is filled with zeros in place, under the eyes of a socket's
//! queue. So huge pages are switched off here, and the file gets its pages by faults in the window only.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use tranship_sys::map::{self, Access, Hint, Sharing};
use tranship_sys::{memfd, process};

#[derive(Debug)]
pub(super) struct View {
    file: ManuallyDrop<OwnedFd>,
    /// File that the descriptor stands for. A program that closes descriptors which it does not know (closefrom(3)) may
    /// have another file under its number. That file is not ours to map, to punch or to send.
    identity: (u64, u64),
    window: NonNull<u8>,
    pages: NonNull<u8>,
    len: usize,
}

// SAFETY: addresses of mappings that live as long as this does; its users are responsible for their memory.
unsafe impl Send for View {}
// SAFETY: as above; all methods are system calls or arithmetic.
unsafe impl Sync for View {}

/// Alignment of the window's start, and of the length of an adopted file, in pageblocks.
pub(super) const ALIGN: usize = 2 << 20;

impl View {
    /// Creates a view over a file that another process made, as long as that, if it is one as [`View::new`] makes.
    pub(super) fn adopt(file: OwnedFd, block_bytes: usize) -> io::Result<View> {
        let odd = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (must, must_not) = (
            memfd::Seals::SHRINK | memfd::Seals::GROW,
            memfd::Seals::WRITE | memfd::Seals::FUTURE_WRITE,
        );
        let seals = memfd::seals(&file)?;
        if !seals.contains(must) || seals.intersects(must_not) {
            return Err(odd(format!(
                "an arena's file has other seals than {seals:?}"
            )));
        }
        let size = memfd::facts(&file)?.size;
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let unit = block_bytes * super::block::GROUP as usize;
        let longest = u32::MAX as usize / 2 * block_bytes;
        if len == 0 || len > longest || !len.is_multiple_of(unit) {
            return Err(odd(format!(
                "an arena's file has {size} bytes, no multiple of {unit}"
            )));
        }
        View::over(file, len, ALIGN)
    }

    /// Creates a view: `len` bytes of addresses, twice, and no memory yet.
    pub(super) fn new(len: usize, align: usize) -> io::Result<View> {
        let file = memfd::create("tranship-zcopy")?;
        memfd::set_len(&file, len as u64)?;
        memfd::add_seals(&file, memfd::Seals::SHRINK | memfd::Seals::GROW)?;
        View::over(file, len, align)
    }

    fn over(file: OwnedFd, len: usize, align: usize) -> io::Result<View> {
        let window = map::reserve(len, align)?;
        let pages = map::reserve(len, align).inspect_err(|_| {
            // SAFETY: just reserved, and nobody knows it.
            let _ = unsafe { map::unmap(window, len) };
        })?;
        let view = View {
            identity: process::identity(&file)?,
            file: ManuallyDrop::new(file),
            window,
            pages,
            len,
        };
        for at in [window, pages] {
            // SAFETY: two reservations of our own that nobody knows yet.
            unsafe {
                map::map_inherited(at, &*view.file, Access::None, Sharing::Shared, len, 0)?;
                without_huge_pages(at, len)?;
                map::hint(at, len, Hint::DontDump)?;
            }
        }
        Ok(view)
    }

    /// Returns its bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the place of an address, in bytes from the start; `None` outside the window.
    pub(super) fn offset_of(&self, addr: *const u8) -> Option<usize> {
        let offset = addr.addr().checked_sub(self.window.addr().get())?;
        (offset < self.len).then_some(offset)
    }

    /// Returns the program's address of an offset.
    pub(super) fn window_at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len);
        // SAFETY: inside the window, or just behind it.
        unsafe { self.window.add(offset) }
    }

    /// Returns the address whose pages are the file's, always.
    pub(super) fn pages_at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len);
        // SAFETY: inside the mapping, or just behind it.
        unsafe { self.pages.add(offset) }
    }

    /// Makes a range accessible: the window to read and write, the pages to read.
    pub(super) fn open(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(offset + len <= self.len, "{offset} + {len} of {}", self.len);
        // SAFETY: our own mappings; more may be done with them than before.
        unsafe {
            map::protect(self.window_at(offset), len, Access::ReadWrite)?;
            map::protect(self.pages_at(offset), len, Access::Read)
        }
    }

    /// Makes a range inaccessible. Where the kernel refuses it stays as it is.
    ///
    /// # Safety
    /// Nobody uses the range.
    pub(super) unsafe fn close(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len, "{offset} + {len} of {}", self.len);
        for at in [self.window_at(offset), self.pages_at(offset)] {
            // SAFETY: our own mapping, which nobody uses there.
            let _ = unsafe { map::protect(at, len, Access::None) };
        }
    }

    /// Returns its descriptor, and the file that it stands for as long as the descriptor is ours.
    pub(super) fn file(&self) -> (BorrowedFd<'_>, (u64, u64)) {
        (self.file.as_fd(), self.identity)
    }

    /// Returns the file, if its descriptor was not taken away.
    fn own(&self) -> io::Result<BorrowedFd<'_>> {
        if process::identity(&*self.file)? == self.identity {
            Ok(self.file.as_fd())
        } else {
            Err(io::Error::from_raw_os_error(libc::EBADF))
        }
    }

    /// Makes the kernel fill the page tables of a range of the window for writing. A refused page comes with its fault,
    /// or fails there.
    pub(super) fn populate(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len, "{offset} + {len} of {}", self.len);
        // SAFETY: our own window, of which no byte changes.
        let _ = unsafe { map::hint(self.window_at(offset), len, Hint::PopulateWrite) };
    }

    /// Makes the kernel fill the page tables of memory that it is given to send, in one call. Otherwise the first send
    /// by reference does it: that send would take much longer than those after it, and its measured cost would be
    /// wrong. Pages that the file does not have would get memory.
    pub(super) fn show_to_kernel(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len, "{offset} + {len} of {}", self.len);
        // SAFETY: our own mapping, of which no byte changes.
        let _ = unsafe { map::hint(self.pages_at(offset), len, Hint::PopulateRead) };
    }

    /// Maps a range of the file to somewhere else, with small pages.
    ///
    /// # Safety
    /// There is private memory of the caller's, as long, that nobody uses.
    pub(super) unsafe fn show(&self, offset: usize, len: usize, at: NonNull<u8>) -> io::Result<()> {
        assert!(offset + len <= self.len, "{offset} + {len} of {}", self.len);
        let file = self.own()?;
        // SAFETY: passed on.
        unsafe {
            let (access, sharing) = (Access::ReadWrite, Sharing::Shared);
            map::map_inherited(at, file, access, sharing, len, offset as u64)?;
            let _ = without_huge_pages(at, len);
        }
        Ok(())
    }

    /// Freezes the range: from here on writes to it no longer reach the file.
    pub(super) fn freeze(&self, offset: usize, len: usize) -> io::Result<()> {
        self.remap(offset, len, Sharing::Private)
    }

    /// Makes the range writable as at first, with the file's bytes.
    ///
    /// # Safety
    /// Nobody uses the range, nor refers to its pages.
    pub(super) unsafe fn thaw(&self, offset: usize, len: usize) -> io::Result<()> {
        self.remap(offset, len, Sharing::Shared)
    }

    /// Gives the range's memory back and makes it writable as at first. Its old content is gone, except pages that the
    /// kernel still holds.
    ///
    /// # Safety
    /// Nobody uses the range.
    pub(super) unsafe fn renew(&self, offset: usize, len: usize) -> io::Result<()> {
        memfd::punch(self.own()?, offset as u64, len as u64)?;
        self.remap(offset, len, Sharing::Shared)
    }

    /// Gives the memory of a range that was never frozen back.
    ///
    /// # Safety
    /// Nobody uses the range.
    pub(super) unsafe fn drop_pages(&self, offset: usize, len: usize) -> io::Result<()> {
        memfd::punch(self.own()?, offset as u64, len as u64)
    }

    fn remap(&self, offset: usize, len: usize, sharing: Sharing) -> io::Result<()> {
        assert!(offset + len <= self.len, "{offset} + {len} of {}", self.len);
        let at = self.window_at(offset);
        let file = self.own()?;
        // SAFETY: our own window; the exchange shows the same bytes at the same addresses (frozen), or bytes that
        // nobody uses.
        unsafe {
            map::map_inherited(at, file, Access::ReadWrite, sharing, len, offset as u64)?;
            // The exchange is done, whatever comes of this: a mapping just made refuses it only if there are no huge
            // pages.
            let _ = without_huge_pages(at, len);
            // Like the rest of shared memory: a core dump reads all pages, and pages that the file does not have would
            // get memory by that. A frozen page is there, and may be wanted.
            if let Sharing::Shared = sharing {
                let _ = map::hint(at, len, Hint::DontDump);
            }
        }
        Ok(())
    }
}

/// # Safety
/// The caller owns the range.
unsafe fn without_huge_pages(at: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: passed on.
    match unsafe { map::hint(at, len, Hint::NoHuge) } {
        // A kernel without huge pages.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: both are ours; the last value is gone, so nobody uses them.
        unsafe {
            let _ = map::unmap(self.window, self.len);
            let _ = map::unmap(self.pages, self.len);
        }
        if self.own().is_ok() {
            // SAFETY: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a core dump of this process leaves the mapping of an address out (proc_pid_smaps(5), `dd`).
    fn is_left_out(at: NonNull<u8>) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let holds = |line: &str| {
            let (first, rest) = line.split_once(' ')?.0.split_once('-')?;
            let number = |hex| usize::from_str_radix(hex, 16).ok();
            Some((number(first)?..number(rest)?).contains(&at.addr().get()))
        };
        let mut lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
        flags
            .expect("a mapping")
            .split_whitespace()
            .any(|f| f == "dd")
    }

    #[test]
    fn a_core_dump_gives_no_memory_to_what_has_none() {
        const LEN: usize = 1 << 20;
        let view = View::new(16 * LEN, 4096).expect("addresses");
        let at = view.window_at(3 * LEN);
        assert!(is_left_out(at) && is_left_out(view.pages_at(0)));
        view.freeze(3 * LEN, LEN).expect("frozen");
        assert!(!is_left_out(at), "what is frozen is there");
        assert!(is_left_out(view.window_at(LEN)));
        // SAFETY: nobody uses it.
        unsafe { view.thaw(3 * LEN, LEN) }.expect("thawed");
        assert!(is_left_out(at));
        // SAFETY: as above.
        unsafe { view.renew(3 * LEN, LEN) }.expect("renewed");
        assert!(is_left_out(at));
    }
}
