//! A mapping whose pages are protected piece by piece, by its own domain against its own mistakes. It begins as one memfd,
//! or as addresses into which pieces are put.
//!
//! What keeps *other* domains out are seals; what is taken away here can be had back by who owns the mapping.

use crate::mapping::Owned;
use crate::{Draft, MakeError, OutOfBounds, Sealing, View, make};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use tranship_sys::map::{self, Access, Within};
use tranship_sys::memfd;
use tranship_sys::pagemap::Pagemap;

/// From here on huge pages are asked for, bytes.
pub const HUGE: usize = 2 << 20;

/// Bytes of a memfd, of which pieces can be made inaccessible, readable or writable.
///
/// Whoever touches a piece that it took away from itself faults.
#[derive(Debug)]
pub struct Guarded(Owned, OnceLock<Option<Pagemap>>);

impl Guarded {
    /// Maps the first `len` bytes with the most that pieces of it can ever have. The file must have been verified.
    pub fn map(fd: impl AsFd, len: usize, most: Access) -> io::Result<Guarded> {
        Ok(Guarded(Owned::new(fd, most, len)?, OnceLock::new()))
    }

    /// As [`Guarded::map`], where it has to lie.
    pub fn map_within(
        fd: impl AsFd,
        len: usize,
        most: Access,
        within: Within,
    ) -> io::Result<Guarded> {
        if within == Within::ANYWHERE {
            return Guarded::map(fd, len, most);
        }
        let whole = Guarded::reserve(len, within)?;
        // SAFETY: exactly the reservation just made, which nobody else knows.
        unsafe { map::map_fixed(whole.0.base, fd, most, len, 0)? };
        Ok(whole)
    }

    /// Addresses alone: a place for pieces.
    pub fn reserve(len: usize, within: Within) -> io::Result<Guarded> {
        Ok(Guarded(Owned::reserve(len, within)?, OnceLock::new()))
    }

    /// Makes `len` bytes of zeroed memory with this as its writer's mapping, and no seals: nobody else may be shown
    /// it before [`seal`].
    pub fn make(name: &str, len: usize, huge: bool) -> Result<(OwnedFd, Guarded), MakeError> {
        Guarded::make_within(name, len, huge, Within::ANYWHERE)
    }

