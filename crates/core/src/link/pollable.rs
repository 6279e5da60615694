//! Waiting by descriptor, for epoll loops: a socket pair, made by the manager, to whose far end the sender writes a byte.

use super::Receiver;
use super::shared::{Gone, LinkShared};
use crate::domain::{DomainCore, lock};
use crate::error::{self, Error};
use std::os::fd::OwnedFd;
use tranship_proto::{Event, Refusal, Request};
use tranship_ring::doorbell;

impl Receiver {
    /// Makes this link show up on the domain's pollable descriptor ([`Domain::as_fd`](crate::Domain)) whenever a
    /// message waits. Call [`arm`](Receiver::arm) before each wait.
    pub fn set_pollable(&mut self) -> Result<(), Error> {
        self.link.domain.check_fork()?;
        // We are the only ones who set it; the manager is not spoken to under its lock.
        if lock(&self.link.own_wake).is_some() {
            return Ok(());
        }
        let channel = self.link.channel;
        let ask = |req| Request::WakeFd { req, channel };
        let (event, fds) = match self.link.domain.call(ask, &[], None) {
            // Nobody is left to wake us, and nothing more comes: `arm` finds what is there.
            Err(error) if error.find::<Refusal>().is_some() && self.link.gone() != Gone::No => {
                return Ok(());
            }
            answer => answer?,
        };
        let (Event::WakeEnd { .. }, Ok([near])) = (event, <[OwnedFd; 1]>::try_from(fds)) else {
            return Err(error::protocol("an answer to WakeFd that is none"));
        };
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
            doorbell::clear(near);
        }
        link.ring.arm();
        if self.may_have_news() {
            link.ring.disarm();
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
        link.ring.disarm();
        if let Some(near) = &*lock(&link.own_wake) {
            doorbell::clear(near);
        }
    }
}

impl DomainCore {
    pub(super) fn unpoll(&self, link: &LinkShared) {
        if let Some(near) = lock(&link.own_wake).take() {
            self.poll_no_more(&near);
        }
    }
}
