//! Frozen buffers that can be written again.

use super::handle::Home;
use super::{Buffer, BufferMut};
use crate::error::{Error, ErrorKind};
use crate::pool::{Pool, Tag};
use std::mem::ManuallyDrop;

impl Buffer {
    /// A writable buffer with the same bytes: in place if it is of `pool`, the only handle, and was
    /// never sent; else a fresh copy out of `pool`.
    ///
    /// # Errors
    /// As [`Pool::alloc`], if it is copied. It blocks as that does.
    pub fn make_mut(self, pool: &Pool) -> Result<BufferMut, Error> {
        if self.handle().is_inherited() {
            return Err(ErrorKind::Forked.into());
        }
        let is_of_pool = matches!(self.handle().home(), Home::Own(own) if std::ptr::eq(own.as_ptr(), pool.own_ref()));
        let this = match is_of_pool {
            true => self.try_into_mut(),
            false => Err(self),
        };
        this.or_else(|this| {
            let mut copy = pool.alloc(this.len())?;
            copy.fill_from(this.view());
            Ok(copy)
        })
    }

    /// This buffer, exclusive again, if it [`is_unique`](Buffer::is_unique); else itself.
    /// It does not block.
    ///
    /// # Errors
    /// The buffer, unchanged.
    pub fn try_into_mut(self) -> Result<BufferMut, Buffer> {
        if !self.is_unique() {
            return Err(self);
        }
        let handle = ManuallyDrop::new(self).handle();
        if handle.tag.has(Tag::LONG)
            && let Home::Own(pool) = handle.home()
        {
            // SAFETY: pools outlive their outstanding slots.
            unsafe { pool.as_ref() }.open_again(handle.slot());
        }
        // SAFETY: the only local reference goes over, and nobody else knows the buffer.
        Ok(unsafe { BufferMut::of(handle) })
    }
}
