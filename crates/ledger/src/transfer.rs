//! The order in which senders and receivers touch the counters.
//!
//! Each word here is written by the calling domain alone. Several of its threads may raise and release references
//! at once; `sent` and `rcvd` of a queue belong to whoever has the sending or receiving end at that moment.

use tranship_sync::atomic::{AtomicU32, Ordering, fence};

use crate::generation::published;
use crate::order::{
    RECEIPT_DIRECT, RECEIPT_FORWARDED, ReceiptStep, SEND_AGAIN, SEND_FIRST, SendStep,
};

/// The id names an earlier or a future use of its slot: whoever sent it did not hold it (or counted wrongly).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The reference is stale: its id has generation {named}, the slot is at {found}")]
pub struct StaleReference {
    /// The id's generation.
    pub named: u32,
    /// The table's.
    pub found: u32,
}

/// `ref++`.
#[inline]
pub fn raise(refs: &AtomicU32) {
    // Ordering: relaxed. A receipt publishes it with the release of `rcvd`; a clone is made by who holds one.
    refs.fetch_add(1, Ordering::Relaxed);
}

/// `rcvd++` or `sent++`, modulo 2^32. The word has one writer at a time, so no read-modify-write is needed.
#[inline]
pub fn count(counter: &AtomicU32) {
    let value = counter.load(Ordering::Relaxed);
    // Ordering: release; partner is the collector's acquire of the same word. `rcvd`: who sees it sees the `ref++`.
    counter.store(value.wrapping_add(1), Ordering::Release);
}

/// `ref--`, and what is left. At 0 look at the table's `relinquish` word, behind a sequentially consistent fence.
#[inline]
pub fn release(refs: &AtomicU32) -> u32 {
    // Ordering: release; partner is the collector's acquire of `ref`: who sees 0 sees all that was read and sent
    // under the reference, by whichever thread (read-modify-writes continue each other's release sequence).
    let before = refs.fetch_sub(1, Ordering::Release);
    debug_assert!(before > 0, "released a reference that was not held");
    before.wrapping_sub(1)
}

/// Receipt of a reference from the pool's writer. Then move the ring's cursor.
// Crash: after `ref++` or after `rcvd++` the domain's words leave the roster with it, and its queues, as sink, too.
#[inline]
pub fn receive_direct(refs: &AtomicU32, rcvd: &AtomicU32) {
    let checked = receive(&RECEIPT_DIRECT, refs, rcvd, 0, || 0);
    debug_assert!(checked.is_ok());
}

/// Receipt of a reference from anyone but the pool's writer. `generation` loads the table's word.
///
/// # Errors
/// [`StaleReference`]: the reference is given up again, `rcvd` is not counted. Either close the channel, so that
/// its queue leaves, or [`skip`] the message.
// Crash: as `receive_direct`.
#[inline]
pub fn receive_forwarded(
    refs: &AtomicU32,
    rcvd: &AtomicU32,
    named: u32,
    generation: impl FnMut() -> u32,
) -> Result<(), StaleReference> {
    receive(&RECEIPT_FORWARDED, refs, rcvd, named, generation)
}

#[inline]
fn receive(
    steps: &[ReceiptStep],
    refs: &AtomicU32,
    rcvd: &AtomicU32,
    named: u32,
    mut generation: impl FnMut() -> u32,
) -> Result<(), StaleReference> {
    for step in steps {
        match step {
            ReceiptStep::Hold => raise(refs),
            // Ordering: partner of the fence in `Roster::collect`.
            ReceiptStep::Fence => fence(Ordering::SeqCst),
            ReceiptStep::Check => {
                let found = generation();
                if found != named {
                    release(refs);
                    return Err(StaleReference { named, found });
                }
            }
            ReceiptStep::Count => count(rcvd),
        }
    }
    Ok(())
}

/// A message that the sink drops unread (the oldest of a full queue, or a stale one): counted, never held.
#[inline]
pub fn skip(rcvd: &AtomicU32) {
    count(rcvd);
}

/// The writer's first send of a buffer. `generation` is the word of its own table; returns what the id must carry.
/// Call [`publish`](SendStep::Publish) through the closure: it gets that generation.
///
/// # Errors
/// What `publish` returned. `sent` is then taken back: nothing was published.
// Crash: after the even generation the buffer can be named but nobody was told; after `sent++` it looks as if it
// were on its way. Only the writer's death leaves either, and of a dead writer's pool nothing is reused; the queue
// leaves when its sink has drained it.
#[inline]
pub fn send_first<E>(
    generation: &AtomicU32,
    sent: &AtomicU32,
    publish: impl FnMut(u32) -> Result<(), E>,
) -> Result<(), E> {
    send(&SEND_FIRST, Some(generation), sent, publish)
}

/// Every later send by the writer, and every forwarder's. The caller holds a reference until this returns.
///
/// # Errors
/// What `publish` returned. `sent` is then taken back.
// Crash: after `sent++`, before the publication: the queue's source is dead, so the queue leaves when its sink has
// drained it. After the publication: what was sent stays receivable, the forwarder's `ref` drops out of the roster.
#[inline]
pub fn send_again<E>(
    sent: &AtomicU32,
    mut publish: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    send(&SEND_AGAIN, None, sent, |_| publish())
}

#[inline]
fn send<E>(
    steps: &[SendStep],
    generation: Option<&AtomicU32>,
    sent: &AtomicU32,
    mut publish: impl FnMut(u32) -> Result<(), E>,
) -> Result<(), E> {
    let mut even = 0;
    for step in steps {
        match step {
            SendStep::Open => {
                if let Some(word) = generation {
                    even = published(word.load(Ordering::Relaxed));
                    // Ordering: release, partner is a forwarded receipt's acquire; the ring's release covers it too.
                    word.store(even, Ordering::Release);
                }
            }
            SendStep::Count => count(sent),
            SendStep::Publish => {
                if let Err(refused) = publish(even) {
                    // The caller still holds its reference, so the word may go back.
                    let value = sent.load(Ordering::Relaxed);
                    sent.store(value.wrapping_sub(1), Ordering::Release);
                    return Err(refused);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
