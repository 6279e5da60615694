//! After a send: which of the buffers that were sent are looked at, and when. What is dead is at hand when the next one is asked for.

use super::{Out, Sender};
use crate::link::shared::Assigned;
use crate::pool::{FEW, OwnPool};
use tranship_sys::time;

/// Messages between two looks at how many the receiver has taken.
const TAKEN_LOOK: u32 = 32;

/// Bytes of a buffer from which on it matters that the next one is still in the processor's caches: two dozen in turn fill a cache of the second level.
const LARGE: u64 = 64 << 10;
/// Nanoseconds for each large buffer, from which on a look at a receiver's counters is cheap beside the bytes.
const LEISURE_NS: u64 = 4096;

/// So many times eight buffers in a row have to be slow: less may have been a pause, or memory that nobody had used.
const SLOW: u32 = 4;

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

/// How fast large buffers are sent.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last eight had been sent, nanoseconds; 0 if the last were not large.
    at: u64,
    /// So many times eight in a row took long.
    slow: u32,
}

impl Pace {
    #[inline]
    fn is_large(&self) -> bool {
        self.at > 0
    }

    /// Eight were sent; `now` is 0 if they were small. Whether that took so long, and the ones before too, that looking at each costs nothing beside.
    fn is_slow(&mut self, now: u64) -> bool {
        let before = std::mem::replace(&mut self.at, now);
        let is_slow = before > 0 && now.saturating_sub(before) > u64::from(FEW) * LEISURE_NS;
        self.slow = match is_slow {
            true => self.slow.saturating_add(1),
            false => 0,
        };
        self.slow >= SLOW
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_slow_when_many_were_in_a_row() {
        let long = u64::from(FEW) * LEISURE_NS + 1;
        let mut pace = Pace::default();
        let mut now = 1000;
        let mut after = |pace: &mut Pace, ns: u64| {
            now += ns;
            pace.is_slow(now)
        };
        assert!(!after(&mut pace, long), "nothing was sent before");
        for _ in 0..3 {
            assert!(!after(&mut pace, long), "it may be a pause");
        }
        assert!(after(&mut pace, long) && after(&mut pace, long));
        // One that was fast, and it counts anew.
        assert!(!after(&mut pace, long - 1));
        for _ in 0..3 {
            assert!(!after(&mut pace, long));
        }
        assert!(after(&mut pace, long));
        // Small ones.
        assert!(pace.is_large() && !pace.is_slow(0) && !pace.is_large());
        assert!(!pace.is_slow(1 << 40), "no large ones before");
    }
}