    /// As [`Guarded::make`], where it has to lie.
    pub fn make_within(
        name: &str,
        len: usize,
        huge: bool,
        within: Within,
    ) -> Result<(OwnedFd, Guarded), MakeError> {
        make::make_open(name, len, huge, |fd| {
            if !huge {
                return Guarded::map_within(fd, len, Access::ReadWrite, within);
            }
            let whole = Guarded::map_within(fd, len, Access::ReadWrite, within.aligned(HUGE))?;
            // SAFETY: our own mapping. Best effort: the pages are there already, this maps them whole.
            let _ = unsafe { map::hint(whole.0.base, len, map::Hint::Huge) };
            Ok(whole)
        })
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Never: a mapping has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its first byte.
    pub fn base(&self) -> *mut u8 {
        self.0.base.as_ptr()
    }

    /// Where a piece of whole pages begins.
    fn piece(&self, offset: usize, len: usize) -> io::Result<NonNull<u8>> {
        let page = tranship_sys::page_size();
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        if !inside || !offset.is_multiple_of(page) || !len.is_multiple_of(page) || len == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{len} bytes at {offset} are not pages of {} bytes",
                    self.len()
                ),
            ));
        }
        // SAFETY: inside our own mapping, as just checked.
        Ok(unsafe { self.0.base.add(offset) })
    }

    /// Protects a piece: whole pages. Blocks for as long as the kernel needs to change the page tables.
    pub fn protect(&self, offset: usize, len: usize, access: Access) -> io::Result<()> {
        let at = self.piece(offset, len)?;
        // SAFETY: inside our own mapping, which stays mapped. A reference into it that needed more would fault, not
        // read or write anything else.
        unsafe { map::protect(at, len, access) }
    }

    /// Makes each piece of `piece` bytes a mapping of its own for good, so that [`Guarded::protect`] is faster: else the
    /// kernel merges neighbours that are protected alike and parts them again. Does nothing for pieces of huge pages.
    ///
    /// Neighbours are told apart by advice that means nothing to pieces so small. Without huge pages in the kernel they stay
    /// as they are.
    pub fn keep_apart(&self, piece: usize) {
        if piece >= HUGE {
            return;
        }
        for offset in (piece..self.len()).step_by(2 * piece.max(1)) {
            let Ok(at) = self.piece(offset, piece) else {
                return;
            };
            // SAFETY: inside our own mapping.
            if unsafe { map::hint(at, piece, map::Hint::NoHuge) }.is_err() {
                return;
            }
        }
    }

    /// Puts a draft in the place of a piece, to be read and written, and gives it all its memory. Views of the piece
    /// find zeros there from then on.
    pub fn place_draft(&self, offset: usize, draft: &Draft) -> io::Result<()> {
        let len = draft.len();
        let at = self.piece(offset, len)?;
        // SAFETY: a piece of our own mapping. References into it are promised not to be there by those who make them.
        unsafe {
            map::map_fixed(at, draft, Access::ReadWrite, len, 0)?;
            if len >= HUGE {
                // Best effort: the kernel may be built without huge pages.
                let _ = map::hint(at, len, map::Hint::Huge);
            }
            // In one pass, instead of a fault a page.
            match map::hint(at, len, map::Hint::PopulateWrite) {
                Ok(()) => Ok(()),
                Err(_) => memfd::fallocate(draft, len as u64),
            }
        }
    }

    /// Shows a file in the place of a piece: what is written there stays here. Views of the piece find its bytes from
    /// then on. The file is [verified](crate::verify_as), or our own.
    pub fn place_private(
        &self,
        offset: usize,
        len: usize,
        fd: impl AsFd,
        access: Access,
    ) -> io::Result<()> {
        self.place_private_part(offset, fd, access, len, 0)
    }

    /// As [`Guarded::place_private`], from the byte `begin` of the file on, whole pages.
    pub fn place_private_part(
        &self,
        offset: usize,
        fd: impl AsFd,
        access: Access,
        len: usize,
        begin: u64,
    ) -> io::Result<()> {
        let at = self.piece(offset, len)?;
        // SAFETY: as in `place_draft`.
        unsafe { map::map_private_fixed(at, fd, access, len, begin) }
    }

    /// Shows a part of a file, from the byte `begin` of it on, in the place of a piece: whole pages, shared with whoever
    /// else maps it. The file is [verified](crate::verify_as), or our own.
    pub fn place_shared(
        &self,
        offset: usize,
        fd: impl AsFd,
        access: Access,
        len: usize,
        begin: u64,
    ) -> io::Result<()> {
        let at = self.piece(offset, len)?;
        // SAFETY: as in `place_draft`.
        unsafe { map::map_fixed(at, fd, access, len, begin) }
    }

    /// Leaves addresses alone in the place of a piece, where nothing can be touched.
    pub fn clear(&self, offset: usize, len: usize) -> io::Result<()> {
        let at = self.piece(offset, len)?;
        // SAFETY: as in `place_draft`; whoever touches it now faults.
        unsafe { map::make_void(at, len) }
    }

    /// Was a piece written since [`Guarded::place_private`]? The page tables say so; where they cannot be asked (no /proc,
    /// or a process that became undumpable before it asked first) this is an error.
    pub fn is_touched(&self, offset: usize, len: usize) -> io::Result<bool> {
        let at = self.piece(offset, len)?;
        let pagemap = self.1.get_or_init(|| Pagemap::open().ok());
        let pagemap = pagemap.as_ref().ok_or(io::ErrorKind::NotFound)?;
        pagemap.is_touched(at, len)
    }

    /// A piece, for reading while others may write it. It must be readable now, else reading faults.
    pub fn view(&self, offset: usize, len: usize) -> Result<View<'_>, OutOfBounds> {
        // SAFETY: mapped for as long as `self` lives.
        let all = unsafe { View::new(self.base(), self.len()) };
        all.sub(offset..offset.saturating_add(len))
    }

    /// Copies bytes in, which may change meanwhile. The piece must be writable now, else this faults. Others may
    /// read it meanwhile, through views.
    pub fn write(&self, offset: usize, bytes: View<'_>) -> Result<(), OutOfBounds> {
        self.view(offset, bytes.len())?;
        // SAFETY: in bounds, as just checked, and mapped as long as `self`. No reference to it is made.
        unsafe { bytes.copy_to(self.base().add(offset)) };
        Ok(())
    }

    /// Takes what waits in a stream socket straight into a piece, without blocking; says how many bytes came. 0: the
    /// end of the stream. Where the piece is not writable now the error says so (`EFAULT`), nothing faults.
    pub fn receive(&self, offset: usize, len: usize, socket: impl AsFd) -> io::Result<usize> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        if !inside {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: in bounds, as just checked, and mapped as long as `self`. The kernel writes as another process
        // would; no reference to it is made.
        unsafe { tranship_sys::stream::recv_into(socket, self.base().add(offset), len) }
    }
}

