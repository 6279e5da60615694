//! Waiting by descriptor, for epoll loops and tasks: a socket pair that the manager makes; the peer writes a byte to
//! its far end.

use super::Receiver;
use super::shared::Gone;
use crate::base::lock;
use crate::error::{self, Error};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_proto::{Event, Refusal, Request};

impl Receiver {
    /// Says that this end goes to sleep on the domain's pollable descriptor ([`Domain::as_fd`](crate::Domain)): true if
    /// it may, false if a message is there already. From the first call on, each message shows up on that descriptor.
    /// Call it before each wait.
    ///
    /// The first call asks the manager for the descriptor, and waits for the answer as long as the
    /// [`manager_timeout`](crate::DomainBuilder::manager_timeout) says.
    ///
    /// # Errors
    /// `TimedOut` if the manager does not answer; `ManagerAway`, `CutOff`; `Limit`, `System` where there are no more descriptors; `Forked`.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.make_pollable()?;
        let link = &self.link;
        link.ring_for_ourselves();
        link.ring.arm();
        if self.may_have_news() {
            link.ring.disarm();
            return Ok(false);
        }
        Ok(true)
    }

    /// Says that a topic's subscriber goes to sleep on the domain's descriptor. Its caller looks at the topic's ring after
    /// it.
    ///
    /// # Errors
    /// As [`arm`](Receiver::arm).
    #[doc(hidden)]
    pub fn topic_arm(&mut self) -> Result<(), Error> {
        self.make_pollable()?;
        self.link.ring_for_ourselves();
        self.link.ring.arm();
        Ok(())
    }

    fn make_pollable(&mut self) -> Result<(), Error> {
        let (link, domain) = (&self.link, &self.link.domain);
        domain.check_fork()?;
        if lock(&link.doorbell).polled {
            return Ok(());
        }
        // Only this end sets it; the manager is not spoken to under its lock.
        if link.inside.is_some() {
            link.has_doorbell();
        } else if lock(&link.doorbell).near.is_none() {
            let channel = link.channel;
            let asked = lock(&link.doorbell).asked.take();
            asked.into_iter().for_each(|asked| domain.forget(asked));
            let ask = |req| Request::WakeFd { req, channel };
            let (event, fds) = match domain.call(ask, &[]) {
                // No peer is left to wake this end, and nothing more comes: `arm` finds the remaining messages.
                Err(error) if error.find::<Refusal>().is_some() && link.gone() != Gone::No => {
                    return Ok(());
                }
                answer => answer?,
            };
            let (Event::WakeEnd { .. }, Ok([near])) = (event, <[OwnedFd; 1]>::try_from(fds)) else {
                return Err(error::protocol("an answer to WakeFd that is none"));
            };
            lock(&link.doorbell).near = Some(Arc::new(near));
        }
        let mut doorbell = lock(&link.doorbell);
        if let Some(near) = &doorbell.near {
            domain.poll_also(near)?;
            doorbell.polled = true;
        }
        Ok(())
    }

    /// Says that this end is awake again, and takes the wake-up bytes.
    pub fn disarm(&mut self) {
        let link = &self.link;
        if link.domain.fork.is_child() {
            return;
        }
        link.ring.disarm();
        link.ring_for_ourselves();
    }
}
