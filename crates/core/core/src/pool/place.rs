//! The addresses of a slot's two halves.

use super::slots::Slot;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_ledger::Handles;
use tranship_region::layout::Slot as TableSlot;

/// Addresses of a slot's words, computed once for a caller that needs several of them.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(super) private: &'a Slot,
    pub(super) entry: &'a TableSlot,
}

impl<'a> Place<'a> {
    #[inline(always)]
    pub(crate) fn handles(self) -> &'a Handles {
        &self.private.handles
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> &'a AtomicU32 {
        &self.entry.generation
    }

    /// Whether the caller's handle is the only one and the buffer was never sent.
    #[inline(always)]
    pub(crate) fn is_private(self) -> bool {
        self.handles().is_private(self.generation())
    }

    /// Returns the serial of the slot's chunk.
    #[inline(always)]
    pub(super) fn serial(self) -> u32 {
        // Relaxed: our own word, as old as the slot.
        self.entry.serial.load(Ordering::Relaxed)
    }
}
