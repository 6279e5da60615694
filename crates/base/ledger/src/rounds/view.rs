//! Desks where they are mapped.

use super::desks::Desks;
use std::convert::Infallible;
use tranship_ring::broadcast::Desk;
use tranship_sync::atomic::{AtomicU32, Ordering, fence};
use tranship_sync::{full_fence, prefetch_read};

/// A reader's desk and table, as the pool's writer sees them: mapped read-only.
#[derive(Clone, Copy, Debug)]
pub struct DeskView<'a> {
    /// The desk.
    pub desk: &'a Desk,
    /// The table: a counter each slot.
    pub table: &'a [AtomicU32],
}

/// Desks by their number. A number without a desk shows an empty one.
impl Desks for [Option<DeskView<'_>>] {
    type Stop = Infallible;

    #[inline(always)]
    fn win(&self, desk: usize) -> Result<u64, Infallible> {
        let Some(Some(at)) = self.get(desk) else {
            return Ok(0);
        };
        // On a mapping that is read-only here Rust defines relaxed loads only. The fences therefore give the order.
        let win = at.desk.win.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release store of `win`.
        fence(Ordering::Acquire);
        Ok(win)
    }

    #[inline(always)]
    fn kept(&self, desk: usize, entry: u8) -> Result<u32, Infallible> {
        let Some(Some(at)) = self.get(desk) else {
            return Ok(0);
        };
        let Some(kept) = at.desk.kept.get(usize::from(entry)) else {
            return Ok(0);
        };
        let kept = kept.load(Ordering::Relaxed);
        // Ordering: acquire; partner: `let_go`, and a hold that goes on to the table.
        fence(Ordering::Acquire);
        Ok(kept)
    }

    #[inline(always)]
    fn more(&self, desk: usize) -> Result<u32, Infallible> {
        let Some(Some(at)) = self.get(desk) else {
            return Ok(0);
        };
        let more = at.desk.more.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release store of `more`.
        fence(Ordering::Acquire);
        Ok(more)
    }

    #[inline(always)]
    fn table(&self, desk: usize, slot: u32) -> Result<u32, Infallible> {
        let Some(Some(at)) = self.get(desk) else {
            return Ok(0);
        };
        let Some(counter) = at.table.get(slot as usize) else {
            return Ok(0);
        };
        let counter = counter.load(Ordering::Relaxed);
        // Ordering: acquire; partner: `let_go`.
        fence(Ordering::Acquire);
        Ok(counter)
    }

    #[inline(always)]
    fn fence_full(&self) -> Result<(), Infallible> {
        // Ordering: partner: the fence of `Reader::claim`.
        full_fence();
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, desk: usize) {
        if let Some(Some(at)) = self.get(desk) {
            prefetch_read(std::ptr::from_ref(at.desk).cast());
        }
    }
}
