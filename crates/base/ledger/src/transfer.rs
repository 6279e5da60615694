//! The words that senders and receivers touch, one by one, and the way back of a buffer.
//!
//! Each word here is written by the calling domain alone. Several of its threads may raise and release references at
//! once; `sent` and `rcvd` of a queue belong to the thread that has the sending or receiving end at that moment.

use tranship_sync::atomic::{AtomicU32, Ordering};

use crate::order::{PASS_BACK, PassStep, RETURN, ReturnStep};

/// `ref++`.
#[inline(always)]
pub fn raise(refs: &AtomicU32) {
    // Ordering: relaxed would do for a clone, which is made by a holder, and for a direct receipt, which the release of
    // `rcvd` publishes; SeqCst, as the fence in `still_names` is one only with it.
    refs.fetch_add(1, Ordering::SeqCst);
}

/// `rcvd++` or `sent++`, modulo 2^32. The word has one writer at a time, so no read-modify-write is needed.
///
/// A step of a send ([`send_first`](crate::send_first), [`send_again`](crate::send_again)), of a receipt ([`receive`](crate::receive)).
// Crash: after `sent++`, before the publication: the queue's source is dead, so the queue leaves when its sink has
// drained it. After the publication: what was sent stays receivable, the forwarder's `ref` drops out of the reader set.
#[inline]
pub(crate) fn count(counter: &AtomicU32) {
    let value = counter.load(Ordering::Relaxed);
    // Ordering: release; partner is the collector's acquire of the same word. `rcvd`: a collector that sees it sees the
    // `ref++`.
    counter.store(value.wrapping_add(1), Ordering::Release);
}

/// `ref--`, and what is left. Of a buffer for which its writer may wait: [`release_and_tell`](crate::release_and_tell).
#[inline]
pub fn release(refs: &AtomicU32) -> u32 {
    // Ordering: release; partner is the collector's acquire of `ref`: a collector that sees 0 sees everything that was
    // read and sent under the reference, by any thread (read-modify-writes continue each other's release sequence).
    let before = refs.fetch_sub(1, Ordering::Release);
    debug_assert!(before > 0, "released a reference that was not held");
    before.wrapping_sub(1)
}

/// Does `rcvd--` or `sent--`, modulo 2^32, for the thread that [`count`]s in that word.
#[inline]
fn uncount(counter: &AtomicU32) {
    let value = counter.load(Ordering::Relaxed);
    // Ordering: release; partner is the collector's acquire of the same word. `sent`: a collector that sees it sees the
    // handle that was counted before. `rcvd`: a collector that sees the `ref--` after it sees this, because that is a
    // release too.
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
/// The error of `hold`. Nothing was counted then, and the buffer is still on its way.
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

#[cfg(test)]
mod tests;
