//! The memory of one request: a pool's buffer, which goes on to the other end of a channel or to the disk as it is, or
//! memory of this process.

use crate::Fault;
use crate::limits::HEAD_BYTES;
use crate::memory::Heap;
use std::io::Read;
use std::time::Duration;
use tranship_core::error::OutOfBounds;
use tranship_core::{Aggregate, Buffer, BufferMut, Error, Pool};

/// Bytes of a request. Those of 4 KiB or more begin at a page.
///
/// ```
/// # mod tranship { pub use tranship_block as block; }
/// use tranship::block::{Data, Fault};
///
/// let mut data = Data::heap(4096); // memory of this process; Store::data gives what a store takes without a copy
/// data.write(100, b"some bytes")?;
/// let mut bytes = [0; 10];
/// data.read(100, &mut bytes)?;
/// assert_eq!(&bytes, b"some bytes");
/// assert!(matches!(data.write(4090, &bytes), Err(Fault::Invalid))); // beyond its end
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Data {
    /// Memory of requests without bytes.
    None,
    /// Room for a read, in bytes. The memory comes with the answer, or is this process's once a thread writes there.
    Room(usize),
    /// Memory of this process.
    Heap(Heap),
    /// A buffer of a pool of this domain, which can be sent.
    Own(Own),
    /// Memory that came over a channel: it can only be read. Its sender may be able to change it, depending on the
    /// pool's trust level.
    Shared(Buffer),
}

/// A buffer of a pool of this domain, with room for a message's head behind the bytes.
#[derive(Debug)]
pub struct Own {
    buffer: BufferMut,
    len: usize,
}

impl Own {
    /// Allocates a buffer for `len` bytes. Waits at most for `limit`.
    pub(crate) fn new(pool: &Pool, len: usize, limit: Duration) -> Result<Own, Error> {
        let buffer = match limit.is_zero() {
            true => pool.try_alloc(len + HEAD_BYTES)?,
            false => pool.alloc_timeout(len + HEAD_BYTES, limit)?,
        };
        Ok(Own { buffer, len })
    }

    /// Makes a message: the first `len` bytes, and this head.
    pub(crate) fn seal(mut self, len: usize, head: &[u8]) -> Result<Buffer, Fault> {
        let fits = len <= self.len && head.len() <= HEAD_BYTES;
        let written = self.buffer.write(len, head);
        written.ok().filter(|()| fits).ok_or(Fault::Invalid)?;
        self.buffer.truncate(len + head.len());
        Ok(self.buffer.freeze())
    }
}

/// Makes a message of data that came from another domain, as it lies there, and of this head. The head is in memory that
/// the other domain cannot write.
pub(crate) fn pass_on(data: &Buffer, head: &[u8], pool: &Pool) -> Result<Aggregate, Error> {
    let mut own = pool.try_alloc(head.len())?;
    own.write(0, head)?;
    let mut both = Aggregate::new();
    both.push_back(data.clone())?;
    both.push_back(own.freeze())?;
    Ok(both)
}

impl Data {
    /// Makes zeroed memory of this process.
    #[must_use]
    pub fn heap(len: usize) -> Data {
        Data::Heap(Heap::zeroed(len))
    }

    /// Returns memory of this process with the bytes that an earlier request left in it, for a caller that fills all
    /// that it uses.
    pub(crate) fn used(len: usize) -> Data {
        Data::Heap(Heap::used(len))
    }

    /// Returns the number of bytes that have room.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::None => 0,
            Data::Room(len) => *len,
            Data::Heap(heap) => heap.len(),
            Data::Own(own) => own.len,
            Data::Shared(buffer) => buffer.len(),
        }
    }

    /// Returns whether there is no room.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// `Invalid` beyond its end, or into memory of another process.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        let end = offset.checked_add(bytes.len()).ok_or(Fault::Invalid)?;
        match self {
            Data::Own(own) if end <= own.len => {
                // The memory is long enough, so this cannot fail; and a fault is a number on the wire.
                return own
                    .buffer
                    .write(offset, bytes)
                    .map_err(|_: Error| Fault::Invalid);
            }
            Data::Room(len) => *self = Data::used(*len),
            _ => {}
        }
        let to = self.slice_mut().and_then(|own| own.get_mut(offset..end));
        to.ok_or(Fault::Invalid)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// `Invalid` beyond its end.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Fault> {
        let end = offset.checked_add(to.len()).ok_or(Fault::Invalid)?;
        let view = match self {
            Data::Own(own) if end <= own.len => own.buffer.view(),
            Data::Shared(buffer) => buffer.view(),
            _ => {
                let from = self.slice().and_then(|own| own.get(offset..end));
                to.copy_from_slice(from.ok_or(Fault::Invalid)?);
                return Ok(());
            }
        };
        view.copy_to_slice(offset, to)
            .map_err(|_: OutOfBounds| Fault::Invalid)
    }

    /// Takes the first `len` bytes from `from`.
    pub(crate) fn fill_from(&mut self, from: &mut impl Read, len: usize) -> std::io::Result<()> {
        if let Some(bytes) = self.slice_mut().and_then(|bytes| bytes.get_mut(..len)) {
            return from.read_exact(bytes);
        }
        let mut bounce = Heap::used(len);
        from.read_exact(bounce.bytes_mut())?;
        let written = self.write(0, bounce.bytes());
        written.map_err(std::io::Error::other)
    }

    /// Takes the first `len` bytes of `from`.
    pub(crate) fn copy_from(&mut self, from: &Data, len: usize) -> Result<(), Fault> {
        if let Some(bytes) = self.slice_mut() {
            return from.read(0, bytes.get_mut(..len).ok_or(Fault::Invalid)?);
        }
        let mut bounce = Heap::used(len);
        from.read(0, bounce.bytes_mut())?;
        self.write(0, bounce.bytes())
    }

    /// Returns whether it is a buffer of this pool.
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        matches!(self, Data::Own(own) if own.buffer.id().pool() == pool.id())
    }

    /// Returns the bytes in place, if no other process can write them.
    pub(crate) fn slice(&self) -> Option<&[u8]> {
        match self {
            Data::None => Some(&[]),
            Data::Room(_) => None,
            Data::Heap(heap) => Some(heap.bytes()),
            Data::Own(own) => own.buffer.bytes()?.get(..own.len),
            Data::Shared(buffer) => buffer.bytes(),
        }
    }

    pub(crate) fn slice_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Data::None => Some(&mut []),
            Data::Heap(heap) => Some(heap.bytes_mut()),
            Data::Own(own) => own.buffer.bytes_mut()?.get_mut(..own.len),
            Data::Room(_) | Data::Shared(_) => None,
        }
    }

    /// Returns the address for the kernel to write: valid as long as `self`, for `len` bytes. None: there is no memory
    /// that may be written here.
    pub(crate) fn place_to_fill(&mut self) -> Option<*mut u8> {
        match self {
            Data::None | Data::Room(_) | Data::Shared(_) => None,
            Data::Heap(heap) => Some(heap.bytes_mut().as_mut_ptr()),
            Data::Own(own) => own.buffer.writable_ptr(),
        }
    }

    /// Returns the address for the kernel to read: valid as long as `self`, for `len` bytes. None: there is no memory.
    pub(crate) fn place_to_read(&self) -> Option<*const u8> {
        match self {
            Data::None | Data::Room(_) => None,
            Data::Heap(heap) => Some(heap.bytes().as_ptr()),
            Data::Own(own) => Some(own.buffer.view().as_ptr()),
            Data::Shared(buffer) => Some(buffer.view().as_ptr()),
        }
    }
}
