//! The order in which senders and receivers touch the counters.
//!
//! Each word here is written by the calling domain alone. Several of its threads may raise and release references
//! at once; `sent` and `rcvd` of a queue belong to whoever has the sending or receiving end at that moment.

use tranship_sync::atomic::{AtomicU32, Ordering};
use tranship_sync::fence_after_rmw;

use crate::generation::{StaleReference, is_published, published, published_first};
use crate::handles::Handles;
use crate::order::{
    PASS_BACK, PassStep, RECEIPT_DIRECT, RECEIPT_FORWARDED, RETURN, ReceiptStep, ReturnStep,
    SEND_FIRST, SendStep,
};

/// `ref++`.
#[inline(always)]
pub fn raise(refs: &AtomicU32) {
    // Ordering: relaxed would do for a clone, which is made by who holds one, and for a direct receipt, which the release of
    // `rcvd` publishes; SeqCst, as the fence in `still_names` is one only with it.
    refs.fetch_add(1, Ordering::SeqCst);
}

/// After [`raise`]: whether the slot is at the generation that the id names, and that one of a sent buffer. Then it stays so as
/// long as the reference is held. `generation` loads the table's word.
///
/// # Errors
/// [`StaleReference`]. Give the reference up, and either close the channel, so that its queue leaves, or [`skip`] the message.
#[inline(always)]
pub fn still_names(named: u32, generation: impl FnOnce() -> u32) -> Result<(), StaleReference> {
    // Ordering: partner of the fence in `ReaderSet::collect`: of our reference and its bump at least one is seen by the other
    // side.
    fence_after_rmw();
    let found = generation();
    if found == named && is_published(named) {
        Ok(())
    } else {
        Err(StaleReference { named, found })
    }
}

/// `rcvd++` or `sent++`, modulo 2^32. The word has one writer at a time, so no read-modify-write is needed.
///
/// Every send but the first, and every one of a buffer that the sender goes on holding: [`open`] (the writer), `count`,
/// publish ([`order::SEND_AGAIN`](crate::order::SEND_AGAIN)), and only then may the reference go.
// Crash: after `sent++`, before the publication: the queue's source is dead, so the queue leaves when its sink has
// drained it. After the publication: what was sent stays receivable, the forwarder's `ref` drops out of the reader set.
#[inline]
pub fn count(counter: &AtomicU32) {
    let value = counter.load(Ordering::Relaxed);
    // Ordering: release; partner is the collector's acquire of the same word. `rcvd`: who sees it sees the `ref++`.
    counter.store(value.wrapping_add(1), Ordering::Release);
}

/// `ref--`, and what is left. Of a buffer for which its writer may wait: [`release_and_tell`](crate::release_and_tell).
#[inline]
pub fn release(refs: &AtomicU32) -> u32 {
    // Ordering: release; partner is the collector's acquire of `ref`: who sees 0 sees all that was read and sent
    // under the reference, by whichever thread (read-modify-writes continue each other's release sequence).
    let before = refs.fetch_sub(1, Ordering::Release);
    debug_assert!(before > 0, "released a reference that was not held");
    before.wrapping_sub(1)
}

/// Receipt of one reference. Then move the ring's cursor. `hold` is [`raise`], or, without a check, [`Bias::raise`](crate::Bias::raise). `check` is [`still_names`], and what else depends on it, if the
/// sender is not the pool's writer. `reached` is told of each step.
///
/// # Errors
/// What `check` said. The reference is to be given up; `rcvd` is not counted.
// Crash: after `ref++` or after `rcvd++` the domain's words leave the reader set with it, and its queues, as sink, too.
#[inline(always)]
pub fn receive<E>(
    hold: impl FnOnce(),
    rcvd: &AtomicU32,
    check: Option<impl FnOnce() -> Result<(), E>>,
    mut reached: impl FnMut(ReceiptStep),
) -> Result<(), E> {
    use ReceiptStep::{Check, Count, Fence, Hold};
    const { assert!(matches!(RECEIPT_DIRECT, [Hold, Count])) };
    const { assert!(matches!(RECEIPT_FORWARDED, [Hold, Fence, Check, Count])) };
    hold();
    reached(Hold);
    if let Some(check) = check {
        check()?;
        reached(Check);
    }
    count(rcvd);
    reached(Count);
    Ok(())
}

