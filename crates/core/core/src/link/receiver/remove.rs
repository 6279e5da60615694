//! Removal of a pool from the channel by its receiver.

use super::Receiver;
use crate::error::Error;
use crate::link::descriptor;
use crate::link::removal::not_assigned;
use tranship_proto::{PoolId, Role};
use tranship_ring::Publish;

impl Receiver {
    /// Removes a pool from this channel for good. Buffers that are on their way arrive. Buffers that this end holds stay
    /// valid, and can still be sent back.
    ///
    /// The sender hears of it when it looks for replies ([`recv_back`](crate::Sender::recv_back)), which gives it no message.
    /// From then on its sends of the pool's buffers fail with `PoolNotAssigned`, and so does
    /// [`assign`](crate::Sender::assign). Over `local:` this is so at once. The pool stays mapped here as long as this domain
    /// has the channel or a buffer of the pool. No carried channel has pools.
    ///
    /// # Errors
    /// `PoolNotAssigned`: the channel does not have the pool. `PoolPending`: the pool was assigned a moment ago. `Full`:
    /// the sender does not take earlier replies. `PeerGone`; `Forked`.
    pub fn remove_pool(&mut self, pool: PoolId) -> Result<(), Error> {
        self.sender_is_there()?;
        if let Some(store) = &self.store {
            return match store.remove(pool, Role::Sink) {
                true => Ok(()),
                false => Err(not_assigned(pool)),
            };
        }
        let assigned = self.assigned(pool)?.map(|at| &self.ins[at].assignment);
        let assigned = assigned.filter(|assignment| !assignment.is_removed());
        let Some(assignment) = assigned.cloned() else {
            return Err(not_assigned(pool));
        };
        self.control_room()?;
        assignment.remove();
        let line = descriptor::removed_line(pool);
        let _ = self.control.push(self.control_lines, Publish::SeqCst, line);
        self.link.notify();
        Ok(())
    }
}
