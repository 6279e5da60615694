//! An aggregate in one range of addresses: the pages of its pieces a second time, one after the other. mremap(2) with
//! an old length of 0 maps pages of a shared mapping again, without the descriptors that readers have closed.

use crate::aggregate::Aggregate;
use crate::buffer::Home;
use crate::error::{self, Error, ErrorKind, SendError};
use std::ptr::NonNull;
use tranship_region::View;
use tranship_sys::{ForkGuard, map, page_size};

/// All bytes of an aggregate, contiguous, for reading. It holds the pieces until it is dropped.
///
/// The range shows the pieces' pages a second time, and keeps them. A domain that the manager has shut out for the
/// memory that it held ([`cut_off`](crate::admin::Admin::cut_off)) therefore sees zeros in its buffers, and here the
/// next bytes of the pool's writer.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Aggregate, Domain, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20).align(4096))?;
/// let mut all = Aggregate::new();
/// for page in 0..3 {
///     all.push_back(pool.copy(&[page; 4096])?.freeze())?;
/// }
/// let mapped = all.map()?; // the pages of three buffers, one behind the other
/// assert_eq!((mapped.view().len(), mapped.view().read::<u8>(4096)?), (3 * 4096, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    len: usize,
    aggregate: Aggregate,
    fork: ForkGuard,
}

// SAFETY: it only reads; the pieces are Send and Sync.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// The place of a piece among its pool's chunks.
struct PieceHome {
    chunk_bytes: u64,
    offset: u64,
    fork: ForkGuard,
}

fn place(home: Home, at: NonNull<u8>) -> PieceHome {
    match home {
        Home::Own(pool) => {
            // SAFETY: pools outlive their outstanding slots, and the aggregate holds this piece.
            let pool = unsafe { pool.as_ref() };
            PieceHome {
                chunk_bytes: pool.chunk_bytes(),
                offset: pool.offset_of(at),
                fork: pool.domain().fork,
            }
        }
        Home::Foreign(pool) => {
            // SAFETY: pools outlive their outstanding slots, and the aggregate holds this piece.
            let pool = unsafe { pool.as_ref() };
            PieceHome {
                chunk_bytes: pool.shape.chunk_bytes,
                offset: pool.offset_of(at),
                fork: pool.domain.fork,
            }
        }
    }
}

impl Aggregate {
    /// Shows all bytes in one range of addresses, without a copy. The pieces are held until the result is dropped. It
    /// costs a system call or two for each piece, and as many mappings of the process.
    ///
    /// # Errors
    /// `BadArgument` if a piece does not begin at a page, or does not consist of whole pages, or without pieces;
    /// `Forked`; `System` with the kernel's reason, as for too many mappings. The aggregate comes back.
    pub fn map(self) -> Result<Mapped, SendError<Aggregate>> {
        match map_all(&self) {
            Ok((base, fork)) => Ok(Mapped {
                base,
                len: self.len(),
                aggregate: self,
                fork,
            }),
            Err(error) => Err(SendError::new(error, self)),
        }
    }
}

fn map_all(aggregate: &Aggregate) -> Result<(NonNull<u8>, ForkGuard), Error> {
    let page = page_size();
    let mut fork = None;
    for (number, piece) in aggregate.pieces().iter().enumerate() {
        let handle = piece.handle();
        let into_page = handle.ptr.addr().get() % page;
        if into_page != 0 || handle.len == 0 || !handle.len.is_multiple_of(page) {
            let text = format!(
                "piece {number} of {} bytes begins {into_page} bytes into a page: a range is made of whole pages of {page} bytes",
                handle.len
            );
            return Err(Error::new(ErrorKind::BadArgument, text));
        }
        let place = place(handle.home(), handle.ptr);
        if place.fork.is_child() {
            return Err(ErrorKind::Forked.into());
        }
        fork = Some(place.fork);
    }
    let Some(fork) = fork else {
        return Err(Error::new(
            ErrorKind::BadArgument,
            "an aggregate without pieces",
        ));
    };
    let len = aggregate.len();
    let base = map::reserve(len, page).map_err(error::system("mmap"))?;
    let shown = show_all(aggregate, base);
    match shown {
        Ok(()) => Ok((base, fork)),
        Err(error) => {
            // SAFETY: the reservation just made, which nobody else knows.
            let _ = unsafe { map::unmap(base, len) };
            Err(error)
        }
    }
}

/// The range is the caller's, and as long as the aggregate.
fn show_all(aggregate: &Aggregate, base: NonNull<u8>) -> Result<(), Error> {
    let mut to = base;
    for piece in aggregate.pieces() {
        let handle = piece.handle();
        let (mut from, mut left) = (handle.ptr, handle.len);
        let PieceHome {
            chunk_bytes,
            mut offset,
            ..
        } = place(handle.home(), from);
        while left > 0 {
            // A buffer may go over several chunks, each of which is a file.
            let in_chunk = chunk_bytes - offset % chunk_bytes;
            let n = usize::try_from(in_chunk).unwrap_or(left).min(left);
            // SAFETY: `from` is in the pool's window, where the piece is mapped as long as its handle is held; `to` is inside the reservation.
            unsafe {
                map::show_again(from, n, to).map_err(error::system("mremap"))?;
                (from, to) = (from.add(n), to.add(n));
            }
            (offset, left) = (offset + n as u64, left - n);
        }
    }
    Ok(())
}

impl Mapped {
    /// Returns a view of the bytes as the writers' memory shows them now.
    pub fn view(&self) -> View<'_> {
        let len = match self.fork.is_child() {
            true => 0, // nothing of it is there
            false => self.len,
        };
        // SAFETY: mapped until this is dropped, and the files behind it keep their size.
        unsafe { View::new(self.base.as_ptr(), len) }
    }

    /// Returns the bytes as a slice, if those of all pieces can be read so (see
    /// [`Buffer::bytes`](crate::Buffer::bytes)).
    pub fn bytes(&self) -> Option<&[u8]> {
        let all = || {
            self.aggregate
                .pieces()
                .iter()
                .all(|piece| piece.bytes().is_some())
        };
        if self.fork.is_child() || !all() {
            return None;
        }
        // SAFETY: mapped until this is dropped; nobody changes the bytes of pieces that give slices while they are held.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // In a forked child these addresses may belong to another mapping.
        if !self.fork.is_child() {
            // SAFETY: our own range; no view of it outlives this.
            let _ = unsafe { map::unmap(self.base, self.len) };
        }
    }
}
