//! The order in which a receiver touches the counters: one body for the short way, the long way, and the pieces of an aggregate.

use tranship_sync::atomic::AtomicU32;
use tranship_sync::fence_after_rmw;

use crate::generation::{StaleReference, is_published};
use crate::order::{RECEIPT_DIRECT, RECEIPT_FORWARDED, ReceiptStep};
use crate::transfer::count;

/// Checks after [`raise`] that the slot is at the generation that the id names, and that this is the generation of a
/// sent buffer. Both then hold as long as the reference is held. `generation` loads the table's word.
///
/// # Errors
/// [`StaleReference`]. [`hold`] then gives the reference up. Close the channel, so that its queue leaves: the message is
/// never counted as received.
#[inline(always)]
pub fn still_names(named: u32, generation: impl FnOnce() -> u32) -> Result<(), StaleReference> {
    // Ordering: partner: the fence in `ReaderSet::collect`. Either the collector sees this reference, or the receiver sees
    // the changed generation.
    fence_after_rmw();
    let found = generation();
    if found == named && is_published(named) {
        Ok(())
    } else {
        Err(StaleReference { named, found })
    }
}

/// Comes by a reference. `raise` counts it: [`Bias::receive`](crate::Bias::receive), or, with a check, a read-modify-write; on failure it has counted nothing.
/// `check` is [`still_names`], and what else depends on it, if the sender is not the pool's writer. `reached` is told of each step.
///
/// # Errors
/// The error of `raise` or `check`. After an error of `check`, `give_up` has dropped the reference.
#[inline(always)]
pub fn hold<E>(
    raise: impl FnOnce() -> Result<(), E>,
    check: Option<impl FnOnce() -> Result<(), E>>,
    give_up: impl FnOnce(),
    mut reached: impl FnMut(ReceiptStep),
) -> Result<(), E> {
    use ReceiptStep::{Check, Hold};
    raise()?;
    reached(Hold);
    if let Some(check) = check {
        if let Err(error) = check() {
            give_up();
            return Err(error);
        }
        reached(Check);
    }
    Ok(())
}

/// Receipt of one reference. Then move the ring's cursor. `take` is [`hold`], and what the receiver makes of it, or the writer's
/// [`Handles::find`](crate::Handles::find).
///
/// # Errors
/// The error of `take`. Nothing is held then, and `rcvd` is not counted, so that the message can be tried again.
// Crash: after `ref++` or after `rcvd++` the domain's words leave the reader set with it, and its queues, as sink, too.
#[inline(always)]
pub fn receive<T, E>(
    take: impl FnOnce() -> Result<T, E>,
    rcvd: &AtomicU32,
    reached: impl FnOnce(ReceiptStep),
) -> Result<T, E> {
    use ReceiptStep::{Check, Count, Fence, Hold};
    const { assert!(matches!(RECEIPT_DIRECT, [Hold, Count])) };
    const { assert!(matches!(RECEIPT_FORWARDED, [Hold, Fence, Check, Count])) };
    let taken = take()?;
    count(rcvd);
    reached(Count);
    Ok(taken)
}

/// Receipt of an aggregate, all or nothing: `pieces` takes them one by one, each as `take` of [`receive`] does, beside its `rcvd`; `list` is that of their
/// list, of which the caller holds a reference. Nothing is counted before all are held.
///
/// # Errors
/// The error of the first piece that cannot be taken. The pieces before it are dropped, and nothing is counted.
// Crash: as in `receive`.
pub fn receive_all<'a, T, E>(
    pieces: impl IntoIterator<Item = Result<(T, &'a AtomicU32), E>>,
    list: &AtomicU32,
    mut reached: impl FnMut(ReceiptStep),
) -> Result<Vec<T>, E> {
    let pieces = pieces.into_iter();
    let many = pieces.size_hint().0;
    let (mut taken, mut rcvd) = (Vec::with_capacity(many), Vec::with_capacity(many));
    for piece in pieces {
        let (piece, word) = piece?;
        taken.push(piece);
        rcvd.push(word);
    }
    for rcvd in rcvd.into_iter().chain([list]) {
        count(rcvd);
        reached(ReceiptStep::Count);
    }
    Ok(taken)
}

#[cfg(test)]
mod tests;
