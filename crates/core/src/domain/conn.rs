//! The manager's socket: sending requests, taking events, remembering replies.

use crate::error::DomainError;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tranship_proto::{Event, MAX_MESSAGE_BYTES, Req, Request, StatRecord};
use tranship_sys::socket;

/// An event with its descriptors.
pub(crate) type Parcel = (Event, Vec<OwnedFd>);

/// The connection. One thread at a time works with it, and never waits while it does, except for
/// room in the socket's send buffer.
pub(crate) struct Conn {
    /// `None` while the manager is away.
    fd: Option<OwnedFd>,
    next_req: u32,
    replies: HashMap<Req, Parcel>,
    /// Replies that nobody waits for any more are dropped when they come.
    forgotten: Vec<Req>,
    records: Vec<(Req, StatRecord)>,
    pub(crate) last_attempt: Option<std::time::Instant>,
    buffer: Vec<u8>,
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd) -> Conn {
        Conn {
            fd: Some(fd),
            next_req: 1,
            replies: HashMap::new(),
            forgotten: Vec::new(),
            records: Vec::new(),
            last_attempt: None,
            buffer: vec![0; MAX_MESSAGE_BYTES],
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.fd.is_some()
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn down(&mut self) {
        self.fd = None;
        self.replies.clear();
        self.forgotten.clear();
    }

    pub(crate) fn into_fd(self) -> Option<OwnedFd> {
        self.fd
    }

    pub(crate) fn up(&mut self, fd: OwnedFd) {
        self.fd = Some(fd);
    }

    pub(crate) fn next_req(&mut self) -> Req {
        self.next_req = self.next_req.wrapping_add(1).max(1);
        Req(self.next_req)
    }

    /// Sends one request. A broken connection is "away", not an error of the caller.
    pub(crate) fn send(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), DomainError> {
        debug_assert_eq!(fds.len(), request.fds());
        let Some(fd) = &self.fd else {
            return Err(DomainError::ManagerAway);
        };
        let bytes = tranship_proto::encode(request);
        match socket::sendmsg(fd.as_fd(), &bytes, fds, false) {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!(%error, "the manager's socket broke");
                self.down();
                Err(DomainError::ManagerAway)
            }
        }
    }

    /// The next event, without waiting. `Err(ManagerAway)` when the connection ended.
    pub(crate) fn receive(&mut self) -> Result<Option<Parcel>, DomainError> {
        let Some(fd) = &self.fd else {
            return Err(DomainError::ManagerAway);
        };
        let received = match socket::recvmsg(fd.as_fd(), &mut self.buffer, true) {
            Ok(received) => received,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(None),
            Err(_) => {
                self.down();
                return Err(DomainError::ManagerAway);
            }
        };
        if received.bytes == 0 {
            self.down();
            return Err(DomainError::ManagerAway);
        }
        let complaint = if received.ctrunc || received.truncated {
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
        Err(DomainError::Protocol(complaint.unwrap_or_default()))
    }

    /// Keeps a reply for the thread that waits for it. True if nobody does any more; the reply is
    /// then to be taken at once by the caller.
    pub(crate) fn keep_reply(&mut self, req: Req, parcel: Parcel) -> bool {
        let forgotten = self.forgotten.iter().position(|f| *f == req);
        if let Some(at) = forgotten {
            self.forgotten.swap_remove(at);
        }
        self.replies.insert(req, parcel);
        forgotten.is_some()
    }

    pub(crate) fn keep_record(&mut self, req: Req, record: StatRecord) {
        self.records.push((req, record));
    }

    pub(crate) fn take_records(&mut self, req: Req) -> Vec<StatRecord> {
        let (mine, others) = std::mem::take(&mut self.records)
            .into_iter()
            .partition(|(r, _)| *r == req);
        self.records = others;
        let mine: Vec<(Req, StatRecord)> = mine;
        mine.into_iter().map(|(_, record)| record).collect()
    }

    pub(crate) fn take_reply(&mut self, req: Req) -> Option<Parcel> {
        self.replies.remove(&req)
    }

    /// The caller waits no longer for this reply.
    pub(crate) fn forget(&mut self, req: Req) {
        if self.replies.remove(&req).is_none() {
            self.forgotten.push(req);
        }
    }
}
