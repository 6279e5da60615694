//! A sender that outlives its receiver.

use crate::brief::{End, WhenDown};
use crate::gone::is_gone;
use tranship_core::{
    BufferMut, Domain, Error, ErrorKind, Listener, Outcome, Payload, Pool, PoolOptions, SendError,
};

/// The sending end of a channel between components. When the receiver's component ends, the next one is taken, and the
/// file says what happens meanwhile ([`WhenDown`]).
///
/// Messages that a receiver had not taken when it died are lost.
#[derive(Debug)]
pub struct Sender {
    // Before the pool, whose buffers it may hold.
    to: Option<tranship_core::Sender>,
    listener: Listener<tranship_core::Sender>,
    pool: Pool,
    told: End,
    lost: u64,
}

impl Sender {
    pub(crate) fn new(domain: &Domain, told: &End, pool: PoolOptions) -> Result<Sender, Error> {
        Ok(Sender {
            to: None,
            listener: domain.listen_with(&told.name, told.channel())?,
            pool: domain.create_pool(pool)?,
            told: told.clone(),
            lost: 0,
        })
    }

    /// Allocates a buffer from the end's pool. It waits for memory.
    ///
    /// # Errors
    /// Those of [`Pool::alloc`].
    pub fn alloc(&self, len: usize) -> Result<BufferMut, Error> {
        self.pool.alloc(len)
    }

    /// Sends a buffer or an aggregate, if wanted with a word. A payload of another channel's pool is refused.
    ///
    /// Waits while the ring is full, and with [`WhenDown::Wait`] until a receiver is there.
    ///
    /// # Errors
    /// Those of [`tranship_core::Sender::send`], with the payload; for a receiver that is gone only with
    /// [`WhenDown::Fail`].
    pub fn send<P: Payload<Unsent = P>>(&mut self, payload: P) -> Result<Outcome, SendError<P>> {
        let mut payload = payload;
        loop {
            let to = match self.receiver() {
                Ok(Some(to)) => to,
                Ok(None) => {
                    self.lost += 1;
                    return Ok(Outcome::Dropped);
                }
                Err(error) => {
                    return Err(SendError {
                        error,
                        unsent: payload,
                    });
                }
            };
            match to.send(payload) {
                Err(failed) if is_gone(&failed.error) => {
                    self.to = None;
                    if self.told.when_down == WhenDown::Fail {
                        return Err(failed);
                    }
                    payload = failed.unsent;
                }
                done => return done,
            }
        }
    }

    /// Sends several payloads with one fence and at most one wake-up: returns how many were sent. Waits as
    /// [`send`](Sender::send) does.
    ///
    /// # Errors
    /// Those of [`send`](Sender::send), with the payloads that were not sent, in order. Those before them were sent.
    pub fn send_many<P: Payload<Unsent = P>>(
        &mut self,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<usize, SendError<Vec<P>>> {
        let mut unsent: Vec<P> = payloads.into_iter().collect();
        let mut sent = 0;
        loop {
            let to = match self.receiver() {
                Ok(Some(to)) => to,
                Ok(None) => {
                    self.lost += unsent.len() as u64;
                    return Ok(sent);
                }
                Err(error) => return Err(SendError { error, unsent }),
            };
            let all = unsent.len();
            match to.send_many(unsent) {
                Ok(more) => return Ok(sent + more),
                Err(failed) if is_gone(&failed.error) => {
                    self.to = None;
                    if self.told.when_down == WhenDown::Fail {
                        return Err(failed);
                    }
                    unsent = failed.unsent;
                    sent += all - unsent.len();
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Copies bytes into a buffer of the end's pool and sends it with a word. Waits as [`send`](Sender::send) does.
    ///
    /// # Errors
    /// Those of [`Pool::alloc`] and [`send`](Sender::send).
    pub fn copy(&mut self, bytes: &[u8], word: u64) -> Result<Outcome, Error> {
        let buffer = self.pool.copy(bytes)?.freeze();
        self.send((buffer, word)).map_err(|failed| failed.error)
    }

    /// Returns the number of messages that were dropped because no receiver was there.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Waits until the receiver has taken everything, and ends the channel in order.
    ///
    /// With [`WhenDown::Wait`] it waits for a receiver, too, if there has been none.
    ///
    /// # Errors
    /// `PeerGone`, `PeerDied` if the receiver went before it had taken everything.
    pub fn finish(mut self) -> Result<(), Error> {
        match self.receiver()? {
            Some(to) => to.wait_taken(None),
            None => Ok(()),
        }
    }

    /// Returns the receiver; `None`: the message is to be dropped.
    fn receiver(&mut self) -> Result<Option<&mut tranship_core::Sender>, Error> {
        while self.to.is_none() {
            let next = match self.told.when_down {
                WhenDown::Wait => Some(self.listener.accept()?),
                WhenDown::Drop | WhenDown::Fail => self.listener.try_accept()?,
            };
            let Some(mut next) = next else {
                return match self.told.when_down {
                    WhenDown::Fail => Err(Error::new(
                        ErrorKind::NotConnected,
                        format!("no receiver is at channel `{}` now", self.told.name),
                    )),
                    _ => Ok(None),
                };
            };
            match next.assign(&self.pool) {
                Ok(()) => self.to = Some(next),
                // The receiver died just after it came.
                Err(error) if is_gone(&error) || next.status().peer_gone => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.to.as_mut())
    }
}
