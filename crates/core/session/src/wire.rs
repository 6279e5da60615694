//! The manager's socket: messages are sent whole with their descriptors, kept until there is room for them, and taken
//! without waiting.

use crate::error::{self, Error, ErrorKind};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tranship_proto::{Event, MAX_MESSAGE_BYTES, Request};
use tranship_sys::{epoll, errno, socket};

/// An event with its descriptors.
pub type EventWithFds = (Event, Vec<OwnedFd>);

/// Requests that may wait for room in the socket. The number of possible questions and reports bounds them anyway; this
/// limit is for a manager that hangs for days.
const MAX_OUTGOING: usize = 1 << 16;

/// The sockets of one manager after another.
pub struct Wire {
    /// `None` while the manager is away.
    fd: Option<OwnedFd>,
    /// Messages without room in the socket yet, oldest first.
    outgoing: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// A thread waited in vain for a request that can be left out, and nothing has come since.
    pub(super) stalled: bool,
    /// A question that is answered at once was not, and nothing has come since.
    pub(super) silent: bool,
    /// Nothing can be sent any more; the manager's earlier messages are still to be taken.
    broken: bool,
    /// The kernel has reported the break.
    reset: bool,
    /// The last connection was read to its end.
    ended: bool,
    /// The number of ended connections: answers to requests from before will not come.
    era: u64,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn new(fd: OwnedFd) -> Wire {
        Wire {
            fd: Some(fd),
            outgoing: VecDeque::new(),
            stalled: false,
            silent: false,
            broken: false,
            reset: false,
            ended: false,
            era: 0,
            buffer: vec![0; MAX_MESSAGE_BYTES],
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.fd.is_some()
    }

    /// Says whether a message can be sent to the manager, as far as known.
    pub(super) fn hears(&self) -> bool {
        self.is_up() && !self.broken
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn into_fd(self) -> Option<OwnedFd> {
        self.fd
    }

    pub(super) fn era(&self) -> u64 {
        self.era
    }

    pub(super) fn up(&mut self, fd: OwnedFd) {
        self.fd = Some(fd);
        self.ended = false;
        (self.broken, self.reset) = (false, false);
        (self.stalled, self.silent) = (false, false);
    }

    pub(super) fn down(&mut self) {
        if self.fd.take().is_some() {
            self.era += 1;
        }
        (self.broken, self.reset) = (false, false);
        (self.stalled, self.silent) = (false, false);
        self.outgoing.clear();
    }

    /// Says whether the last connection was read to its end, so that no message of that manager can still come. Returns
    /// true once for each connection.
    pub(super) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Ends sending and receiving; messages that have come are still to be taken.
    pub(super) fn hang_up(&mut self) {
        if let Some(fd) = &self.fd {
            // Fails if the other end did the same.
            let _ = socket::shutdown(fd);
        }
        self.broken = true;
        self.outgoing.clear();
    }

    /// Sends one request, or keeps it until there is room. A broken connection is "away", not an error of the caller.
    pub(super) fn send(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        debug_assert_eq!(fds.len(), request.fds());
        let Some(fd) = self.fd.as_ref().filter(|_| !self.broken) else {
            return Err(ErrorKind::ManagerAway.into());
        };
        let bytes = tranship_proto::encode(request);
        if self.outgoing.is_empty() {
            match socket::sendmsg(fd.as_fd(), &bytes, fds, true) {
                Ok(()) => return Ok(()),
                Err(error) if has_no_room(&error) => {}
                Err(error) => return Err(self.broke(&error)),
            }
        }
        let fds = fds.iter().map(BorrowedFd::try_clone_to_owned);
        match fds.collect::<io::Result<Vec<_>>>() {
            Ok(fds) if self.outgoing.len() < MAX_OUTGOING => {
                self.outgoing.push_back((bytes, fds));
                Ok(())
            }
            // It may not be left out: the next connection begins with all there is.
            _ => {
                tracing::warn!("no room to keep what the manager does not read");
                self.hang_up();
                Err(ErrorKind::ManagerAway.into())
            }
        }
    }

    /// Sends a message that can be left out, if that does not wait. Other calls find out about a broken connection.
    pub(super) fn offer(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) {
        debug_assert_eq!(fds.len(), request.fds());
        if let Some(fd) = self
            .fd
            .as_ref()
            .filter(|_| !self.broken && self.outgoing.is_empty())
        {
            let _ = socket::sendmsg(fd.as_fd(), &tranship_proto::encode(request), fds, true);
        }
    }

    /// Sends waiting messages, as far as there is room.
    pub(super) fn flush(&mut self) {
        while let (Some(fd), Some((bytes, fds))) = (&self.fd, self.outgoing.front()) {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match socket::sendmsg(fd.as_fd(), bytes, &fds, true) {
                Ok(()) => drop(self.outgoing.pop_front()),
                Err(error) if has_no_room(&error) => return,
                Err(error) => drop(self.broke(&error)),
            }
        }
    }

    /// Sends waiting messages, and waits at most `limit` for room.
    pub(super) fn flush_for(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        self.flush();
        while let (Some(fd), false) = (&self.fd, self.outgoing.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || epoll::wait_writable(fd, Some(left)).is_err() {
                return;
            }
            self.flush();
        }
    }

    fn broke(&mut self, error: &io::Error) -> Error {
        tracing::debug!(%error, "the manager's socket broke");
        // The manager's last messages must still be taken: a reader set without them would be wrong.
        self.broken = true;
        self.outgoing.clear();
        ErrorKind::ManagerAway.into()
    }

    /// Takes the next event, without waiting. Returns `Err(ManagerAway)` when the connection ended. Returns
    /// `Err(System)` when this process has no room for its descriptors: the event comes when there is room.
    pub(super) fn receive(&mut self) -> Result<Option<EventWithFds>, Error> {
        let Some(fd) = &self.fd else {
            return Err(ErrorKind::ManagerAway.into());
        };
        // A message is taken whole or not at all: a domain that lost one part of the reader set would have to forget
        // the rest.
        let received = match socket::recvmsg_whole(fd.as_fd(), &mut self.buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            // The kernel says this once, when the manager died with unread requests; its earlier messages come after.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !self.reset => {
                (self.broken, self.reset) = (true, true);
                return self.receive();
            }
            Err(source) if source.raw_os_error() == Some(errno::NO_DESCRIPTORS) => {
                let call = "recvmsg of the manager's descriptors";
                return Err(error::system(call)(source));
            }
            Err(_) => {
                self.down();
                return Err(ErrorKind::ManagerAway.into());
            }
        };
        (self.stalled, self.silent) = (false, false);
        if received.bytes == 0 {
            self.down();
            self.ended = true;
            return Err(ErrorKind::ManagerAway.into());
        }
        let complaint = if received.truncated {
            Some("a truncated message".to_string())
        } else {
            match tranship_proto::decode::<Event>(&self.buffer[..received.bytes]) {
                Ok(event) if event.fds() == received.fds.len() => {
                    return Ok(Some((event, received.fds)));
                }
                Ok(event) => Some(format!(
                    "{} descriptors with a message that carries {}",
                    received.fds.len(),
                    event.fds()
                )),
                Err(error) => Some(error.to_string()),
            }
        };
        self.down();
        Err(error::protocol(complaint.unwrap_or_default()))
    }
}

/// Says whether there may be room later: the other end has not read all messages in the socket, or too many descriptors
/// are in transit (unix(7): ETOOMANYREFS).
fn has_no_room(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(errno::TOO_MANY_IN_FLIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_manager_said_nothing_is_said_of_no_other_one() {
        let (near, far) = socket::pair().expect("a pair");
        let mut wire = Wire::new(near);
        let stalled = |wire: &mut Wire| std::mem::replace(&mut wire.stalled, true);
        assert!(!stalled(&mut wire));
        drop(far);
        let error = wire.receive().map(drop).expect_err("it is gone");
        assert!(error == ErrorKind::ManagerAway && !stalled(&mut wire));
        // The connection's end may be found in another way too.
        wire.down();
        assert!(!stalled(&mut wire));
        wire.up(socket::pair().expect("a pair").0);
        assert!(!stalled(&mut wire));
    }
}
