//! Sockets between processes, under a name: for protocols of one's own between domains.
//!
//! The manager checks who may export and bind the name, makes the pair of sockets, and tells each end who the other is; then
//! it is out of it. The sockets live on through a restart of the manager.

use super::listener::{export, forget, next_incoming};
use crate::base::checked_name;
use crate::domain::{Backlog, DomainCore, NEWS, Take};
use crate::error::{self, Error, Kind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tranship_proto::{DomainId, Event, Request};
use tranship_sys::epoll::{Epoll, Interest};

/// A SEQPACKET socket to another domain, and who that is. What comes out of it is as good as its other end: descriptors may
/// be of anything, and closing them may block. The manager made it; nobody else has this end.
#[derive(Debug)]
pub struct PeerSocket {
    /// This end.
    pub socket: OwnedFd,
    /// The other end's process: readable once it has ended.
    pub process: OwnedFd,
    /// Whose the other end is.
    pub domain: DomainId,
    /// Its user, as the kernel told the manager.
    pub uid: u32,
    /// Its process, as the kernel told the manager.
    pub pid: u32,
}

/// A name at which others connect sockets. At most 128 wait there, of one user fewer if others come. Its descriptor is
/// readable when the manager has news, or one of them has said something.
#[derive(Debug)]
pub struct SocketListener {
    domain: DomainCore,
    export: Arc<AtomicU32>,
    speaks: Arc<Epoll>,
}

impl AsFd for SocketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.speaks.as_fd()
    }
}

impl SocketListener {
    pub(crate) fn new(domain: &DomainCore, name: &str) -> Result<SocketListener, Error> {
        let speaks = Epoll::new().map_err(Error::system("epoll_create"))?;
        let news = speaks.add(domain.pollable(), NEWS, Interest::Read);
        news.map_err(Error::system("epoll_ctl"))?;
        let speaks = Arc::new(speaks);
        let export = export(domain, name, None, Some(&speaks))?;
        Ok(SocketListener {
            domain: domain.clone(),
            export,
            speaks,
        })
    }

    /// The next one that was connected, if there is one. Does not block.
    ///
    /// # Errors
    /// [`Kind::Forked`]. A manager that is away is none: the name is exported again when it is back.
    pub fn accept(&self) -> Result<Option<PeerSocket>, Error> {
        self.accept_one(Backlog::pop)
    }

    /// The next one out of which something is to be taken, for protocols in which who connects says the first word: who says
    /// nothing then keeps nobody out. Does not block.
    ///
    /// # Errors
    /// As [`SocketListener::accept`].
    pub fn accept_speaking(&self) -> Result<Option<PeerSocket>, Error> {
        self.accept_one(Backlog::pop_speaking)
    }

    pub(super) fn domain(&self) -> &DomainCore {
        &self.domain
    }

    fn accept_one(&self, take: Take) -> Result<Option<PeerSocket>, Error> {
        self.domain.check_fork()?;
        match self.domain.turn() {
            Err(error) if error != Kind::ManagerAway => return Err(error),
            _ => {}
        }
        let next = next_incoming(&self.domain, &self.export, take);
        Ok(next.and_then(|(event, fds)| {
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
                return None;
            };
            Some(PeerSocket {
                socket,
                process,
                domain: peer,
                uid: peer_uid,
                pid: peer_pid,
            })
        }))
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        if !self.domain.fork.is_child() {
            forget(&self.domain, &self.export);
        }
    }
}

/// A new socket to who exports the name.
pub(crate) fn connect(domain: &DomainCore, name: &str) -> Result<PeerSocket, Error> {
    checked_name(name)?;
    let make = |req| Request::ConnectSocket {
        req,
        name: name.into(),
    };
    let (event, fds) = domain.call(make, &[], None)?;
    match (event, <[OwnedFd; 2]>::try_from(fds)) {
        (
            Event::SocketTaken {
                peer,
                peer_uid,
                peer_pid,
                ..
            },
            Ok([socket, process]),
        ) => Ok(PeerSocket {
            socket,
            process,
            domain: peer,
            uid: peer_uid,
            pid: peer_pid,
        }),
        (event, _) => Err(error::unexpected(&event, "a socket was asked for")),
    }
}