/// Seals what [`Guarded::make`] made, so that it can be shown.
pub fn seal(fd: impl AsFd, sealing: Sealing) -> io::Result<()> {
    memfd::add_seals(fd, sealing.added())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says to touching a byte through a pipe: it uses the same page tables.
    fn touch(at: *mut u8) -> (bool, bool) {
        let (from, to) = rustix::pipe::pipe().expect("pipe");
        // SAFETY: the kernel checks the address; at most one byte is read, and written back as it was.
        unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&to);
            let reads = libc::write(fd, at.cast(), 1) == 1;
            let _ = rustix::io::write(&to, &[7]);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&from);
            (reads, libc::read(fd, at.cast(), 1) == 1)
        }
    }

    #[test]
    fn pieces_are_taken_and_given() {
        let page = tranship_sys::page_size();
        let (fd, map) = Guarded::make("test", 3 * page, false).expect("make");
        seal(&fd, Sealing::OneWriter).expect("seal");
        crate::verify(&fd, 3 * page).expect("verify");
        map.write(page - 1, View::from_slice(b"xyz"))
            .expect("write");
        for (access, allows) in [
            (Access::None, (false, false)),
            (Access::Read, (true, false)),
            (Access::ReadWrite, (true, true)),
        ] {
            map.protect(page, page, access).expect("protect");
            assert_eq!(touch(map.base().wrapping_add(page)), allows, "{access:?}");
            assert_eq!(touch(map.base()), (true, true));
        }
        assert_eq!(map.view(page, 2).expect("view").to_vec()[1], b'z');
    }

    #[test]
    fn pieces_kept_apart_stay_mappings_of_their_own() {
        let page = tranship_sys::page_size();
        let (_fd, map) = Guarded::make("test", 4 * page, false).expect("make");
        let range = map.base().addr()..map.base().addr() + map.len();
        let mappings = || {
            let all = std::fs::read_to_string("/proc/self/maps").expect("maps");
            let begins = |line: &str| usize::from_str_radix(line.split_once('-')?.0, 16).ok();
            let inside = all
                .lines()
                .filter_map(begins)
                .filter(|at| range.contains(at));
            inside.count()
        };
        assert_eq!(mappings(), 1);
        map.keep_apart(page);
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return tranship_testkit::skipped("a kernel without huge pages merges them");
        }
        assert_eq!(mappings(), 4);
        map.protect(page, page, Access::None).expect("protect");
        map.protect(page, page, Access::ReadWrite).expect("protect");
        assert_eq!(mappings(), 4);
    }

    #[test]
    fn readers_cannot_give_themselves_more() {
        let page = tranship_sys::page_size();
        let (fd, _map) = Guarded::make("test", page, false).expect("make");
        seal(&fd, Sealing::OneWriter).expect("seal");
        let reader = Guarded::map(&fd, page, Access::Read).expect("map");
        assert!(reader.protect(0, page, Access::ReadWrite).is_err());
        assert!(Guarded::map(&fd, page, Access::ReadWrite).is_err());
    }

    #[test]
    fn what_is_not_pages_of_it_is_refused() {
        let page = tranship_sys::page_size();
        let (_fd, map) = Guarded::make("test", 2 * page, false).expect("make");
        for (offset, len) in [
            (0, 0),
            (1, page),
            (0, 1),
            (page, 2 * page),
            (usize::MAX, page),
        ] {
            assert!(map.protect(offset, len, Access::Read).is_err());
        }
        assert!(
            map.write(2 * page, View::from_slice(b"x")).is_err()
                && map.view(page, page + 1).is_err()
        );
        assert!(map.write(usize::MAX, View::from_slice(b"xx")).is_err());
    }
}
