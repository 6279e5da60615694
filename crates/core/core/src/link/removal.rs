//! Errors of pools that an end has removed from the channel.

use crate::error::{Error, ErrorKind};
use tranship_proto::{PoolId, Role};

/// Returns the error of a removal where the channel does not have the pool.
pub(super) fn not_assigned(pool: PoolId) -> Error {
    let text = format!("pool {pool} is not assigned to this channel: there is nothing to remove");
    Error::new(ErrorKind::PoolNotAssigned, text)
}

/// Returns the error of a send, or of an assignment, after a removal.
pub(super) fn removed(pool: PoolId, by: Role) -> Error {
    let text = match by {
        Role::Source => {
            format!("this end has removed pool {pool} from the channel: assign it again")
        }
        Role::Sink => format!(
            "the receiver has removed pool {pool} from the channel: send from another pool, or over another channel"
        ),
    };
    Error::new(ErrorKind::PoolNotAssigned, text)
}
