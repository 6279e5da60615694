//! A TAP device: an Ethernet port whose other end is the kernel's network stack.
//!
//! Linux `Documentation/networking/tuntap.rst`. One `readv` takes one frame, one `writev` sends one; nothing blocks.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};

/// Bytes in front of each frame of a device that was opened with [`Offload::Segments`]: `struct virtio_net_hdr`.
pub const VNET_HEADER: usize = 10;

/// The work that the kernel leaves to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// No work: frames of at most the device's MTU, checksums complete.
    None,
    /// Checksums are partial and TCP segments up to 64 KiB long; each frame has a [`VNET_HEADER`] in front.
    Segments,
}

/// An open device. Dropping it removes the device.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    name: String,
    offload: Offload,
}

impl Tap {
    /// Makes a device in this process's network namespace. The device may then be moved into another one; the
    /// descriptor stays valid. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// If the name is not 1 to 15 bytes long, or the kernel refuses.
    pub fn open(name: &str, offload: Offload) -> io::Result<Self> {
        let fd = tranship_sys::tun::tap(name, offload == Offload::Segments)?;
        Ok(Self {
            fd,
            name: name.to_owned(),
            offload,
        })
    }

    /// Takes a device that another process opened, which has [`name`](Tap::name) "".
    #[must_use]
    pub fn received(fd: OwnedFd, offload: Offload) -> Self {
        Self {
            fd,
            name: String::new(),
            offload,
        }
    }

    /// Returns the name that `ip link` shows.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the offload that was requested at the open.
    #[must_use]
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Takes a frame into the slices; `None` if there is none now. Bytes beyond the slices are cut off.
    ///
    /// # Errors
    /// Those of `readv`, except "would block".
    pub fn receive(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match rustix::io::readv(&self.fd, into) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame in slices; `false` if the kernel has no room for it now or the device is down: a network may lose
    /// frames.
    ///
    /// # Errors
    /// Other errors of `writev`.
    pub fn send_slices(&self, frame: &[IoSlice<'_>]) -> io::Result<bool> {
        sent(rustix::io::writev(&self.fd, frame))
    }
}

/// Returns the result of a `writev` to a TAP device: `false` if the frame is lost.
///
/// # Errors
/// Errors that do not only lose a frame.
pub fn sent(written: Result<usize, Errno>) -> io::Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::IO) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
