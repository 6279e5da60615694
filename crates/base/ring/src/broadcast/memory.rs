//! The accesses to shared memory, one a call.
//!
//! The functions of this module and of `tranship-ledger`'s `rounds` reach shared memory by these traits alone. So their
//! order of accesses is also that of the models in `tests/`, which run them step by step. Mapped memory has
//! [`Infallible`](std::convert::Infallible) as `Stop`, which costs nothing. After a stop the private state is undefined:
//! a model runs the function again from a copy.

/// Memory that a ring's writer accesses: its lines.
pub trait WriterMemory {
    /// Why an access did not take place.
    type Stop;
    /// Stores word 0 of a line.
    // Ordering: release; partner: `ReaderMemory::first`.
    fn set_first(&self, position: u64, word: u64) -> Result<(), Self::Stop>;
    /// Stores word 1 to 6.
    // Ordering: relaxed; published by word 0.
    fn set_word(&self, position: u64, index: usize, word: u64) -> Result<(), Self::Stop>;
    /// Stores word 7.
    // Ordering: relaxed; the release fence after it orders it before the content.
    fn set_last(&self, position: u64, word: u64) -> Result<(), Self::Stop>;
    /// Fences earlier loads and stores before later stores.
    fn fence_release(&self) -> Result<(), Self::Stop>;
    /// Asks for a line that will be published soon after the one at `tail`. A hint.
    #[inline(always)]
    fn prefetch(&self, tail: u64) {
        let _ = tail;
    }
}

/// Memory that a ring's reader accesses: the writer's lines, and its own desk and table.
pub trait ReaderMemory {
    /// Why an access did not take place.
    type Stop;
    /// Loads word 0 of a line.
    // Ordering: acquire; partner: `WriterMemory::set_first`.
    fn first(&self, position: u64) -> Result<u64, Self::Stop>;
    /// Loads word 1 to 6.
    // Ordering: relaxed; word 0 was loaded before, and a fence follows.
    fn word(&self, position: u64, index: usize) -> Result<u64, Self::Stop>;
    /// Loads word 7.
    // Ordering: relaxed; after `fence_acquire`. Partner: the release fence after `set_last`.
    fn last(&self, position: u64) -> Result<u64, Self::Stop>;
    /// Stores the desk's `win`.
    // Ordering: release; partner: the acquire load of the writer's look.
    fn set_win(&self, word: u64) -> Result<(), Self::Stop>;
    /// Loads an entry of the own `kept`.
    // Ordering: acquire; partner: the release store of `let_go` by another thread.
    fn kept(&self, entry: u8) -> Result<u32, Self::Stop>;
    /// Stores an entry of `kept`: a slot's number plus 1, or 0.
    // Ordering: release; partner: the acquire load of the writer's look.
    fn set_kept(&self, entry: u8, word: u32) -> Result<(), Self::Stop>;
    /// Stores `more`.
    // Ordering: release, as above.
    fn set_more(&self, word: u32) -> Result<(), Self::Stop>;
    /// Adds 1 to the table's counter of a slot, or, if `up` is false, takes 1 away.
    // Ordering: a read-modify-write, release; partner: the acquire load of the writer's look.
    fn count(&self, slot: u32, up: bool) -> Result<(), Self::Stop>;
    /// Fences loads before later loads and stores.
    fn fence_acquire(&self) -> Result<(), Self::Stop>;
    /// Fences sequentially. Partner: the fence with which the writer begins a round.
    fn fence_full(&self) -> Result<(), Self::Stop>;
}
