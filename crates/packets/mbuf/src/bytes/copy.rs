//! Copying bytes out of a chain and into it.

use crate::chain::Chain;
use crate::counts::Routine;
use crate::error::{Error, check_total};
use crate::flags::Flags;
use crate::seg::Seg;
use crate::zones::How;
use std::ops::{ControlFlow, Range};

impl Chain {
    pub(crate) fn check_range(&self, range: &Range<usize>) -> Result<usize, Error> {
        let available = self.len();
        if range.start > range.end || range.end > available {
            return Err(Error::TooShort {
                wanted: range.start.max(range.end),
                available,
            });
        }
        Ok(range.end - range.start)
    }

    /// Finds the mbufs that a range covers: each with the part of it, as offset and length.
    pub(crate) fn pieces(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (Seg, usize, usize)> + use<> {
        let (mut skip, mut left) = (range.start, range.end.saturating_sub(range.start));
        self.segs().filter_map(move |seg| {
            let at = skip.min(seg.len());
            skip -= at;
            let len = (seg.len() - at).min(left);
            left -= len;
            (len > 0).then_some((seg, at, len))
        })
    }

    /// Copies the bytes from `offset` on into `to`, which they must fill (`m_copydata`). Pieces of files are read.
    ///
    /// # Errors
    /// `TooShort` beyond the end; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_copydata")]
    #[doc(alias = "m_unmappedtouio")]
    pub fn copydata(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.routine(Routine::Copydata);
        let range = offset..offset.saturating_add(to.len());
        self.check_range(&range)?;
        let mut to = to;
        for (seg, at, len) in self.pieces(range) {
            let (now, later) = to.split_at_mut(len);
            seg.read(at, now)?;
            to = later;
        }
        Ok(())
    }

    /// Returns all bytes, in a vector.
    ///
    /// # Errors
    /// `File` where a piece of a file cannot be read.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.len()];
        self.copydata(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes bytes into the chain from `offset` on (`m_copyback`). The chain grows if the bytes reach beyond its end;
    /// a gap between its end and `offset` becomes zeros. Storage that is shared, read-only or not mapped is replaced by
    /// copies first.
    ///
    /// Without memory the traditional routine truncates silently; this one then writes nothing.
    ///
    /// # Errors
    /// `TooLong` where the chain would be longer than 4,294,967,295 bytes; `NoBuffers` when there is no memory, or a
    /// limit is reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_copyback")]
    pub fn copyback(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.routine(Routine::Copyback);
        let available = self.len();
        check_total(offset, bytes.len())?;
        let end = offset + bytes.len();
        self.make_writable(offset..end)?;
        self.grow(end.saturating_sub(available))?;
        if offset > available {
            self.overwrite(available, offset - available, None);
        }
        self.overwrite(offset, bytes.len(), Some(bytes));
        Ok(())
    }

    /// Writes over bytes that are there and writable.
    fn overwrite(&mut self, offset: usize, len: usize, bytes: Option<&[u8]>) {
        let mut done = 0;
        for (seg, at, len) in self.pieces(offset..offset + len) {
            debug_assert!(seg.writable());
            // SAFETY: inside a writable mbuf of a chain that is borrowed mutably.
            let to = unsafe { std::slice::from_raw_parts_mut(seg.data().wrapping_add(at), len) };
            match bytes {
                Some(bytes) => to.copy_from_slice(&bytes[done..done + len]),
                None => to.fill(0),
            }
            done += len;
        }
    }

    /// Adds `by` bytes of unknown contents at the end, in the space there or in new mbufs.
    pub(crate) fn grow(&mut self, by: usize) -> Result<(), Error> {
        if by == 0 {
            return Ok(());
        }
        check_total(self.len(), by)?;
        let last = self.first().last();
        let inside = if last.has(Flags::EOR) {
            0
        } else {
            last.trailing().min(by)
        };
        if by > inside {
            let more = self
                .inner()
                .getm(How::NoWait, by - inside, self.kind(), Flags::NONE)?;
            let mut left = by - inside;
            for seg in more.segs() {
                let piece = left.min(seg.size());
                seg.set_len(piece);
                left -= piece;
            }
            last.set_next(Some(more.into_first()));
        }
        last.set_len(last.len() + inside);
        self.first().grow_packet(by);
        Ok(())
    }

    /// Adds bytes at the end: into the writable space of the last mbuf, then into new ones (`m_append`). It adds all
    /// bytes or none; the traditional routine keeps those that fitted.
    ///
    /// # Errors
    /// `TooLong` where the chain would be longer than 4,294,967,295 bytes; `NoBuffers` when there is no memory, or a
    /// limit is reached.
    #[doc(alias = "m_append")]
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.routine(Routine::Append);
        let at = self.len();
        self.grow(bytes.len())?;
        self.overwrite(at, bytes.len(), Some(bytes));
        Ok(())
    }

    /// Adds empty mbufs with room for `len` bytes at the end (`m_getm2` with a chain): all mbufs or none.
    ///
    /// # Errors
    /// `TooLong` where the chain would be longer than 4,294,967,295 bytes; `NoBuffers` when there is no memory, or a
    /// limit is reached.
    #[doc(alias = "m_getm2")]
    pub fn reserve(&mut self, len: usize) -> Result<(), Error> {
        check_total(self.len(), len)?;
        let more = self
            .inner()
            .getm(How::NoWait, len, self.kind(), Flags::NONE)?;
        self.first().last().set_next(Some(more.into_first()));
        Ok(())
    }

    /// Calls `each` with the bytes of a range, piece by piece, until it breaks (`m_apply`). Bytes that cannot be read
    /// in place are copied first, 1 KiB at a time.
    ///
    /// # Errors
    /// `TooShort` beyond the end; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_apply")]
    pub fn apply<B>(
        &self,
        range: Range<usize>,
        mut each: impl FnMut(&[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, Error> {
        self.check_range(&range)?;
        let mut copy = [0; 1024];
        for (seg, at, len) in self.pieces(range) {
            // SAFETY: the chain is borrowed, and `each` cannot write it.
            if let Some(bytes) = unsafe { seg.bytes() } {
                if let ControlFlow::Break(value) = each(&bytes[at..at + len]) {
                    return Ok(ControlFlow::Break(value));
                }
                continue;
            }
            let mut done = 0;
            while done < len {
                let part = (len - done).min(copy.len());
                seg.read(at + done, &mut copy[..part])?;
                if let ControlFlow::Break(value) = each(&copy[..part]) {
                    return Ok(ControlFlow::Break(value));
                }
                done += part;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns one byte.
    ///
    /// # Errors
    /// `TooShort` beyond the end; `File` where a piece of a file cannot be read.
    pub fn byte(&self, offset: usize) -> Result<u8, Error> {
        let mut byte = [0];
        self.copydata(offset, &mut byte)?;
        Ok(byte[0])
    }
}
