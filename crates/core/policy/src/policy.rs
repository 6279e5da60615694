//! The interface of a policy.

use crate::round::Round;

/// A policy's wish for a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The pool's position in [`Round::pools`].
    pub pool: usize,
    /// The rank: wishes of a lower rank are met first. Within a rank, scarce memory is divided by weight: every pool
    /// gets the same level (per weight), or its wish.
    pub rank: u32,
    /// The pool's whole quota, not an increase.
    pub up_to_bytes: u64,
}

/// Decides how much memory each pool should have.
///
/// It is called once a period with the events of that period, and returns any number of [`Wish`]es. A pool may have
/// several, if a part of the wish is more important than the rest. The governor does everything else, so a policy may
/// wish for more than there is:
///
/// * every pool has its minimum before any wish is met, and never more than its maximum;
/// * the sum of all quotas never exceeds the limit;
/// * no quota moves by more than [`Config::most_step`](crate::Config::most_step) of the limit in a period, unless the
///   limit demands it;
/// * quotas are whole chunks, and no quota changes if all changes are below 1 %.
///
/// Memory without a wish stays free for the next period.
///
/// It must be a function of the rounds that it was given: no clock, no randomness, no I/O, so that a recorded trace
/// gives the same quotas again. It may remember rounds; pools come and go between them and are known by `state.id`. For
/// no oscillation: wish for what is *needed*, not for a change, and do not wish for less until that was right for a
/// while ([`Cost`](crate::Cost) does both).
///
/// ```
/// # mod tranship { pub use tranship_policy as policy; }
/// use tranship::policy::{Policy, Round, Wish};
///
/// /// Gives each pool twice the memory that it used.
/// #[derive(Debug)]
/// struct Twice;
///
/// impl Policy for Twice {
///     fn wishes(&mut self, round: &Round<'_>) -> Vec<Wish> {
///         let pools = round.pools.iter().enumerate();
///         pools
///             .map(|(pool, a)| Wish { pool, rank: 0, up_to_bytes: 2 * a.peak_bytes() })
///             .collect()
///     }
/// }
/// ```
pub trait Policy: std::fmt::Debug + Send {
    /// Returns the wishes for the next period.
    fn wishes(&mut self, round: &Round<'_>) -> Vec<Wish>;

    /// Says whether quotas may move. If not, the quotas in force stay, unless the limit demands a change.
    fn moves(&self) -> bool {
        true
    }
}
