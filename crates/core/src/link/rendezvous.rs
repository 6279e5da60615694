//! Sockets handed from process to process under a name: for protocols of one's own between domains.
//!
//! The manager checks who may export and bind the name, and tells each end who the other is; then it is out of it. The
//! socket lives on through a restart of the manager.

use super::listener::{export, forget, next_incoming};
use super::open::checked_name;
use crate::domain::DomainCore;
use crate::error::DomainError;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tranship_proto::{DomainId, Event, Request};
use tranship_sys::socket;

/// A SEQPACKET socket to another domain, and who that is. What comes out of it is as good as its other end. Either end
/// may hold a duplicate of this one, so its blocking mode is not to be relied on: use `MSG_DONTWAIT`.
#[derive(Debug)]
pub struct PeerSocket {
    pub socket: OwnedFd,
    /// The other end's process: readable once it has ended.
    pub process: OwnedFd,
    pub domain: DomainId,
    pub uid: u32,
    pub pid: u32,
}

/// A name at which others hand in sockets.
#[derive(Debug)]
pub struct SocketListener {
    domain: &'static DomainCore,
    export: Arc<AtomicU32>,
}

impl SocketListener {
    pub(crate) fn new(
        domain: &'static DomainCore,
        name: &str,
    ) -> Result<SocketListener, DomainError> {
        let export = export(domain, name, None)?;
        Ok(SocketListener { domain, export })
    }

    /// The next socket that was handed in, if there is one. Does not block.
    ///
    /// # Errors
    /// [`DomainError::Forked`]. A manager that is away is none: the name is exported again when it is back.
    pub fn accept(&self) -> Result<Option<PeerSocket>, DomainError> {
        self.domain.check_fork()?;
        match self.domain.turn() {
            Ok(()) | Err(DomainError::ManagerAway) => {}
            Err(error) => return Err(error),
        }
        while let Some((event, fds)) = next_incoming(self.domain, &self.export) {
            let (
                Event::SocketIncoming {
                    peer,
                    peer_uid,
                    peer_pid,
                    ..
                },
                Ok([socket, process]),
            ) = (event, <[OwnedFd; 2]>::try_from(fds))
            else {
                continue;
            };
            // The manager lets any socket through; another kind would cut messages in two.
            if socket::is_unix_seqpacket(&socket) {
                return Ok(Some(PeerSocket {
                    socket,
                    process,
                    domain: peer,
                    uid: peer_uid,
                    pid: peer_pid,
                }));
            }
            tracing::warn!(%peer, peer_pid, "handed in what is no SEQPACKET socket");
        }
        Ok(None)
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        if !self.domain.fork.is_child() {
            forget(self.domain, &self.export);
        }
    }
}

/// Hands a new socket to who exports the name.
pub(crate) fn connect(domain: &'static DomainCore, name: &str) -> Result<PeerSocket, DomainError> {
    checked_name(name)?;
    let (near, far) = socket::pair().map_err(DomainError::system("socketpair"))?;
    let make = |req| Request::ConnectSocket {
        req,
        name: name.into(),
    };
    let (event, fds) = domain.call(make, &[far.as_fd()], None)?;
    match (event, <[OwnedFd; 1]>::try_from(fds)) {
        (
            Event::SocketTaken {
                peer,
                peer_uid,
                peer_pid,
                ..
            },
            Ok([process]),
        ) => Ok(PeerSocket {
            socket: near,
            process,
            domain: peer,
            uid: peer_uid,
            pid: peer_pid,
        }),
        (event, _) => Err(DomainError::Protocol(format!(
            "{event:?} where a socket was handed in"
        ))),
    }
}
