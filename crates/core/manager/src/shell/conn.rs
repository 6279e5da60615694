//! One client's connection.

use super::flight::Flight;
use super::out::Outgoing;
use super::worker::Carried;
use crate::state::FdToken;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use tranship_proto::DomainId;
use tranship_sys::epoll::Interest;

/// The queue length at which a client is not read: a client that does not take answers cannot ask for more.
const FULL: usize = 512;

/// The position of the next message with descriptors.
#[derive(Debug)]
pub(super) enum Carrying {
    /// No message is being carried.
    No,
    /// The message waits for a worker.
    Waiting,
    /// A worker has been sent for it.
    Away,
    /// The message has arrived.
    Arrived(Box<Carried>),
}

#[derive(Debug)]
pub(super) struct Conn {
    pub fd: OwnedFd,
    pub uid: u32,
    pub domain: Option<DomainId>,
    /// The connection never let descriptors in: nothing in it could take long to close.
    pub bare: bool,
    pub queue: VecDeque<Outgoing>,
    pub flight: Flight,
    pub greeted: bool,
    pub control_page: Option<FdToken>,
    /// The events that epoll waits for.
    pub watched: Option<Interest>,
    pub carried: Carrying,
    pub reading: bool,
    pub writing: bool,
    /// The socket takes no more for the moment.
    pub blocked: bool,
    /// The socket will never take more.
    pub broken: bool,
    /// The client's process has ended; the number is how many messages are still read.
    pub dying: Option<(DomainId, u32)>,
}

impl Conn {
    pub fn new(fd: OwnedFd, uid: u32, bare: bool) -> Conn {
        Conn {
            fd,
            uid,
            domain: None,
            bare,
            queue: VecDeque::new(),
            flight: Flight::default(),
            greeted: false,
            control_page: None,
            watched: Some(Interest::Read),
            carried: Carrying::No,
            reading: false,
            writing: false,
            blocked: false,
            broken: false,
            dying: None,
        }
    }

    pub fn may_read(&self) -> bool {
        let heard = self.queue.len() < FULL || self.broken || self.dying.is_some();
        matches!(self.carried, Carrying::No) && heard
    }

    pub fn wanted(&self) -> Option<Interest> {
        match (self.may_read(), self.blocked && !self.broken) {
            (true, true) => Some(Interest::ReadWrite),
            (true, false) => Some(Interest::Read),
            (false, true) => Some(Interest::Write),
            (false, false) => None,
        }
    }
}
