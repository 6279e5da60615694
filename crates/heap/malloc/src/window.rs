//! The arena's memory: private pages that are charged before they are used.

use crate::{account, environment, marks};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use tranship_items::arena::{MAX_BYTES, Memory, Private};

const LEAST_BYTES: u64 = 64 << 20;
/// The window's size as a multiple of the heap's limit. It is more than 1 because free pages are scattered: they cannot
/// serve a request that is longer than each piece.
const LIMITS: u64 = 4;

/// Private pages, admitted by the manager.
#[derive(Debug)]
pub(crate) struct Charged(Private);

impl Charged {
    /// Reserves the longest window that may be useful; less if a limit of the process forbids it. The tables of
    /// [`marks`] are beside it.
    pub(crate) fn reserve() -> io::Result<Charged> {
        let limit = environment::max_bytes().unwrap_or(u64::MAX);
        let mut bytes = limit
            .saturating_mul(LIMITS)
            .saturating_add(LEAST_BYTES)
            .min(MAX_BYTES);
        loop {
            match Private::reserve_with(bytes, &marks::TABLES) {
                Ok(window) => return Ok(Charged(window)),
                Err(_) if bytes > LEAST_BYTES => bytes /= 2,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Charged {
    /// Returns the tables of marks.
    pub(crate) fn marks(&self) -> Vec<NonNull<u8>> {
        self.0.beside().collect()
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
