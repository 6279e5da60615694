//! The forms of a send: what it does about a full ring, this once.

use super::Sender;
use crate::error::SendError;
use crate::link::descriptor;
use crate::link::message::Payload;
use crate::options::{Outcome, WhenFull};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A sender that deals with a full ring in another way, as long as this lives ([`Sender::with_when_full`]).
///
/// ```
/// # use tranship_core as tranship;
/// # use tranship_core::{Domain, PoolOptions, Receiver, Sender};
/// use std::time::Duration;
/// use tranship::WhenFull;
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:video")?;
/// # let mut sender = domain.open::<Sender>("local:video")?;
/// # let mut receiver = listener.accept()?;
///
/// let soon = WhenFull::WaitFor(Duration::from_millis(10));
/// sender.with_when_full(soon).send_inline(b"a frame", 0)?;
/// # assert_eq!(receiver.recv()?.to_vec(), b"a frame");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WithWhenFull<'a> {
    sender: &'a mut Sender,
    before: WhenFull,
    /// What lines said before.
    skippable: u64,
}

impl Sender {
    /// This sender, for which `when_full` holds as long as the result lives. So any send has its forms that do not wait, or not
    /// for long: `sender.with_when_full(WhenFull::Error).send_inline(b"now or never", 0)`.
    pub fn with_when_full(&mut self, when_full: WhenFull) -> WithWhenFull<'_> {
        let before = std::mem::replace(&mut self.when_full, when_full);
        let skippable = self.skippable;
        self.skippable |= descriptor::skippable(when_full);
        WithWhenFull {
            sender: self,
            before,
            skippable,
        }
    }

    /// Sends a buffer or an aggregate without waiting: as [`send`](Sender::send) with [`WhenFull::Error`].
    ///
    /// # Errors
    /// As [`send`](Sender::send): `Full` or `PoolPending` where that would wait.
    pub fn try_send(&mut self, payload: impl Into<Payload>) -> Result<Outcome, SendError<Payload>> {
        self.with_when_full(WhenFull::Error).send(payload)
    }

    /// Sends a buffer or an aggregate, waiting at most that long: as [`send`](Sender::send) with [`WhenFull::WaitFor`].
    ///
    /// # Errors
    /// As [`send`](Sender::send): `Full` or `PoolPending` when the time is over.
    pub fn send_timeout(
        &mut self,
        payload: impl Into<Payload>,
        timeout: Duration,
    ) -> Result<Outcome, SendError<Payload>> {
        let when_full = WhenFull::WaitFor(timeout);
        self.with_when_full(when_full).send(payload)
    }
}

impl Deref for WithWhenFull<'_> {
    type Target = Sender;
    fn deref(&self) -> &Sender {
        self.sender
    }
}

impl DerefMut for WithWhenFull<'_> {
    fn deref_mut(&mut self) -> &mut Sender {
        self.sender
    }
}

impl Drop for WithWhenFull<'_> {
    fn drop(&mut self) {
        self.sender.when_full = self.before;
        self.sender.skippable = self.skippable;
    }
}
