//! Small copied pieces that travel between references: a log that is only appended to.
//!
//! Bytes that are given to a pipe must not change until they were received, and nothing reports when that is. So
//! nothing in the log is ever written twice: at its end it gets fresh pages, and the kernel keeps the old ones as long
//! as they are needed.

use crate::arena::classes::PAGE;
use std::io;
use std::ptr::NonNull;
use tranship_sys::map;

const BYTES: usize = 64 * PAGE;
/// Most bytes that one message may need. When less is left, the log begins anew before the message. In the middle of
/// it, pages whose addresses were noted would go before the kernel has seen them.
const MESSAGE: usize = 32 * PAGE;

#[derive(Debug)]
pub(super) struct HeaderLog {
    base: NonNull<u8>,
    used: usize,
}

// SAFETY: the only handle to a mapping of its own.
unsafe impl Send for HeaderLog {}

impl HeaderLog {
    pub(super) fn new() -> io::Result<HeaderLog> {
        Ok(HeaderLog {
            base: map::reserve_private(BYTES, PAGE)?,
            used: 0,
        })
    }

    /// The longest piece that is worth a place here.
    pub(super) const LONGEST: usize = 1024;

    /// Begins a message: all that was kept so far has been given to the kernel.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if BYTES - self.used < MESSAGE {
            // SAFETY: our own mapping; no thread reads it through our addresses any more, and a holder of its pages
            // keeps them.
            unsafe { map::discard(self.base, BYTES)? };
            self.used = 0;
        }
        Ok(())
    }

    /// Copies bytes to a place where they stay as they are while they are needed, inside one page. `None`: they are too
    /// many, or the message already has too many of them; they go by copying.
    ///
    /// # Safety
    /// The range is mapped memory.
    pub(super) unsafe fn keep(&mut self, from: *const u8, len: usize) -> Option<*const u8> {
        let at = if self.used % PAGE + len > PAGE {
            self.used.next_multiple_of(PAGE)
        } else {
            self.used
        };
        if len > Self::LONGEST || at + len > BYTES {
            return None;
        }
        self.used = at;
        // SAFETY: room for it was just made; the source is mapped, says the caller, and cannot be the log.
        let at = unsafe {
            let at = self.base.as_ptr().add(self.used);
            std::ptr::copy_nonoverlapping(from, at, len);
            at
        };
        self.used += len;
        Some(at)
    }
}

impl Drop for HeaderLog {
    fn drop(&mut self) {
        // SAFETY: ours; the kernel keeps the pages that are under way.
        let _ = unsafe { map::unmap(self.base, BYTES) };
    }
}
