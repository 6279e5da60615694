//! The memory of one request: a pool's buffer, which goes on to the next channel or to the disk as it is, or memory of
//! this process.

use crate::memory::Heap;
use crate::{Fault, Lane};
use std::io::Read;
use std::sync::Weak;
use tranship_bulk::Buffer;

/// Bytes of a request. They begin at a page.
#[derive(Debug)]
pub enum Data {
    /// For requests without bytes.
    None,
    /// Memory of this process.
    Heap(Heap),
    /// A buffer of a pool. Others may be able to write it, depending on its trust level.
    Bulk(Lent),
}

/// A pool's buffer, which goes back where it came from when it is dropped.
#[derive(Debug)]
pub struct Lent {
    /// Always there, until it is taken out for good.
    buffer: Option<Buffer>,
    home: Option<Weak<Lane>>,
}

impl Lent {
    /// Without a home: `bulk` knows where it belongs.
    pub(crate) fn new(buffer: Buffer, home: Option<Weak<Lane>>) -> Lent {
        let buffer = Some(buffer);
        Lent { buffer, home }
    }

    /// Takes it apart, to be sent.
    pub(crate) fn take(mut self) -> (Option<Buffer>, Option<Weak<Lane>>) {
        (self.buffer.take(), self.home.take())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let home = self.home.take().and_then(|home| home.upgrade());
        if let (Some(lane), Some(buffer)) = (home, self.buffer.take()) {
            lane.put_back(buffer);
        }
    }
}

impl Data {
    /// Zeroes, of this process.
    #[must_use]
    pub fn heap(len: usize) -> Data {
        Data::Heap(Heap::zeroed(len))
    }

    /// Memory of this process, with whatever an earlier request left in it: for those who fill all that they use.
    pub(crate) fn used(len: usize) -> Data {
        Data::Heap(Heap::used(len))
    }

    /// How many bytes there is room for.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::None => 0,
            Data::Heap(heap) => heap.len(),
            Data::Bulk(lent) => lent.buffer.as_ref().map_or(0, Buffer::len),
        }
    }

    /// Is there room for nothing?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes in.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        if let Some(buffer) = self.buffer_mut() {
            return buffer.write(offset, bytes).map_err(|_| Fault::Invalid);
        }
        let end = offset.checked_add(bytes.len()).ok_or(Fault::Invalid)?;
        let own = self.slice_mut().ok_or(Fault::Invalid)?;
        own.get_mut(offset..end)
            .ok_or(Fault::Invalid)?
            .copy_from_slice(bytes);
        Ok(())
    }

    /// Copies bytes out.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Fault> {
        if let Some(buffer) = self.buffer() {
            let copied = buffer.view(|view| view.copy_to_slice(offset, to));
            return match copied {
                Ok(Ok(())) => Ok(()),
                _ => Err(Fault::Invalid),
            };
        }
        let end = offset.checked_add(to.len()).ok_or(Fault::Invalid)?;
        let own = self.slice().ok_or(Fault::Invalid)?;
        to.copy_from_slice(own.get(offset..end).ok_or(Fault::Invalid)?);
        Ok(())
    }

    /// Takes the first `len` bytes from `from`.
    pub(crate) fn fill_from(&mut self, from: &mut impl Read, len: usize) -> std::io::Result<()> {
        let wrong = |_| std::io::Error::from(std::io::ErrorKind::InvalidInput);
        if let Some(bytes) = self.slice_mut() {
            let bytes = bytes.get_mut(..len).ok_or(Fault::Invalid);
            return from.read_exact(bytes.map_err(wrong)?);
        }
        let mut bounce = vec![0; len.min(64 << 10)];
        let mut at = 0;
        while at < len {
            let piece = bounce.len().min(len - at);
            from.read_exact(&mut bounce[..piece])?;
            self.write(at, &bounce[..piece]).map_err(wrong)?;
            at += piece;
        }
        Ok(())
    }

    fn buffer(&self) -> Option<&Buffer> {
        match self {
            Data::Bulk(lent) => lent.buffer.as_ref(),
            _ => None,
        }
    }

    fn buffer_mut(&mut self) -> Option<&mut Buffer> {
        match self {
            Data::Bulk(lent) => lent.buffer.as_mut(),
            _ => None,
        }
    }

    /// The bytes in place, where nobody else can write them.
    pub(crate) fn slice(&self) -> Option<&[u8]> {
        match self {
            Data::None => Some(&[]),
            Data::Heap(heap) => Some(heap.bytes()),
            Data::Bulk(_) => self.buffer()?.bytes().ok(),
        }
    }

    pub(crate) fn slice_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Data::None => Some(&mut []),
            Data::Heap(heap) => Some(heap.bytes_mut()),
            Data::Bulk(_) => self.buffer_mut()?.bytes_mut().ok(),
        }
    }

    /// Where the kernel finds it: valid as long as `self`, for `len` bytes. Of `Data::None`: nowhere.
    pub(crate) fn pointer(&mut self) -> Option<*mut u8> {
        match self {
            Data::None => None,
            Data::Heap(heap) => Some(heap.bytes_mut().as_mut_ptr()),
            // The pool's mapping was made for writing, or the kernel refuses to write there.
            Data::Bulk(_) => self.buffer()?.view(|view| view.as_ptr().cast_mut()).ok(),
        }
    }
}
