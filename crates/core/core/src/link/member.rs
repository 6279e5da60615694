//! A link as the domain's register knows it, and pools that are offered over it.

use super::shared::LinkShared;
use crate::base::lock;
use crate::domain::{DomainCore, Gone, LinkMember, Offer, Taken, Watch};
use crate::error::{self, Error};
use crate::pool::{ForeignPool, OwnPool};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tranship_proto::{
    ChannelClaim, ChannelId, Levels, PoolId, Refusal, RefusalCode, Request, Role,
};
use tranship_region::layout::CountsRw;

impl LinkMember for LinkShared {
    fn channel(&self) -> ChannelId {
        self.channel
    }
    fn watch(&self) -> &Watch {
        &self.watch
    }
    fn is_inside(&self) -> bool {
        self.inside.is_some()
    }
    fn claim(&self) -> (ChannelClaim, BorrowedFd<'_>) {
        let claim = ChannelClaim {
            channel: self.channel,
            name: self.name.clone(),
            role: self.role,
            peer: self.peer,
            lines: self.ring.own().count(),
            peer_inode: self.their_inode,
        };
        (claim, self.own_fd.as_fd())
    }
    fn claim_pools(
        &self,
        claim: &mut dyn FnMut(PoolId, BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let assigned: Vec<_> = lock(&self.assigned).clone();
        let mut claimed = assigned.iter().filter(|a| a.is_claimed(self.role));
        claimed.try_for_each(|a| claim(a.pool, a.counts_fd.as_fd()))
    }
    fn with_registration(&self, say: &mut dyn FnMut(&Request, &[BorrowedFd<'_>])) {
        self.with_registration(say);
    }

    fn gone(&self) -> Gone {
        self.gone()
    }
    fn peer_gone(&self, why: Gone) {
        self.report_gone(why);
    }
    fn look_for_death(&self) {
        self.look_for_death();
    }
    fn nudge(&self) {
        self.ring.nudge();
    }
    fn set_peer_fd(&self, fd: OwnedFd) {
        self.set_peer_fd(fd);
    }

    fn levels(&self) -> Levels {
        self.levels
    }
    fn offered(&self, offer: Offer, known: bool, fds: Vec<OwnedFd>) -> Result<Taken, Error> {
        self.check_offer(offer)?;
        if let Some(own) = OwnPool::find(&self.domain, offer.pool) {
            return Ok((self.accept_own(&own)?, None));
        }
        let existing = ForeignPool::find(&self.domain, offer.pool);
        if let Some(foreign) = &existing {
            foreign.set_spoken_of(true);
        }
        let (foreign, fresh) = match existing {
            Some(foreign) => (foreign, false),
            None => {
                let [table, process] = <[OwnedFd; 2]>::try_from(fds).map_err(|fds| {
                    error::protocol(format!("an offer with {} descriptors, not 2", fds.len()))
                })?;
                let opened = ForeignPool::open(&self.domain, offer, table, process)?;
                (Arc::new(opened), true)
            }
        };
        let rcvd = self.accept_foreign(&foreign)?;
        // The manager may think that this domain still reads a pool that it has dropped: then there are new counters.
        let refs = if known && !fresh {
            None
        } else {
            let fd = foreign.refs_fd().try_clone();
            Some(fd.map_err(error::system("fcntl"))?)
        };
        if fresh {
            self.domain.register.add_foreign(offer.pool, foreign);
        }
        Ok((rcvd, refs))
    }
    fn open_pool(&self, pool: PoolId) {
        self.open_pool(pool);
    }
    fn end_pool(&self, pool: PoolId) {
        self.end_pool(pool);
    }
    fn counts_of(&self, pool: PoolId) -> Option<Arc<CountsRw>> {
        self.find(pool).map(|a| a.counts.clone())
    }
    fn queue_leaves(&self) {
        if self.role == Role::Source {
            self.save_replies();
        }
    }
    fn reclaim(&self) {
        if let Some(driver) = self.driver().filter(|_| self.role == Role::Source) {
            driver.look();
        }
    }
}

impl LinkShared {
    /// Returns the link of a channel, if it is this domain's.
    pub(super) fn of(domain: &DomainCore, channel: ChannelId) -> Option<Arc<LinkShared>> {
        domain.register.link_as(channel)
    }

    /// Checks that a pool is wanted here.
    fn check_offer(&self, offer: Offer) -> Result<(), Error> {
        if !self.levels.has(offer.trust) {
            return Err(error::refused(Refusal {
                code: RefusalCode::Trust,
                asked: offer.trust as u64,
                available: self.levels.bits(),
            }));
        }
        // A pool that is offered again because the manager's answer was lost needs no second consent.
        if self.find(offer.pool).is_none() && !self.wants(&offer) {
            return Err(error::refused(Refusal {
                code: RefusalCode::Access,
                asked: offer.max_bytes,
                available: 0,
            }));
        }
        Ok(())
    }
}
