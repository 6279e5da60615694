//! Operations that move the bytes into other mbufs.

use super::{move_header, replace};
use crate::chain::Chain;
use crate::counts::Routine;
use crate::error::Error;
use crate::ext;
use crate::flags::Flags;
use crate::seg::Seg;
use crate::size::MCLBYTES;
use crate::zones::How;

impl Chain {
    /// Copies all bytes into as few mbufs as possible (`m_defrag`).
    ///
    /// On failure the chain is as before, as with the traditional routine.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_defrag")]
    pub fn defrag(&mut self) -> Result<(), Error> {
        self.routine(Routine::Defrag);
        let copy = self.deep_copy()?;
        self.become_copy(copy);
        Ok(())
    }

    /// Makes the chain one of at most `limit` mbufs (`m_collapse`): first moves bytes into free space of the mbuf
    /// before, then joins neighbours in clusters of 2 KiB.
    ///
    /// On failure the bytes are unchanged, perhaps in fewer mbufs, as with the traditional routine.
    ///
    /// # Errors
    /// `TooMany` if more are needed; `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece
    /// of a file cannot be read.
    #[doc(alias = "m_collapse")]
    pub fn collapse(&mut self, limit: usize) -> Result<(), Error> {
        self.routine(Routine::Collapse);
        let mut count = self.count();
        if count > limit {
            self.fill_gaps()?;
            count = self.count();
        }
        while count > limit {
            let joined = self.join_neighbours()?;
            if joined == 0 {
                return Err(Error::TooMany {
                    needed: count,
                    limit,
                });
            }
            count -= joined;
        }
        Ok(())
    }

    /// Moves the bytes of whole mbufs into the free space of the mbuf before.
    fn fill_gaps(&mut self) -> Result<(), Error> {
        let mut at = self.first();
        while let Some(next) = at.next() {
            if next.len() <= at.trailing() && !at.has(Flags::EOR) {
                next.read_into(0, at, at.len(), next.len())?;
                absorb(at, next);
            } else {
                at = next;
            }
        }
        Ok(())
    }

    /// Makes one pass; returns by how many mbufs the chain is shorter.
    fn join_neighbours(&mut self) -> Result<usize, Error> {
        let (mut previous, mut at, mut joined) = (None, self.first(), 0);
        while let Some(next) = at.next() {
            if at.len() + next.len() > MCLBYTES || at.has(Flags::EOR) {
                (previous, at) = (Some(at), next);
                continue;
            }
            let flags = at.flags();
            let new = self
                .inner()
                .getcl(How::NoWait, flags.kind(), flags & Flags::PKTHDR)?;
            let new = Chain::new(new);
            at.read_into(0, new.first(), 0, at.len())?;
            next.read_into(0, new.first(), at.len(), next.len())?;
            new.first().set_len(at.len());
            let new = replace(self, previous, at, new);
            new.set_len(new.len() + next.len());
            joined += 1;
            unlink(new, next);
            at = new;
        }
        Ok(joined)
    }

    /// Makes all bytes writable in place: mbufs whose storage is shared, read-only or not mapped are replaced by copies
    /// (`m_unshare`).
    ///
    /// On failure the bytes are unchanged, but some may be copied already; the traditional routine frees the chain.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_unshare")]
    pub fn unshare(&mut self) -> Result<(), Error> {
        self.routine(Routine::Unshare);
        self.make_writable(0..usize::MAX)?;
        // An empty mbuf may have storage too.
        let mut previous: Option<Seg> = None;
        let mut at = Some(self.first());
        while let Some(seg) = at {
            at = seg.next();
            if seg.writable() {
                previous = Some(seg);
            } else if let Some(previous) = previous {
                unlink(previous, seg);
            } else {
                let new = self.private_copy(seg)?;
                previous = Some(replace(self, None, seg, new));
            }
        }
        self.fill_gaps()
    }

    /// Copies all bytes into mbufs of `size` bytes each. This tests code that must not depend on their division
    /// (`m_fragment`).
    ///
    /// On failure the chain is as before, as with the traditional routine.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_fragment")]
    pub fn fragment(&mut self, size: usize) -> Result<(), Error> {
        self.fragment_with(|| size)
    }

    /// Copies all bytes into mbufs whose sizes `size` returns, one after the other; see [`fragment`](Self::fragment).
    ///
    /// # Errors
    /// Those of [`fragment`](Self::fragment); the chain is as before.
    pub fn fragment_with(&mut self, mut size: impl FnMut() -> usize) -> Result<(), Error> {
        self.routine(Routine::Fragment);
        let total = self.len();
        let mut flags = self.first().flags() & Flags::PKTHDR;
        let kind = self.kind();
        let mut chain: Option<Chain> = None;
        let (mut last, mut done) = (None::<Seg>, 0);
        while done < total || chain.is_none() {
            let piece = size().clamp(1, MCLBYTES).min(total - done);
            let new = self.inner().fit(How::NoWait, piece, kind, flags)?;
            match last {
                None => chain = Some(Chain::new(new)),
                Some(last) => last.set_next(Some(new)),
            }
            super::gather(self.first(), done, new, 0, piece)?;
            new.set_len(piece);
            (last, done, flags) = (Some(new), done + piece, Flags::NONE);
        }
        if let Some(chain) = chain {
            self.become_copy(chain);
        }
        Ok(())
    }

    /// Replaces this chain by one with the same bytes, and moves the header and the record's end to it.
    pub(super) fn become_copy(&mut self, copy: Chain) {
        let last = copy.first().last();
        last.set_flags(last.flags() | self.first().last().flags() & Flags::EOR);
        if self.is_packet() {
            move_header(self.first(), copy.first());
        }
        *self = copy;
    }
}

/// Removes an mbuf whose bytes were copied behind those of the one before it.
fn absorb(at: Seg, next: Seg) {
    at.set_len(at.len() + next.len());
    unlink(at, next);
}

fn unlink(at: Seg, next: Seg) {
    at.set_flags(at.flags() | next.flags() & Flags::EOR);
    at.set_next(next.next());
    // SAFETY: out of the chain now.
    unsafe { ext::free_one(next) };
}
