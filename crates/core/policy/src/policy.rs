//! What a policy is.

use crate::round::Round;

/// What a policy wants for a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Which, by its place in [`Round::pools`].
    pub pool: usize,
    /// Wishes of a lower rank are met first. Within a rank memory that is short is divided by weight, everybody up to the same level
    /// (per weight) or up to its wish.
    pub rank: u32,
    /// The pool's whole quota, not what is added to it.
    pub up_to_bytes: u64,
}

/// Decides who should have how much.
///
/// It is called once a period with what happened in it, and answers with any number of [`Wish`]es, several for a pool if some of what it
/// wants is more important than the rest. Everything else is done for it, so it may wish for more than there is:
///
/// * every pool has its minimum before any wish is met, and never more than its maximum;
/// * the sum of all quotas never exceeds the limit;
/// * no quota moves by more than [`Config::most_step`](crate::Config::most_step) of the limit in a period, unless the limit demands it;
/// * quotas are whole chunks, and changes of less than 1 % of everybody are not made.
///
/// What nobody wishes for stays free for the next period.
///
/// It must be a function of the rounds that it was given: no clock, no randomness, no I/O, so that a recorded trace gives the same quotas
/// again. It may remember rounds; pools come and go between them and are known by `state.id`. For no oscillation: wish for what is *needed*,
/// not for a change, and do not wish for less until that was right for a while ([`Cost`](crate::Cost) does both).
///
/// ```
/// # mod tranship { pub use tranship_policy as policy; }
/// use tranship::policy::{Policy, Round, Wish};
///
/// /// Everybody as much as it used, twice.
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
    /// What is wanted for the next period.
    fn wishes(&mut self, round: &Round<'_>) -> Vec<Wish>;

    /// False: the quotas in force stay, but for what the limit demands.
    fn moves(&self) -> bool {
        true
    }
}
