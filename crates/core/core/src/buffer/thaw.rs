//! Frozen buffers that can be written again.

use super::handle::Home;
use super::{Buffer, BufferMut};
use crate::pool::Tag;
use std::mem::ManuallyDrop;

impl Buffer {
    /// Makes the buffer exclusive again, if it [`is_unique`](Buffer::is_unique). It does not block.
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
