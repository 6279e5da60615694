//! The arena's memory: private pages that are charged before they are used.

use crate::account;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use tranship_zone::arena::{MAX_BYTES, Memory, Private};

const LEAST_BYTES: u64 = 64 << 20;

/// Pages of one's own, admitted by the manager.
#[derive(Debug)]
pub(crate) struct Charged(Private);

impl Charged {
    /// The longest window that may be had: limits of the process, or strict overcommit, may allow less than all.
    pub(crate) fn reserve() -> io::Result<Charged> {
        let mut bytes = MAX_BYTES;
        loop {
            match Private::reserve(bytes) {
                Ok(window) => return Ok(Charged(window)),
                Err(_) if bytes > LEAST_BYTES => bytes /= 2,
                Err(error) => return Err(error),
            }
        }
    }
}

// SAFETY: all of it is `Private`'s.
unsafe impl Memory for Charged {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn commit(&self, range: Range<u64>) -> bool {
        account::charge(range.end - range.start) && self.0.commit(range)
    }

    fn decommit(&self, range: Range<u64>) {
        let bytes = range.end - range.start;
        self.0.decommit(range);
        account::discharge(bytes);
    }
}
