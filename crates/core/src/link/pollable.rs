//! Waiting by descriptor, for epoll loops: a socket pair whose far end the sender writes a byte to.

use super::Receiver;
use super::shared::LinkShared;
use crate::domain::{DomainCore, lock};
use crate::error::DomainError;
use std::os::fd::{AsFd, OwnedFd};
use tranship_proto::Request;
use tranship_sync::{Asleep, Point};
use tranship_sys::socket;

impl Receiver {
    /// Makes this link show up on the domain's pollable descriptor ([`Domain::as_fd`](crate::Domain)) whenever a
    /// message waits. Call [`arm`](Receiver::arm) before each wait.
    pub fn set_pollable(&mut self) -> Result<(), DomainError> {
        self.link.domain.check_fork()?;
        // We are the only ones who set it; the manager is not spoken to under its lock.
        if lock(&self.link.own_wake).is_some() {
            return Ok(());
        }
        let (near, far) = socket::pair().map_err(DomainError::system("socketpair"))?;
        self.link.domain.tell(
            &Request::WakeFd {
                channel: self.link.channel,
            },
            &[far.as_fd()],
        )?;
        self.link.domain.poll_also(&near)?;
        *lock(&self.link.own_wake) = Some(near);
        Ok(())
    }

    /// Says that this end goes to sleep on its descriptor. True if it may; false if a message is there already.
    pub fn arm(&mut self) -> bool {
        let link = &self.link;
        if link.domain.fork.is_child() {
            return false; // there is an error to be told
        }
        if let Some(near) = &*lock(&link.own_wake) {
            drain(near);
        }
        let mut points = [Point::peer(link.their_wake(), link.own.asleep())];
        tranship_sync::arm(&mut points, Asleep::Descriptor);
        if self.may_have_news() {
            tranship_sync::disarm(&points);
            return false;
        }
        true
    }

    /// Says that this end is awake again, and takes the wake-up bytes.
    pub fn disarm(&mut self) {
        let link = &self.link;
        if link.domain.fork.is_child() {
            return;
        }
        tranship_sync::disarm(&[Point::peer(link.their_wake(), link.own.asleep())]);
        if let Some(near) = &*lock(&link.own_wake) {
            drain(near);
        }
    }
}

/// Takes what is queued; at most a socket's worth.
fn drain(fd: &OwnedFd) {
    let mut byte = [0u8; 8];
    while socket::recvmsg(fd.as_fd(), &mut byte, true).is_ok_and(|r| r.bytes > 0) {}
}

impl DomainCore {
    pub(super) fn unpoll(&self, link: &LinkShared) {
        if let Some(near) = lock(&link.own_wake).take() {
            self.poll_no_more(&near);
        }
    }
}
