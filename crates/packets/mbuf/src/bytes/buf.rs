//! Chains as `bytes::Buf` and `BufMut`.

use crate::chain::Chain;
use crate::seg::Seg;
use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut};
use std::io::IoSlice;
use std::marker::PhantomData;

impl Chain {
    /// Returns a [`Buf`] over all bytes, without copying; `None` if some cannot be read in place
    /// ([`make_readable`](Self::make_readable) helps then).
    #[must_use]
    pub fn reader(&self) -> Option<Reader<'_>> {
        self.segs().all(Seg::readable).then(|| Reader {
            at: Some(self.first()),
            offset: 0,
            left: self.first().total(),
            chain: PhantomData,
        })
    }

    /// Returns the bytes as slices for `writev`, if all can be read in place; empty mbufs give none.
    #[must_use]
    pub fn io_slices(&self) -> Option<Vec<IoSlice<'_>>> {
        self.iter()
            .filter(|mbuf| !mbuf.is_empty())
            .map(|mbuf| mbuf.bytes().map(IoSlice::new))
            .collect()
    }

    /// Returns a [`BufMut`] that writes behind the last byte, into the space of the present mbufs; for more,
    /// [`reserve`](Self::reserve) first.
    pub fn writer(&mut self) -> Writer<'_> {
        let at = self.tail();
        Writer { chain: self, at }
    }

    /// Returns the last mbuf with data, or the first if there is none.
    pub(crate) fn tail(&self) -> Seg {
        let with_data = self.segs().filter(|seg| seg.len() > 0);
        with_data.last().unwrap_or(self.first())
    }
}

/// Reads a chain front to back.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    at: Option<Seg>,
    offset: usize,
    left: usize,
    chain: PhantomData<&'a Chain>,
}

impl<'a> Reader<'a> {
    fn slices(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut offset = self.offset;
        let segs = self.at.into_iter().flat_map(Seg::walk);
        segs.filter_map(move |seg| {
            // SAFETY: readable, as was asked when the reader was made; the chain is borrowed for `'a`.
            let bytes = unsafe { seg.bytes() }?;
            Some(&bytes[std::mem::take(&mut offset)..])
        })
        .filter(|bytes| !bytes.is_empty())
    }
}

impl Buf for Reader<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.slices().next().unwrap_or_default()
    }

    fn advance(&mut self, count: usize) {
        assert!(
            count <= self.left,
            "advance by {count} of {} bytes",
            self.left
        );
        self.left -= count;
        self.offset += count;
        while let Some(seg) = self.at
            && self.offset >= seg.len()
        {
            self.offset -= seg.len();
            self.at = seg.next();
        }
    }

    fn chunks_vectored<'b>(&'b self, to: &mut [IoSlice<'b>]) -> usize {
        let mut count = 0;
        for (to, bytes) in to.iter_mut().zip(self.slices()) {
            *to = IoSlice::new(bytes);
            count += 1;
        }
        count
    }
}

/// Writes behind the last byte of a chain.
#[derive(Debug)]
pub struct Writer<'a> {
    chain: &'a mut Chain,
    at: Seg,
}

impl Writer<'_> {
    /// Returns the mbuf that is written next.
    fn open(&self) -> Option<Seg> {
        self.at.walk().find(|seg| seg.trailing() > 0)
    }
}

// SAFETY: `chunk_mut` gives the free space of a writable mbuf, of which `advance_mut` takes the beginning.
unsafe impl BufMut for Writer<'_> {
    fn remaining_mut(&self) -> usize {
        self.at.walk().map(Seg::trailing).sum()
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        let Some(seg) = self.open() else {
            return UninitSlice::new(&mut []);
        };
        let (at, len) = (seg.data().wrapping_add(seg.len()), seg.trailing());
        // SAFETY: the free space of a writable mbuf, whose chain is borrowed mutably.
        unsafe { UninitSlice::from_raw_parts_mut(at, len) }
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        let space = self.remaining_mut();
        assert!(count <= space, "advance by {count} of {space} bytes");
        self.chain.first().grow_packet(count);
        let mut left = count;
        while left > 0
            && let Some(seg) = self.open()
        {
            let piece = left.min(seg.trailing());
            seg.set_len(seg.len() + piece);
            (self.at, left) = (seg, left - piece);
        }
    }
}
