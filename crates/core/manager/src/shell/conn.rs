//! One client's connection.

use super::flight::Flight;
use super::out::Outgoing;
use super::worker::Carried;
use crate::state::FdToken;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use tranship_proto::DomainId;
use tranship_sys::epoll::Interest;

/// With so many messages to be sent a client is not read: who does not take answers asks nothing more.
const FULL: usize = 512;

/// Where the next message is that brings something.
#[derive(Debug)]
pub(super) enum Carrying {
    /// There is none.
    No,
    /// It waits for a worker.
    Waiting,
    /// A worker has been sent for it.
    Away,
    /// It is here.
    Arrived(Box<Carried>),
}

#[derive(Debug)]
pub(super) struct Conn {
    pub fd: OwnedFd,
    pub uid: u32,
    pub domain: Option<DomainId>,
    /// It never let descriptors in: nothing lies in it that could take long to close.
    pub bare: bool,
    pub queue: VecDeque<Outgoing>,
    pub flight: Flight,
    pub greeted: bool,
    pub control_page: Option<FdToken>,
    /// What epoll waits for.
    pub watched: Option<Interest>,
    pub carried: Carrying,
    pub reading: bool,
    pub writing: bool,
    /// The socket takes no more for the moment; it never will.
    pub blocked: bool,
    pub broken: bool,
    /// Its process has ended; how many messages are still heard.
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
