//! Transfer of bytes from and to slices, descriptors, devices.

use crate::alloc::Mbufs;
use crate::chain::Chain;
use crate::error::{Error, check_total};
use crate::flags::{Flags, Kind};
use std::io::{self, IoSlice, IoSliceMut};

impl Mbufs {
    /// Makes a packet with copies of these bytes. Its data begins `space` bytes from the start of its first mbuf, so
    /// that headers fit in front (`m_uiotombuf`, `align`). It copies all bytes or none.
    ///
    /// # Errors
    /// `TooLong` if `space` is more than an mbuf has, or the packet would have more than 4,294,967,295 bytes;
    /// `NoBuffers` when there is no memory, or a limit is reached. It waits only if this handle does
    /// ([`Mbufs::waiting`](crate::Mbufs::waiting)).
    #[doc(alias = "m_uiotombuf")]
    pub fn from_slices(&self, slices: &[IoSlice<'_>], space: usize) -> Result<Chain, Error> {
        let total = slices
            .iter()
            .fold(0, |sum: usize, slice| sum.saturating_add(slice.len()));
        let mut chain = self.room(total, space)?;
        let mut writer = chain.writer();
        for slice in slices {
            bytes::BufMut::put_slice(&mut writer, slice);
        }
        chain.drop_empty_tail();
        Ok(chain)
    }

    /// Makes a packet with a copy of these bytes, `space` bytes from the start of its first mbuf (`m_devget`). A driver
    /// does this with a frame in a device's memory.
    ///
    /// # Errors
    /// Those of [`from_slices`](Self::from_slices).
    #[doc(alias = "m_devget")]
    pub fn devget(&self, bytes: &[u8], space: usize) -> Result<Chain, Error> {
        let chain = self.from_slices(&[IoSlice::new(bytes)], space)?;
        self.inner.sizes.count(bytes.len());
        Ok(chain)
    }

    /// Allocates an empty packet with room for `len` bytes behind `space` bytes.
    fn room(&self, len: usize, space: usize) -> Result<Chain, Error> {
        check_total(len, space)?;
        let need = len + space;
        let mut chain = Chain::new(
            self.inner
                .getm(self.how, need, Kind::DATA, Flags::PKTHDR)?
                .into_first(),
        );
        chain.reserve_front(space)?;
        Ok(chain)
    }
}

impl Chain {
    /// Copies as many bytes as there are, or as there is room for, from `offset` on; returns their number
    /// (`m_mbuftouio`).
    ///
    /// # Errors
    /// `TooShort` for an `offset` beyond the end; `File` where a piece of a file cannot be read.
    #[doc(alias = "m_mbuftouio")]
    pub fn to_slices(&self, offset: usize, to: &mut [IoSliceMut<'_>]) -> Result<usize, Error> {
        let total = self.len();
        let mut at = offset.min(total);
        for slice in to {
            let piece = slice.len().min(total - at);
            self.copydata(at, &mut slice[..piece])?;
            at += piece;
        }
        Ok(at - offset.min(total))
    }

    /// Lets `read` (for example a `readv`) fill the space behind the last byte, the slices in order. `read` returns the
    /// number of bytes. Mbufs that stay empty at the end are freed.
    ///
    /// # Errors
    /// Those of `read`; the chain is as before.
    ///
    /// # Panics
    /// If `read` returns more than there was room for.
    pub fn fill_with(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut slices = Vec::new();
        for seg in self.tail().walk().filter(|seg| seg.trailing() > 0) {
            let (at, len) = (seg.data().wrapping_add(seg.len()), seg.trailing());
            // SAFETY: the free space of a writable mbuf, each once, borrowed with the chain. It was written or came
            // zeroed from the kernel.
            slices.push(IoSliceMut::new(unsafe {
                std::slice::from_raw_parts_mut(at, len)
            }));
        }
        let bytes = read(&mut slices)?;
        let mut writer = self.writer();
        // SAFETY: initialised, as above.
        unsafe { bytes::BufMut::advance_mut(&mut writer, bytes) };
        self.drop_empty_tail();
        Ok(bytes)
    }

    /// Copies the bytes that cannot be read in place into private mbufs: pieces of files (`mb_unmapped_to_ext`), and
    /// bytes that their writer may still change.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece of a file cannot be read.
    #[doc(alias = "mb_unmapped_to_ext")]
    pub fn make_readable(&mut self) -> Result<(), Error> {
        let (mut previous, mut at) = (None, Some(self.first()));
        while let Some(seg) = at {
            let seg = if seg.readable() {
                seg
            } else {
                let new = self.private_copy(seg)?;
                crate::ops::replace(self, previous, seg, new)
            };
            (previous, at) = (Some(seg), seg.next());
        }
        Ok(())
    }

    /// Frees the mbufs behind the last byte, except the first.
    pub(crate) fn drop_empty_tail(&mut self) {
        let last = self.tail();
        if let Some(behind) = last.next() {
            last.set_next(None);
            drop(Chain::new(behind));
        }
    }
}
