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

// On a mapping that is read-only here Rust defines relaxed loads only. The fences therefore give the order.
impl DeskView<'_> {
    /// Loads `win`.
    #[inline(always)]
    pub fn win(&self) -> u64 {
        let win = self.desk.win.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release store of `win`.
        fence(Ordering::Acquire);
        win
    }

    /// Loads an entry of `kept`.
    #[inline(always)]
    pub fn kept(&self, entry: u8) -> u32 {
        let Some(kept) = self.desk.kept.get(usize::from(entry)) else {
            return 0;
        };
        let kept = kept.load(Ordering::Relaxed);
        // Ordering: acquire; partner: `let_go`, and a hold that goes on to the table.
        fence(Ordering::Acquire);
        kept
    }

    /// Loads `more`.
    #[inline(always)]
    pub fn more(&self) -> u32 {
        let more = self.desk.more.load(Ordering::Relaxed);
        // Ordering: acquire; partner: the release store of `more`.
        fence(Ordering::Acquire);
        more
    }

    /// Loads a slot's counter.
    #[inline(always)]
    pub fn table(&self, slot: u32) -> u32 {
        let Some(counter) = self.table.get(slot as usize) else {
            return 0;
        };
        let counter = counter.load(Ordering::Relaxed);
        // Ordering: acquire; partner: `let_go`.
        fence(Ordering::Acquire);
        counter
    }

    /// Asks for the desk's line. A hint.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch_read(std::ptr::from_ref(self.desk).cast());
    }
}

/// Desks by their number. A number without a desk shows an empty one.
impl Desks for [Option<DeskView<'_>>] {
    type Stop = Infallible;

    #[inline(always)]
    fn win(&self, desk: usize) -> Result<u64, Infallible> {
        Ok(self
            .get(desk)
            .and_then(Option::as_ref)
            .map_or(0, DeskView::win))
    }

    #[inline(always)]
    fn kept(&self, desk: usize, entry: u8) -> Result<u32, Infallible> {
        let at = self.get(desk).and_then(Option::as_ref);
        Ok(at.map_or(0, |at| at.kept(entry)))
    }

    #[inline(always)]
    fn more(&self, desk: usize) -> Result<u32, Infallible> {
        Ok(self
            .get(desk)
            .and_then(Option::as_ref)
            .map_or(0, DeskView::more))
    }

    #[inline(always)]
    fn table(&self, desk: usize, slot: u32) -> Result<u32, Infallible> {
        let at = self.get(desk).and_then(Option::as_ref);
        Ok(at.map_or(0, |at| at.table(slot)))
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
            at.prefetch();
        }
    }
}