/// `rcvd--` or `sent--`, modulo 2^32, by who [`count`]s in that word.
#[inline]
fn uncount(counter: &AtomicU32) {
    let value = counter.load(Ordering::Relaxed);
    // Ordering: release; partner is the collector's acquire of the same word. `sent`: who sees it sees the handle that was counted before. `rcvd`:
    // who sees the `ref--` after it sees this, as that is a release too.
    counter.store(value.wrapping_sub(1), Ordering::Release);
}

/// Passes a buffer back to the source of the queue, the pool's writer: from here on it is on its way, as if it had never been received. There must be
/// room: there is no way back. `release` lets go of the reference. `reached` is told of each step.
// Crash: wherever the sink dies its words leave the reader set with it, and the queue, of which the writer first takes what was passed
// back. If the writer dies nothing of the pool is reused.
#[inline]
pub fn pass_back(
    rcvd: &AtomicU32,
    publish: impl FnOnce(),
    release: impl FnOnce(),
    mut reached: impl FnMut(PassStep),
) {
    use PassStep::{Publish, Release, Uncount};
    const { assert!(matches!(PASS_BACK, [Uncount, Publish, Release])) };
    uncount(rcvd);
    reached(Uncount);
    publish();
    reached(Publish);
    release();
    reached(Release);
}

/// The writer takes what was passed back to it. `hold` counts a handle, under the collector's lock. Then move the ring's cursor.
///
/// # Errors
/// What `hold` said: then nothing was counted, nor is the buffer on its way any less.
// Crash: only the writer's own words, and of a dead writer's pool nothing is reused.
#[inline]
pub fn take_return<T, E>(
    sent: &AtomicU32,
    hold: impl FnOnce() -> Result<T, E>,
    mut reached: impl FnMut(ReturnStep),
) -> Result<T, E> {
    use ReturnStep::{Hold, Uncount};
    const { assert!(matches!(RETURN, [Hold, Uncount])) };
    let held = hold()?;
    reached(Hold);
    uncount(sent);
    reached(Uncount);
    Ok(held)
}

/// A message that the sink drops unread (the oldest of a full queue, or a stale one): counted, never held.
#[inline]
pub fn skip(rcvd: &AtomicU32) {
    count(rcvd);
}

/// The generation becomes even, if it is not, so that receivers who check it accept the id. Returns it. Several threads that
/// hold the buffer may do so at once.
#[inline(always)]
pub fn open(generation: &AtomicU32) -> u32 {
    let now = generation.load(Ordering::Relaxed);
    let even = published(now);
    if even != now {
        // Ordering: release, partners are a forwarded receipt's acquire (which the ring's release covers too) and that of
        // `is_named`.
        generation.store(even, Ordering::Release);
    }
    even
}

/// The same by the only one who knows the buffer: there is nothing to be asked.
#[inline(always)]
fn open_first(generation: &AtomicU32) -> u32 {
    let even = published_first(generation.load(Ordering::Relaxed));
    // Ordering: as in `open`.
    generation.store(even, Ordering::Release);
    even
}

/// What a first send does that is not the ledger's. A trait, not closures, so that it is compiled into the send.
pub trait FirstSend {
    /// Publishes; the id must carry the generation.
    fn publish(&mut self, generation: u32);
    /// Puts the slot where the collector finds it.
    fn queue(&mut self);
    /// Is told of each step: for who wants to stop in between.
    #[inline(always)]
    fn reached(&mut self, step: SendStep) {
        let _ = step;
    }
}

/// The writer's first send of a buffer, which gives its only handle away. `generation` is the word of its own table. There must be room: there
/// is no way back.
// Crash: everything up to the publication is the writer's alone, and of a dead writer's pool nothing is reused. After
// `sent++` the buffer looks as if it were on its way, until the queue has left, when its sink has drained it.
#[inline(always)]
pub fn send_first(
    handles: &Handles,
    generation: &AtomicU32,
    sent: &AtomicU32,
    mut first: impl FirstSend,
) {
    use SendStep::{Count, LetGo, Open, Publish, Queue};
    const { assert!(matches!(SEND_FIRST, [LetGo, Open, Count, Publish, Queue])) };
    handles.let_go_first();
    first.reached(LetGo);
    let even = open_first(generation);
    first.reached(Open);
    count(sent);
    first.reached(Count);
    first.publish(even);
    first.reached(Publish);
    first.queue();
    first.reached(Queue);
}

#[cfg(test)]
mod tests;
