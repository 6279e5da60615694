//! The collector's working memory.

/// Kept between batches, so that collecting does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) seen: Seen,
    /// Candidates that the first pass found dead,
    pub(crate) pending: Vec<u32>,
    /// and the generations they had.
    pub(crate) were: Vec<u32>,
}

/// Values that a pass read of its slots.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// `rcvd` of all slots in the first queue, then in the next.
    pub(crate) rcvd: Vec<u32>,
    /// The verdict: a slot each.
    pub(crate) alive: Vec<bool>,
}
