//! A memfd for one buffer: filled by its maker alone, and then sealed, so that nobody changes it ever again.
//!
//! The other kinds of shared memory have a writer for as long as they are ([`crate::make()`]). This one has none once
//! somebody else sees it, and that the kernel refuses the seal while anybody still could write is what makes it so.

use crate::verify::Sealing;
use crate::{MakeError, View, make};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tranship_sys::memfd;

/// Memory that only its maker has, not sealed yet.
#[derive(Debug)]
pub struct Draft {
    fd: OwnedFd,
    len: usize,
}

impl Draft {
    /// `len` bytes, whole pages, that take memory when they are placed ([`crate::Guarded::place_draft`]).
    pub fn make(name: &str, len: usize) -> Result<Draft, MakeError> {
        let fd = make::create(name, len)?;
        let sized = memfd::set_len(&fd, len as u64);
        sized.map_err(|source| MakeError::Io {
            step: "giving it a size",
            len_bytes: len,
            source,
        })?;
        Ok(Draft { fd, len })
    }

    /// With these bytes, which nobody may change meanwhile. Takes memory for each as it is copied, and maps nothing.
    pub fn copy_of(name: &str, bytes: View<'_>) -> Result<Draft, MakeError> {
        let fd = make::create(name, bytes.len())?;
        let written = bytes.write_to(&fd);
        written.map_err(|source| MakeError::Io {
            step: "copying bytes in",
            len_bytes: bytes.len(),
            source,
        })?;
        Ok(Draft {
            len: bytes.len(),
            fd,
        })
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: it has at least a page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Seals it for good. No mapping may be left that could write it; reading and private ones may.
    ///
    /// EBUSY: somebody can still write, or the kernel holds pages of it, for a socket or pipe that has not sent them or
    /// for I/O that has not ended; it then has waited up to 160 ms for that. The draft comes back as it was.
    pub fn seal(self) -> Result<OwnedFd, (Draft, io::Error)> {
        match memfd::add_seals(&self.fd, Sealing::Nobody.added()) {
            Ok(()) => Ok(self.fd),
            Err(error) => Err((self, error)),
        }
    }
}

impl AsFd for Draft {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Guarded, verify_as};
    use tranship_sys::map::Access;

    fn placed(len: usize) -> (Guarded, Draft) {
        let window =
            Guarded::reserve(2 * len, tranship_sys::map::Within::ANYWHERE).expect("reserve");
        let draft = Draft::make("test", len).expect("make");
        window.place_draft(len, &draft).expect("place");
        (window, draft)
    }

    #[test]
    fn it_is_written_sealed_and_seen_privately() {
        let len = 4 * tranship_sys::page_size();
        let (window, draft) = placed(len);
        window
            .write(len + 5, View::from_slice(b"text"))
            .expect("write");
        // Its writable mapping is there.
        let (draft, error) = draft.seal().expect_err("mapped");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        window
            .place_private(len, len, &draft, Access::None)
            .expect("private");
        let fd = draft.seal().expect("seal");
        verify_as(&fd, len, Sealing::Nobody).expect("as prescribed");
        window
            .protect(len, len, Access::ReadWrite)
            .expect("protect");
        let read = |at: usize| window.view(at, 4).expect("view").to_vec();
        assert_eq!(read(len + 5), b"text");
        assert!(!window.is_touched(len, len).expect("ask"));
        window
            .write(len + 5, View::from_slice(b"mine"))
            .expect("write");
        assert!(window.is_touched(len, len).expect("ask"));
        let copy = Draft::copy_of("test", window.view(len, len).expect("view")).expect("copy");
        let copy = copy.seal().expect("seal");
        verify_as(&copy, len, Sealing::Nobody).expect("as prescribed");
        for (fd, text) in [(&fd, b"text"), (&copy, b"mine")] {
            window
                .place_private(0, len, fd, Access::Read)
                .expect("private");
            assert_eq!(read(5), text);
        }
        window.clear(0, len).expect("clear");
    }

    #[test]
    fn a_sealed_one_is_not_mapped_shared_and_writable() {
        let len = tranship_sys::page_size();
        let draft = Draft::copy_of("test", View::from_slice(&vec![7; len])).expect("copy");
        let fd = draft.seal().expect("seal");
        assert!(Guarded::map(&fd, len, Access::ReadWrite).is_err());
        assert!(memfd::punch(&fd, 0, len as u64).is_err());
        assert!(memfd::set_len(&fd, 0).is_err());
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
    }

    #[test]
    fn what_cannot_be_made_is_an_error() {
        assert!(matches!(
            Draft::make("test", 5),
            Err(MakeError::Length { .. })
        ));
        let most = Draft::make("test", 1 << 60);
        assert!(matches!(most, Err(MakeError::Headroom { .. })));
        assert!(matches!(
            Draft::copy_of("test", View::from_slice(b"xyz")),
            Err(MakeError::Length { .. })
        ));
    }
}
