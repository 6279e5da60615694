//! Bytes anywhere in a chain, in one piece and writable.

use super::{consume, gather, replace};
use crate::chain::{Chain, find};
use crate::counts::{Routine, add};
use crate::error::Error;
use crate::ext;
use crate::flags::Flags;
use crate::seg::Seg;
use crate::size::MCLBYTES;
use crate::zones::How;
use std::ops::Range;

impl Chain {
    /// Brings the bytes of `range` into one piece, and returns them for writing; at most 2 KiB (`m_pulldown`, with its
    /// offset).
    ///
    /// Bytes before them are not touched. This is copy-on-write: the bytes are copied if they are in several mbufs, or
    /// if their storage is shared, read-only or not mapped. On failure the chain is as before; the traditional routine
    /// frees it.
    ///
    /// # Errors
    /// `TooLong` for more than 2 KiB; `TooShort` beyond the end; `NoBuffers` when there is no memory, or a limit is
    /// reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_pulldown")]
    pub fn pulldown(&mut self, range: Range<usize>) -> Result<&mut [u8], Error> {
        self.routine(Routine::Pulldown);
        let len = range.end.saturating_sub(range.start);
        if len > MCLBYTES {
            return Err(Error::TooLong {
                wanted: len,
                limit: MCLBYTES,
            });
        }
        let available = self.len();
        let Some((seg, at)) = find(self.first(), range.start).filter(|_| range.end <= available)
        else {
            return Err(Error::TooShort {
                wanted: range.start.max(range.end),
                available,
            });
        };
        if len == 0 {
            return Ok(&mut []);
        }
        let piece = if seg.len() - at >= len && seg.writable() {
            (seg, at)
        } else {
            self.routine(Routine::PulldownCopied);
            self.pull_apart(seg, at, len)?
        };
        // SAFETY: inside a writable mbuf, borrowed with the chain.
        Ok(unsafe { std::slice::from_raw_parts_mut(piece.0.data().wrapping_add(piece.1), len) })
    }

    /// Brings `len` bytes from `at` of `seg` on into one writable mbuf.
    fn pull_apart(&mut self, seg: Seg, at: usize, len: usize) -> Result<(Seg, usize), Error> {
        let here = (seg.len() - at).min(len);
        let behind = len - here;
        if behind > 0 && seg.writable() && seg.trailing() >= behind {
            // The rest is put behind the bytes that are there.
            if let Some(next) = seg.next() {
                gather(next, 0, seg, seg.len(), behind)?;
            }
            seg.set_len(seg.len() + behind);
            // SAFETY: the consumed mbufs are behind `seg`, in the chain.
            seg.set_next(unsafe { consume(seg.next(), behind) });
            return Ok((seg, at));
        }
        let kind = seg.flags().kind();
        // Bytes that follow in the same mbuf need an mbuf of their own.
        let rest = seg.len() - at - here;
        let tail = (rest > 0)
            .then(|| self.alias(seg, at + here, rest))
            .transpose()?;
        let new = Chain::new(self.inner().fit(How::NoWait, len, kind, Flags::NONE)?);
        gather(seg, at, new.first(), 0, len)?;
        new.first().set_len(len);
        add(Routine::UnsharedBytes, len as u64);
        // From here on nothing fails.
        let new = new.into_first();
        // SAFETY: the consumed mbufs are behind `seg`, in the chain.
        let behind = unsafe { consume(seg.next(), behind) };
        if let Some(tail) = tail {
            let tail = tail.into_first();
            tail.set_flags(tail.flags() | seg.flags() & Flags::EOR);
            tail.set_next(behind);
            new.set_next(Some(tail));
        } else {
            new.set_next(behind);
            new.set_flags(new.flags() | seg.flags() & Flags::EOR);
        }
        seg.set_flags(seg.flags() - Flags::EOR);
        seg.set_len(at);
        seg.set_next(Some(new));
        Ok((new, 0))
    }

    /// Makes an mbuf with a part of another's bytes: the same storage, or a copy of bytes inside the mbuf itself.
    pub(crate) fn alias(&self, seg: Seg, at: usize, len: usize) -> Result<Chain, Error> {
        let kind = seg.flags().kind();
        let copy = if seg.has(Flags::EXT) {
            let copy = Chain::new(self.inner().mini(How::NoWait, kind, Flags::NONE)?);
            // SAFETY: fresh, so without storage.
            unsafe { ext::share(seg, copy.first()) };
            copy.first().set_data(seg.data().wrapping_add(at));
            copy
        } else {
            let copy = Chain::new(self.inner().get(How::NoWait, kind, Flags::NONE)?);
            seg.read_into(at, copy.first(), 0, len)?;
            copy
        };
        copy.first().set_len(len);
        Ok(copy)
    }

    /// Makes all bytes of `range` writable in place, wherever they are, by copying shared, read-only and unmapped ones
    /// (`m_unshare` of a part). Bytes beyond the end are ignored.
    ///
    /// A failure may leave some of them copied, but the bytes are unchanged.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece of a file cannot be read.
    pub fn make_writable(&mut self, range: Range<usize>) -> Result<(), Error> {
        let (mut previous, mut at, mut offset) = (None, Some(self.first()), 0);
        while let Some(seg) = at {
            let end = offset + seg.len();
            let touched = offset < range.end && range.start < end && seg.len() > 0;
            let seg = if touched && !seg.writable() {
                let new = self.private_copy(seg)?;
                replace(self, previous, seg, new)
            } else {
                seg
            };
            (previous, at, offset) = (Some(seg), seg.next(), end);
        }
        Ok(())
    }

    /// Makes private mbufs with the bytes of one mbuf, and with a header to be filled in if that mbuf has one.
    pub(crate) fn private_copy(&self, seg: Seg) -> Result<Chain, Error> {
        let flags = seg.flags();
        let new = self
            .inner()
            .getm(How::NoWait, seg.len(), flags.kind(), flags & Flags::PKTHDR)?;
        let mut done = 0;
        for to in new.segs() {
            let piece = (seg.len() - done).min(to.size());
            seg.read_into(done, to, 0, piece)?;
            to.set_len(piece);
            done += piece;
        }
        add(Routine::UnsharedBytes, done as u64);
        Ok(new)
    }
}
