//! The forms of a send: the time that it waits.

use super::Sender;
use crate::error::SendError;
use crate::link::payload::Payload;
use crate::options::{Outcome, Patience};
use std::time::Duration;
use tranship_ring::Publish;

impl Sender {
    /// Sends a payload, and does what the channel's [`WhenFull`](crate::WhenFull) says while the receiver is behind. The default waits for ever.
    ///
    /// The payload's type decides what happens to it: see [`Payload`]. A failed send gives the payload back.
    ///
    /// A first send out of a pool waits for the receiver's consent to that pool, whatever `WhenFull` says. A first send of a sealed buffer
    /// ([`PoolOptions::seal_from`](crate::PoolOptions::seal_from)) waits for the manager's confirmation.
    ///
    /// Cost of a buffer: one line written, one locked instruction to publish it, and none if the receiver busy-polls
    /// ([`Wait::Spin`](crate::Wait::Spin)). Every eighth send also looks at the eight oldest buffers that were sent, for those that no domain
    /// holds any more. At leisure each send of 64 KiB and more looks at the oldest, so that the next buffer is still in the processor's caches.
    ///
    /// The list of an aggregate's pieces goes into a buffer of the first own pool among the pieces' pools
    /// ([`Aggregate::set_list_pool`](crate::Aggregate::set_list_pool)).
    ///
    /// A receiver that drops a buffer that was given to it, or that dies, leaves the memory to the pool, which allocates it under another id.
    ///
    /// # Errors
    /// `PeerGone`, `PeerViolation`: the channel is over. `ChannelTrust`: the receiver does not accept pools of that level. `Refused`: the receiver does
    /// not take that pool, or the pool is another domain's and may not be passed on ([`Pool::allow_forward`](crate::Pool::allow_forward)).
    /// `BufferNotOwned`: the buffer is another domain's. `TooLarge`: the bytes can never have room. `OutOfMemory`: the list of an aggregate has no room.
    /// `ManagerAway`, `CutOff`: a pool has still to be assigned. `Forked`; `System`.
    #[inline(always)]
    pub fn send<P: Payload>(&mut self, payload: P) -> Result<Outcome, SendError<P::Unsent>> {
        payload
            .go(self, 0, Publish::SeqCst)
            .map_err(|failed| failed.map(P::unsent))
    }

    /// Sends a payload without waiting.
    ///
    /// # Errors
    /// As [`send`](Sender::send). `Full`: the channel is full. `PoolPending`: the receiver has still to agree to the pool.
    #[inline]
    pub fn try_send<P: Payload>(&mut self, payload: P) -> Result<Outcome, SendError<P::Unsent>> {
        self.send_timeout(payload, Duration::ZERO)
    }

    /// Sends a payload, or fails after `timeout`.
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send), when the time is over.
    pub fn send_timeout<P: Payload>(
        &mut self,
        payload: P,
        timeout: Duration,
    ) -> Result<Outcome, SendError<P::Unsent>> {
        self.within(timeout, |sender| sender.send(payload))
    }

    /// Sends, and waits at most that long.
    #[inline(always)]
    pub(crate) fn within<R>(
        &mut self,
        timeout: Duration,
        send: impl FnOnce(&mut Sender) -> R,
    ) -> R {
        let before = std::mem::replace(&mut self.patience, Patience::AtMost(timeout));
        let sent = send(self);
        self.patience = before;
        sent
    }
}
