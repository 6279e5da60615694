//! Cutting a chain in two.

use crate::chain::{Chain, find};
use crate::counts::Routine;
use crate::error::Error;
use crate::flags::Flags;
use crate::seg::Seg;
use crate::size::MHLEN;
use crate::zones::How;

impl Chain {
    /// Cuts the bytes from `at` on off and returns them (`m_split`). Storage at the cut is shared.
    ///
    /// The tail of a packet is a packet: its header is a copy of the first one's, with the send tag, but no tags.
    /// Unlike with the traditional routine, a failure leaves the packet's length as it was.
    ///
    /// # Errors
    /// `TooShort` beyond the end; `NoBuffers` when there is no memory, or a limit is reached.
    #[doc(alias = "m_split")]
    pub fn split_off(&mut self, at: usize) -> Result<Chain, Error> {
        self.routine(Routine::Split);
        let available = self.len();
        let Some((seg, inside)) = find(self.first(), at) else {
            return Err(Error::TooShort {
                wanted: at,
                available,
            });
        };
        let before = match seg == self.first() || inside > 0 {
            true => None,
            false => self.segs().find(|before| before.next() == Some(seg)),
        };
        // The mbuf at the cut stays in front, short, or moves to the tail as it is.
        let (rest, behind) = match before {
            None => (seg.len() - inside, seg.next()),
            Some(_) => (0, Some(seg)),
        };
        let flags = self.first().flags() & Flags::PKTHDR;
        let tail = if rest > 0 {
            Some(self.part(seg, inside, rest, flags)?)
        } else if behind.is_none() || self.is_packet() {
            let seg = self.inner().get(How::NoWait, self.kind(), flags)?;
            Some(Chain::new(seg))
        } else {
            None
        };
        // From here on nothing fails.
        match before {
            Some(before) => before.set_next(None),
            None => {
                seg.set_next(None);
                seg.set_len(inside);
            }
        }
        let tail = match (tail, behind) {
            (Some(tail), behind) => {
                let last = tail.first().last();
                last.set_next(behind);
                if rest > 0 {
                    last.set_flags(last.flags() | seg.flags() & Flags::EOR);
                    seg.set_flags(seg.flags() - Flags::EOR);
                }
                tail
            }
            (None, Some(behind)) => Chain::new(behind),
            (None, None) => unreachable!("made above"),
        };
        self.part_header(&tail, at, available);
        Ok(tail)
    }

    /// Makes a chain of `rest` bytes of an mbuf.
    fn part(&self, seg: Seg, at: usize, rest: usize, flags: Flags) -> Result<Chain, Error> {
        if !flags.contains(Flags::PKTHDR) {
            return self.alias(seg, at, rest);
        }
        if !seg.has(Flags::EXT) && rest <= MHLEN {
            let head = Chain::new(self.inner().get(How::NoWait, self.kind(), flags)?);
            seg.read_into(at, head.first(), 0, rest)?;
            head.first().set_len(rest);
            return Ok(head);
        }
        let mut part = self.alias(seg, at, rest)?;
        part.make_packet()?;
        Ok(part)
    }

    /// Headers of the two parts of a packet.
    fn part_header(&self, tail: &Chain, at: usize, available: usize) {
        let (Some(header), first) = (self.header(), tail.first()) else {
            return;
        };
        first.set_flags(first.flags() | self.first().flags() & Flags::MOVED);
        // SAFETY: fresh, with an empty header in which nothing needs a destructor.
        unsafe { first.header().write(header.without_tags()) };
        self.first().set_pkt_len(at);
        first.set_pkt_len(available - at);
    }
}
