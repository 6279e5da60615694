//! Collection after a send: the buffers that are looked at, and when. Dead buffers are at hand for the next allocation.

use super::{Out, Sender, pace};
use crate::link::shared::Assigned;
use crate::pool::{FEW, OwnPool};
use tranship_sys::time;

/// The most messages between two looks at the receiver's cursor.
const TAKEN_LOOK: u32 = 32;

/// Size of a buffer from which on reuse should find it in the processor's caches: two dozen such buffers fill a cache
/// of the second level.
const LARGE: u64 = 64 << 10;

/// The smallest buffer.
const LEAST: u64 = 64;

/// Returns the messages between two looks at the receiver's cursor: a pool with room for few buffers of this length
/// must not run out of them meanwhile.
#[inline]
fn taken_look(length: u64, pool: &OwnPool) -> u32 {
    let has_more_than = |count: u32| {
        let bytes = u64::from(count).saturating_mul(length.max(LEAST));
        count < pool.slot_count() && bytes < pool.max_bytes()
    };
    match (has_more_than(256), has_more_than(128)) {
        (true, _) => TAKEN_LOOK,
        (false, true) => TAKEN_LOOK / 2,
        (false, false) => FEW,
    }
}

// The bits below are a mask.
const _: () = assert!(FEW.is_power_of_two());

impl Sender {
    /// Looks at sent buffers: now and then, or after each large buffer that is sent at leisure.
    #[inline(never)]
    pub(super) fn look_at_sent(&mut self, at: usize, number: u32, length: u64) {
        if number.is_multiple_of(FEW) {
            if number.is_multiple_of(pace::MANY) && (length >= LARGE || self.pace.is_large()) {
                self.take_pace(length);
            }
            self.collect_few(at, number, length);
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

    /// Collects buffers that the receiver has just let go of: their bytes are in the caches.
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

    /// Looks at the oldest sent buffers, so that a buffer is at hand for the next allocation. The length of the defer
    /// queue says when: so buffers that come back together are sent, and looked at, together again.
    ///
    /// The gate is the receiver's cursor (`is_due`): nearly all buffers that are looked at are dead.
    fn collect_few(&mut self, at: usize, number: u32, length: u64) {
        if let Some(Out {
            defer: Some(defer),
            assignment,
            ..
        }) = self.outs.get_mut(at)
            && let Assigned::Own(pool) = &assignment.side
        {
            // The receiver's line, which it writes all the time: looked at rarely.
            let taken_look = taken_look(length, pool);
            if number.is_multiple_of(taken_look) {
                #[allow(clippy::cast_possible_truncation)] // compared with others nearby
                (self.taken = self.link.ring.their_head() as u32);
            }
            if defer.is_due(FEW, self.taken) {
                pool.collect_few(defer);
                // The receiver has been behind: buffers that wait longer than others only make the circulation longer.
                if defer.is_due(FEW + taken_look, self.taken) {
                    pool.collect_more(defer, taken_look == FEW);
                }
            }
        }
    }
}
