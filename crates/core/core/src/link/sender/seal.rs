//! The seal of a large buffer of level `none`, before its send. It is the last step that may fail, because it cannot be
//! undone.

use super::Sender;
use crate::buffer::{Handle, Home, Tag};
use crate::error::{Error, ErrorKind, TimedOut};

impl Sender {
    /// Seals the buffer, if it is such a one, so that no process can write it. Its pool is assigned.
    #[inline(always)]
    pub(super) fn seal(&self, buf: Handle) -> Result<(), Error> {
        match buf.tag.has(Tag::SEALED) {
            true => self.seal_large(buf),
            false => Ok(()),
        }
    }

    pub(super) fn seal_all(&self, mut bufs: impl Iterator<Item = Handle>) -> Result<(), Error> {
        bufs.try_for_each(|buf| self.seal(buf))
    }

    #[cold]
    fn seal_large(&self, buf: Handle) -> Result<(), Error> {
        let Home::Own(pool) = buf.home() else {
            return Ok(()); // another's, which was sealed before it came here
        };
        // SAFETY: pools outlive their outstanding slots, and `buf` is one.
        let pool = unsafe { pool.as_ref() };
        let sealed = pool.seal(buf.slot(), self.consent_by());
        // The manager alone is asked to seal: no receiver is at fault.
        sealed.map_err(|error| match error.find::<TimedOut>() {
            Some(late) => {
                let late = late.clone();
                Error::because(
                    ErrorKind::PoolPending,
                    "the buffer's memory is not shown to its readers yet",
                    late,
                )
            }
            None => error,
        })
    }
}
