//! After a send: which of the buffers that were sent are looked at, and when. What is dead is at hand when the next one is asked for.

use super::{Out, Sender};
use crate::link::shared::Assigned;
use crate::pool::{FEW, OwnPool};
use tranship_sys::time;

/// Messages between two looks at how many the receiver has taken.
const TAKEN_LOOK: u32 = 32;

/// Bytes of a buffer from which on it matters that the next one is still in the processor's caches: two dozen in turn fill a cache of the second level.
const LARGE: u64 = 64 << 10;

/// The smallest buffer.
const LEAST: u64 = 64;

/// Whether so many messages with buffers like this one are less than half of what the pool can have: of its bytes, and of its slots, of which there are mostly more than
/// buffers find room. (The number is a peer's, and may be anything.)
#[inline]
fn is_little(messages: u32, length: u64, pool: &OwnPool) -> bool {
    let bytes = u64::from(messages).saturating_mul(length.max(LEAST));
    messages < pool.slot_count() / 2 && bytes < pool.max_bytes / 2
}

// The bits below are a mask.
const _: () = assert!(FEW.is_power_of_two());

impl Sender {
    /// Now and then, or after each of large buffers that are sent at leisure.
    #[inline(never)]
    pub(super) fn look_at_sent(&mut self, at: usize, message: u32, number: u32, length: u64) {
        if number.is_multiple_of(FEW) {
            if length >= LARGE || self.pace.is_large() {
                self.take_pace(length);
            }
            self.collect_few(at, message, number, length);
        }
        if self.look_mask == 0 {
            self.collect_warm(at);
        }
    }

    #[inline(never)]
    fn take_pace(&mut self, length: u64) {
        let now = match length < LARGE {
            true => 0,
            false => time::monotonic_ns(),
        };
        self.look_mask = match self.pace.is_slow(now) {
            true => 0,
            false => FEW - 1,
        };
    }

    /// What the receiver has just let go of is used next: its bytes are in the caches.
    #[inline(never)]
    fn collect_warm(&mut self, at: usize) {
        if let Some(Out {
            defer: Some(defer),
            assignment,
            ..
        }) = self.outs.get(at)
            && let Assigned::Own(pool) = &assignment.side
        {
            pool.collect_warm(defer);
        }
    }

    /// Looks at the oldest of what was sent, so that a buffer is at hand when the next is asked for. When it is time is counted by what is on
    /// the defer queue: so those that are handed back together are sent, and looked at, together again.
    ///
    /// The gate is the receiver's cursor (`is_due`): of what is looked at nearly all is dead.
    fn collect_few(&mut self, at: usize, message: u32, number: u32, length: u64) {
        // The receiver's line, which it writes all the time: looked at rarely.
        if number.is_multiple_of(TAKEN_LOOK) {
            #[allow(clippy::cast_possible_truncation)] // compared with others nearby
            (self.taken = self.link.ring.their_head() as u32);
        }
        let taken = self.taken;
        if let Some(Out {
            defer: Some(defer),
            assignment,
            ..
        }) = self.outs.get_mut(at)
            && let Assigned::Own(pool) = &assignment.side
            // Else most buffers are under way, and who is short looks at many of them at once, which is cheaper.
            && is_little(message.wrapping_sub(taken), length, pool)
            && defer.is_due(FEW, taken)
        {
            pool.collect_few(defer);
        }
    }
}
