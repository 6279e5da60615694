//! Messages between a test and its child: one JSON value per packet, descriptors beside it.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};

use super::error::PeerError;

/// Longest message in bytes; descriptors in one message.
const LONGEST: usize = 96 << 10;
const FDS: usize = 64;

/// One end of a control socket.
#[derive(Debug)]
pub struct Control(OwnedFd);

impl Control {
    /// Returns two connected ends.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn pair() -> Result<(Self, Self), PeerError> {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(Error::from)?;
        Ok((Self(a), Self(b)))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends one message; waits while the other end does not read.
    ///
    /// # Errors
    /// When the other end is gone, or the message is longer than 96 KiB.
    pub fn send<T: Serialize + ?Sized>(&self, message: &T) -> Result<(), PeerError> {
        self.send_fds(message, &[])
    }

    /// Sends like [`Control::send`], with up to 64 descriptors.
    ///
    /// # Errors
    /// As [`Control::send`].
    pub fn send_fds<T: Serialize + ?Sized>(
        &self,
        message: &T,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), PeerError> {
        let text = serde_json::to_vec(message)?;
        if text.len() > LONGEST || fds.len() > FDS {
            let what = format!(
                "{} bytes and {} descriptors; at most {LONGEST} and {FDS}",
                text.len(),
                fds.len()
            );
            return Err(Error::new(ErrorKind::InvalidInput, what).into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        rustix::io::retry_on_intr(|| {
            sendmsg(
                &self.0,
                &[IoSlice::new(&text)],
                &mut control,
                SendFlags::NOSIGNAL,
            )
        })
        .map_err(Error::from)?;
        Ok(())
    }

    /// Waits for a message; `None` when the other end is gone and everything was read.
    ///
    /// # Errors
    /// A message of another type.
    pub fn recv<T: DeserializeOwned>(&self) -> Result<Option<T>, PeerError> {
        Ok(self.recv_fds()?.map(|(message, _)| message))
    }

    /// Receives like [`Control::recv`], with the descriptors that came along.
    ///
    /// # Errors
    /// As [`Control::recv`].
    pub fn recv_fds<T: DeserializeOwned>(&self) -> Result<Option<(T, Vec<OwnedFd>)>, PeerError> {
        let mut text = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::io::retry_on_intr(|| {
            recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut text)],
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            )
        });
        let n = match got {
            Ok(got) => got.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(e) => return Err(Error::from(e).into()),
        };
        let fds = control.drain().filter_map(|m| match m {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fds = fds.flatten().collect();
        if n == 0 {
            return Ok(None);
        }
        Ok(Some((serde_json::from_slice(&text[..n])?, fds)))
    }

    /// Returns whether a message (or the end) is there to be read.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut poll = [rustix::event::PollFd::new(
            &self.0,
            rustix::event::PollFlags::IN,
        )];
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(rustix::event::poll(&mut poll, Some(&now)), Ok(1))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
