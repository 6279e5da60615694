//! A large buffer of level `none` is sealed before it is sent.

use super::Sender;
use crate::cbuf::{Handle, Home};
use crate::error::{Error, PoolPending, TimedOut};

impl Sender {
    /// As for others; and when its pool is assigned and there is room for the message, nobody can write the buffer any more.
    #[cold]
    pub(super) fn ready_sealed(&mut self, buf: Handle) -> Result<(), Error> {
        self.find_or_assign(buf)?;
        let Home::Own(pool) = buf.home() else {
            return Ok(()); // another's, which was sealed before it came here
        };
        self.make_room(1)?;
        // SAFETY: pools outlive their outstanding slots, and `buf` is one.
        let pool = unsafe { pool.as_ref() };
        let sealed = pool.seal(buf.slot(), self.consent_by());
        sealed.map_err(|error| match error.find::<TimedOut>() {
            Some(&TimedOut { waited_ms, .. }) => {
                let pool = pool.id();
                PoolPending { pool, waited_ms }.into()
            }
            None => error,
        })
    }
}
