//! The order in which a sender touches the counters: one function for each way of sending, of one body.

use tranship_sync::atomic::{AtomicU32, Ordering};

use crate::generation::{published, published_first};
use crate::handles::Handles;
use crate::order::{SEND_AGAIN, SEND_FIRST, SEND_KEPT, SendStep};
use crate::transfer::count;

/// Makes the generation even, if it is not, so that receivers that check it accept the id. Returns it. Several threads
/// that hold the buffer may do so at once.
#[inline(always)]
pub(crate) fn open(generation: &AtomicU32) -> u32 {
    let now = generation.load(Ordering::Relaxed);
    let even = published(now);
    if even != now {
        // Ordering: release, partners are a forwarded receipt's acquire (which the ring's release covers too) and that of
        // `is_named`.
        generation.store(even, Ordering::Release);
    }
    even
}

/// Makes the generation even for the only thread that knows the buffer, without a check.
#[inline(always)]
fn open_first(generation: &AtomicU32) -> u32 {
    let even = published_first(generation.load(Ordering::Relaxed));
    // Ordering: as in `open`.
    generation.store(even, Ordering::Release);
    even
}

/// Steps of a first send outside of the ledger. A trait, not closures, so that it is compiled into the send.
pub trait FirstSend {
    /// Publishes; the id must carry the generation.
    fn publish(&mut self, generation: u32);
    /// Puts the slot where the collector finds it.
    fn queue(&mut self);
    /// Reports each step, for a caller that wants to stop in between.
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
    let even = announce(|| open_first(generation), sent, |step| first.reached(step));
    first.publish(even);
    first.reached(Publish);
    first.queue();
    first.reached(Queue);
}

/// The words of a buffer that is sent and of which its sender holds a reference until the message is out.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// The buffer's generation in the sender's own table. None for another domain's pool: its writer has made the
    /// generation even.
    pub generation: Option<&'a AtomicU32>,
    /// The queue's counter.
    pub sent: &'a AtomicU32,
}

impl Sent<'_> {
    #[inline(always)]
    fn announce(self, reached: impl FnMut(SendStep)) {
        match self.generation {
            Some(generation) => _ = announce(|| open(generation), self.sent, reached),
            None => count_sent(self.sent, reached),
        }
    }
}

/// Stores the words that other domains must see before the id. Every send does so.
#[inline(always)]
fn announce(
    open: impl FnOnce() -> u32,
    sent: &AtomicU32,
    mut reached: impl FnMut(SendStep),
) -> u32 {
    let even = open();
    reached(SendStep::Open);
    count_sent(sent, reached);
    even
}

#[inline(always)]
fn count_sent(sent: &AtomicU32, mut reached: impl FnMut(SendStep)) {
    count(sent);
    reached(SendStep::Count);
}

/// Every other send: by the writer of a buffer of which there are more handles or that was sent before, and by a forwarder. `publish` puts the id on
/// the ring; there must be room. `release` comes last: it wakes the receiver and lets go of the reference, if that goes along. `reached` is told of each
/// step.
// Crash: counted but not published: `sent` stays ahead until the queue leaves the reader set with the sender's death, when the sink has taken the
// last message. A generation that was made even for nothing only sends the buffer through the collector.
#[inline(always)]
pub fn send_again(
    words: Sent<'_>,
    publish: impl FnOnce(),
    release: impl FnOnce(),
    mut reached: impl FnMut(SendStep),
) {
    use SendStep::{Count, Open, Publish};
    const { assert!(matches!(SEND_KEPT, [Open, Count, Publish])) };
    const { assert!(matches!(SEND_AGAIN, [Count, Publish])) };
    words.announce(&mut reached);
    publish();
    reached(Publish);
    release();
}

/// An aggregate, as one message of `sender`'s: each piece, of which `words` says the words, is counted as it is by [`send_again`], and then the list,
/// which `send_list` sends ([`send_first`] or [`send_again`]). `release` comes last: it lets go of the pieces' references.
// Crash: as in `send_again`.
pub fn send_all<S, P>(
    sender: &mut S,
    pieces: impl IntoIterator<Item = P>,
    words: impl Fn(&S, P) -> Option<Sent<'_>>,
    send_list: impl FnOnce(&mut S),
    release: impl FnOnce(&mut S),
    mut reached: impl FnMut(SendStep),
) {
    for piece in pieces {
        if let Some(piece) = words(sender, piece) {
            piece.announce(&mut reached);
        }
    }
    send_list(sender);
    release(sender);
}

#[cfg(test)]
mod tests;
