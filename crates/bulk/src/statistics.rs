//! What a domain has counted.

/// How the buffers of a domain's pools of level `none` have travelled, since the domain began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Sent in the memfd in which they were written, sealed.
    pub sealed: u64,
    /// Sent on in the sealed memfd in which they came.
    pub sent_as_they_came: u64,
    /// Sent in a sealed copy, having been written since they came (or since copies of them were released).
    pub sealed_copies: u64,
    /// Sent in a sealed copy, because the kernel refused to seal the memfd itself: pages of it were queued in a
    /// socket or pipe, or held by I/O. Each has cost up to 160 ms and a copy.
    pub seals_refused: u64,
    /// Received by copying them out of the memory into which the sender had copied them.
    pub snapshots: u64,
}
