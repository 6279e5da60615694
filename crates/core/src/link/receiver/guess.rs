//! Where the next message's buffer will be.

/// If it is as far from the last one's as that was from the one before: the collector hands slots out in their old order.
#[derive(Clone, Copy, Default)]
pub(super) struct Guess {
    pub(super) last: usize,
    pub(super) step: usize,
}

impl Guess {
    #[inline(always)]
    pub(super) fn next(self) -> *const u8 {
        std::ptr::without_provenance(self.last.wrapping_add(self.step))
    }
    #[inline(always)]
    pub(super) fn saw(&mut self, ptr: *const u8) {
        self.step = ptr.addr().wrapping_sub(self.last);
        self.last = ptr.addr();
    }
}
