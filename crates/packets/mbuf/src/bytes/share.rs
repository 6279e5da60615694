//! Copies of chains: by reference or byte by byte.

use crate::chain::Chain;
use crate::counts::Routine;
use crate::error::{Error, NoBuffers, What};
use crate::ext;
use crate::flags::Flags;
use crate::ops::gather;
use crate::seg::Seg;
use crate::zones::How;
use std::ops::Range;

impl Chain {
    /// Makes a chain with the bytes of `range` (`m_copym`): external storage is shared, and bytes inside of mbufs are
    /// copied. If `range` begins at 0 and this chain is a packet, the new one is a packet with a copy of the header and
    /// the tags.
    ///
    /// Neither chain can write the shared storage in place as long as both exist.
    ///
    /// # Errors
    /// `TooShort` beyond the end; `NoBuffers` when there is no memory, or a limit is reached.
    #[doc(alias = "m_copym")]
    #[doc(alias = "m_copy")]
    pub fn copym(&self, range: Range<usize>) -> Result<Chain, Error> {
        self.routine(Routine::Copym);
        let len = self.check_range(&range)?;
        let packet = range.start == 0 && self.is_packet();
        let (mut copy, mut last) = (None::<Chain>, None::<Seg>);
        if packet {
            // A first mbuf without bytes still gives one for the header.
            let first = self.first();
            let len = first.len().min(len);
            let head = self.alias_with_header(first, len)?;
            last = Some(head.first());
            copy = Some(head);
        }
        let skipped = if packet {
            self.first().len().min(len)
        } else {
            0
        };
        for (seg, at, len) in self.pieces(range.start + skipped..range.end) {
            let piece = self.alias(seg, at, len)?;
            if at + len == seg.len() {
                let first = piece.first();
                first.set_flags(first.flags() | seg.flags() & Flags::EOR);
            }
            last = Some(match last {
                Some(last) => {
                    let piece = piece.into_first();
                    last.set_next(Some(piece));
                    piece
                }
                None => {
                    let first = piece.first();
                    copy = Some(piece);
                    first
                }
            });
        }
        let copy = match copy {
            Some(copy) => copy,
            None => Chain::new(self.inner().get(How::NoWait, self.kind(), Flags::NONE)?),
        };
        if packet {
            copy.first().set_pkt_len(len);
        }
        Ok(copy)
    }

    /// Makes a chain with the whole chain's bytes by reference (`m_copypacket`).
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached.
    #[doc(alias = "m_copypacket")]
    pub fn copypacket(&self) -> Result<Chain, Error> {
        self.copym(0..self.len())
    }

    fn alias_with_header(&self, seg: Seg, len: usize) -> Result<Chain, Error> {
        let header = match self.header() {
            Some(header) => header
                .duplicate()
                .ok_or_else(|| NoBuffers::from(What::Tag))?,
            None => Default::default(),
        };
        let inner = self.inner();
        let copy = if seg.has(Flags::EXT) {
            let copy = Chain::new(inner.mini(How::NoWait, self.kind(), Flags::PKTHDR)?);
            // SAFETY: fresh, so without storage.
            unsafe { ext::share(seg, copy.first()) };
            copy
        } else {
            let copy = Chain::new(inner.get(How::NoWait, self.kind(), Flags::PKTHDR)?);
            seg.read_into(0, copy.first(), 0, len)?;
            copy
        };
        let first = copy.first();
        first.set_len(len);
        first.set_flags(first.flags() | seg.flags() & Flags::MOVED);
        if len == seg.len() {
            first.set_flags(first.flags() | seg.flags() & Flags::EOR);
        }
        // SAFETY: fresh, with an empty header in which nothing needs a destructor.
        unsafe { first.header().write(header) };
        Ok(copy)
    }

    /// Makes a chain with copies of all bytes, of the header and of the tags. The copy is writable even if this chain
    /// is not (`m_dup`).
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_dup")]
    pub fn dup(&self) -> Result<Chain, Error> {
        self.routine(Routine::Dup);
        let copy = self.deep_copy()?;
        let (from, to) = (self.first(), copy.first());
        if let Some(header) = self.header() {
            let header = header
                .duplicate()
                .ok_or_else(|| NoBuffers::from(What::Tag))?;
            // SAFETY: fresh, with an empty header in which nothing needs a destructor.
            unsafe { to.header().write(header) };
            to.set_flags(to.flags() | from.flags() & Flags::MOVED);
            to.set_pkt_len(self.len());
        }
        let last = to.last();
        last.set_flags(last.flags() | from.last().flags() & Flags::EOR);
        Ok(copy)
    }

    /// Makes copies of all bytes in as few mbufs as possible. A packet's copy has an empty header at the right place,
    /// with length 0, to be filled in.
    pub(crate) fn deep_copy(&self) -> Result<Chain, Error> {
        let flags = self.first().flags() & Flags::PKTHDR;
        let total = self.len();
        let copy = self.inner().getm(How::NoWait, total, self.kind(), flags)?;
        let mut done = 0;
        for seg in copy.segs() {
            let piece = (total - done).min(seg.size());
            gather(self.first(), done, seg, 0, piece)?;
            seg.set_len(piece);
            done += piece;
        }
        Ok(copy)
    }
}
