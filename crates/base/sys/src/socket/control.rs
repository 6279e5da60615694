//! Control data of a message: descriptors and credentials.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Most descriptors of one message. A message with more arrives with `ctrunc` set, and the kernel does not install the
/// surplus.
pub const MAX_FDS: usize = 32;

/// The identity of the process at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creds {
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
}

impl From<libc::ucred> for Creds {
    fn from(raw: libc::ucred) -> Creds {
        Creds {
            // 0 when the process is not in this pid namespace.
            pid: u32::try_from(raw.pid).unwrap_or(0),
            uid: raw.uid,
            gid: raw.gid,
        }
    }
}

/// Room for control messages, with the alignment of `cmsghdr`.
#[repr(C, align(8))]
pub(super) struct Control<const N: usize>(pub(super) [u8; N]);

/// Returns `CMSG_SPACE` of `len` bytes.
pub(super) const fn space(len: usize) -> usize {
    size_of::<libc::cmsghdr>() + len.next_multiple_of(8)
}

pub(super) const FDS_SPACE: usize = space(MAX_FDS * size_of::<RawFd>());

/// Owns a descriptor that the kernel has just made for this process. Returns `None` for the negative numbers that it
/// gives instead of a pidfd of a process that is gone.
pub(super) fn own(raw: RawFd) -> Option<OwnedFd> {
    if raw < 0 {
        return None;
    }
    // SAFETY: the kernel installed it for this message; no other code knows its number.
    Some(unsafe { OwnedFd::from_raw_fd(raw) })
}
