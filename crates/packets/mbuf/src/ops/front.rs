//! The front of a chain: room for a header, the first bytes in one piece.

use super::{consume, gather, move_header};
use crate::chain::Chain;
use crate::counts::Routine;
use crate::error::{Error, check_total};
use crate::flags::Flags;
use crate::seg::Seg;
use crate::size::{MHLEN, MLEN};
use crate::zones::How;

/// Bytes of the usual protocols' headers together: `pullup` takes that many along if it has to copy anyway
/// (`max_protohdr`).
const PROTOCOL_HEADERS: usize = 60;

impl Chain {
    /// Makes room for `len` bytes in front, zeroed, to be filled in: in place if there is writable space, otherwise in
    /// a new mbuf (`M_PREPEND`).
    ///
    /// At most [`MHLEN`] bytes ([`MLEN`] if the chain has no header). On failure the chain is as before; the
    /// traditional routine frees it.
    ///
    /// # Errors
    /// `TooLong` for more than that, or if the chain would be longer than 4,294,967,295 bytes; `NoBuffers` when there
    /// is no memory, or a limit is reached.
    #[doc(alias = "m_prepend")]
    #[doc(alias = "M_PREPEND")]
    pub fn prepend(&mut self, len: usize) -> Result<&mut [u8], Error> {
        self.routine(Routine::Prepend);
        let first = self.first();
        if self.is_packet() {
            check_total(self.len(), len)?;
        }
        let room = if first.leading() >= len && len > 0 {
            first.set_data(first.data().wrapping_sub(len));
            first.set_len(first.len() + len);
            first
        } else if len == 0 {
            return Ok(&mut []);
        } else {
            self.routine(Routine::PrependCopied);
            let head = self.fresh_head(len)?;
            head.align(len);
            head.set_len(len);
            head.set_next(Some(first));
            if first.has(Flags::PKTHDR) {
                move_header(first, head);
            }
            self.set_first(head);
            head
        };
        room.grow_packet(len);
        // SAFETY: the first `len` bytes of a writable mbuf, borrowed with the chain.
        let room = unsafe { std::slice::from_raw_parts_mut(room.data(), len) };
        room.fill(0);
        Ok(room)
    }

    /// Puts bytes in front, into room made by `prepend`.
    ///
    /// # Errors
    /// Those of [`prepend`](Self::prepend).
    pub fn push_front(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.prepend(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Allocates an empty mbuf that could become the first, with room for `len` bytes.
    fn fresh_head(&self, len: usize) -> Result<Seg, Error> {
        let flags = self.first().flags();
        let limit = if flags.contains(Flags::PKTHDR) {
            MHLEN
        } else {
            MLEN
        };
        if len > limit {
            return Err(Error::TooLong { wanted: len, limit });
        }
        let flags = (flags.kind(), flags & Flags::PKTHDR);
        Ok(self.inner().get(How::NoWait, flags.0, flags.1)?)
    }

    fn check_front(&self, len: usize, limit: usize) -> Result<(), Error> {
        if len > limit {
            return Err(Error::TooLong { wanted: len, limit });
        }
        let available = self.len();
        if len > available {
            return Err(Error::TooShort {
                wanted: len,
                available,
            });
        }
        Ok(())
    }

    /// Brings the first `len` bytes into one piece in the first mbuf, and returns them; at most [`MHLEN`] (`m_pullup`).
    ///
    /// If they are not in one piece already, or cannot be read in place, they are copied, and up to 60 further bytes
    /// with them. Afterwards, bytes that their writer could have changed belong to this process. They may still be
    /// shared with other chains: use [`pulldown`](Self::pulldown) to write them. On failure the chain is as before; the
    /// traditional routine frees it.
    ///
    /// # Errors
    /// `TooLong` for more than [`MHLEN`]; `TooShort` beyond the end; `NoBuffers` when there is no memory, or a limit is
    /// reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_pullup")]
    pub fn pullup(&mut self, len: usize) -> Result<&[u8], Error> {
        self.routine(Routine::Pullup);
        let first = self.first();
        if first.len() < len || !first.readable() {
            self.check_front(len, MHLEN)?;
            if len > 0 {
                self.pullup_copying(len)?;
            } else if !first.readable() {
                return Ok(&[]);
            }
        }
        // SAFETY: the first mbuf has at least `len` readable bytes now; borrowed with the chain.
        Ok(unsafe { std::slice::from_raw_parts(self.first().data(), len) })
    }

    fn pullup_copying(&mut self, len: usize) -> Result<(), Error> {
        self.routine(Routine::PullupCopied);
        let first = self.first();
        let wanted = len.max(PROTOCOL_HEADERS).min(self.len());
        let inside = !first.has(Flags::EXT) && first.len() + first.trailing() >= len;
        let (target, have, source) = if inside {
            (first, first.len(), first.next())
        } else {
            (self.fresh_head(len)?, 0, Some(first))
        };
        let count = wanted.min(target.size()).min(have + target.trailing()) - have;
        let copied = match source {
            Some(source) => gather(source, 0, target, have, count),
            None => Ok(()),
        };
        if let Err(error) = copied {
            if !inside {
                drop(Chain::new(target));
            }
            return Err(error);
        }
        if !inside {
            if first.has(Flags::PKTHDR) {
                move_header(first, target);
            }
            self.set_first(target);
        }
        target.set_len(have + count);
        // SAFETY: the consumed mbufs are behind the target, and no header is left there.
        target.set_next(unsafe { consume(source, count) });
        Ok(())
    }

    /// Brings the first `len` bytes into one piece in a new mbuf, `space` bytes from its start (`m_copyup`). A header
    /// then fits in front of them, and they have the desired alignment. `len` and `space` together are at most
    /// [`MHLEN`].
    ///
    /// On failure the chain is as before; the traditional routine frees it.
    ///
    /// # Errors
    /// `TooLong` for more than that; `TooShort` beyond the end; `NoBuffers` when there is no memory, or a limit is
    /// reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_copyup")]
    pub fn copyup(&mut self, len: usize, space: usize) -> Result<&mut [u8], Error> {
        self.routine(Routine::Copyup);
        self.check_front(len, MHLEN.saturating_sub(space))?;
        let first = self.first();
        let target = self.fresh_head(len + space)?;
        target.set_data(target.start().wrapping_add(space));
        if let Err(error) = gather(first, 0, target, 0, len) {
            drop(Chain::new(target));
            return Err(error);
        }
        if first.has(Flags::PKTHDR) {
            move_header(first, target);
        }
        target.set_len(len);
        // SAFETY: the old first mbuf is behind the target now and has no header.
        target.set_next(unsafe { consume(Some(first), len) });
        self.set_first(target);
        // SAFETY: fresh, so writable; borrowed with the chain.
        Ok(unsafe { std::slice::from_raw_parts_mut(target.data(), len) })
    }
}
