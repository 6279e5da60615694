//! Removal of a pool from the channel.

use super::{Out, Sender};
use crate::error::Error;
use crate::link::removal::{not_assigned, removed};
use tranship_proto::{PoolId, Role};

impl Sender {
    /// Removes a pool from this channel. From then on sends of its buffers fail with `PoolNotAssigned`, until
    /// [`assign`](Sender::assign). Sent buffers arrive, and held buffers stay valid.
    ///
    /// The receiver is not told, and `assign` does not ask it again. It keeps the pool mapped as long as it has the
    /// channel or a buffer of the pool. No carried channel has pools. A `local:` channel whose receiver does not
    /// [choose](crate::ChannelOptions::accept_pools) has all pools.
    ///
    /// # Errors
    /// `PoolNotAssigned`: the channel does not have the pool. `PeerGone`; `Forked`.
    pub fn remove_pool(&mut self, pool: PoolId) -> Result<(), Error> {
        self.alive()?;
        self.give_back_assignments();
        let is_removed = match &self.store {
            Some(store) => store.remove(pool, Role::Source),
            None => {
                let found = self.out_of(pool).filter(|out| !out.home.is_null());
                found.map(|out| out.home = std::ptr::null()).is_some()
            }
        };
        match is_removed {
            true => Ok(()),
            false => Err(not_assigned(pool)),
        }
    }

    /// Notes that the receiver has removed the pool.
    pub(super) fn lose(&mut self, pool: PoolId) {
        if let Some(assignment) = self.link.find(pool) {
            assignment.remove();
        }
        if let Some(out) = self.out_of(pool) {
            out.home = std::ptr::null();
        }
    }

    /// Assigns a pool again that this end has removed. Returns whether there was one.
    pub(super) fn take_in(&mut self, pool: PoolId, home: *const ()) -> Result<bool, Error> {
        self.is_not_lost(pool)?;
        let found = self.out_of(pool);
        Ok(found.map(|out| out.home = home).is_some())
    }

    /// Checks that no end has removed a pool that no send finds.
    pub(super) fn is_not_removed(&mut self, pool: PoolId) -> Result<(), Error> {
        self.is_not_lost(pool)?;
        match self.out_of(pool) {
            Some(_) => Err(removed(pool, Role::Source)),
            None => Ok(()),
        }
    }

    fn is_not_lost(&self, pool: PoolId) -> Result<(), Error> {
        match self.link.find(pool).is_some_and(|found| found.is_removed()) {
            true => Err(removed(pool, Role::Sink)),
            false => Ok(()),
        }
    }

    fn out_of(&mut self, pool: PoolId) -> Option<&mut Out> {
        let mut outs = self.outs.iter_mut();
        outs.find(|out| out.assignment.pool == pool)
    }
}
