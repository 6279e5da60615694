//! The words that a round reads, and its verdict.

/// The desks of all readers of a pool's rings, as the pool's writer reads them, one access a call.
///
/// The words are the readers': they may be anything.
pub trait Desks {
    /// Why an access did not take place. Mapped memory has [`Infallible`](std::convert::Infallible).
    type Stop;
    /// Loads a desk's `win`.
    // Ordering: acquire; partner: the release store of `Reader::finish`. The loads of `kept` come after it.
    fn win(&self, desk: usize) -> Result<u64, Self::Stop>;
    /// Loads an entry of a desk's `kept`.
    // Ordering: acquire; partner: the release store of `let_go`.
    fn kept(&self, desk: usize, entry: u8) -> Result<u32, Self::Stop>;
    /// Loads a desk's `more`.
    // Ordering: acquire.
    fn more(&self, desk: usize) -> Result<u32, Self::Stop>;
    /// Loads the counter of a slot in the table behind a desk.
    // Ordering: acquire; partner: the release decrement of `let_go`.
    fn table(&self, desk: usize, slot: u32) -> Result<u32, Self::Stop>;
    /// Fences sequentially. Partner: the fence of `Reader::claim`.
    fn fence_full(&self) -> Result<(), Self::Stop>;
    /// Asks for a desk's line, which will be read soon. A hint.
    #[inline(always)]
    fn prefetch(&self, desk: usize) {
        let _ = desk;
    }
}

/// The verdict of a round.
pub trait Outcome {
    /// No line names the buffer, and no reader holds it.
    fn free(&mut self, slot: u32);
    /// A desk's window begins here, modulo 2^48. A reader that has claimed nothing yet shows none.
    #[inline(always)]
    fn seen(&mut self, desk: usize, low: u64) {
        let _ = (desk, low);
    }
    /// A desk's table has more buffers than its reader may hold ([`Limits::most_found`](tranship_ring::broadcast::Limits)).
    /// They stay marked until the desk is removed.
    fn exceeded(&mut self, desk: usize) {
        let _ = desk;
    }
}
