//! The buffers that a writer keeps for its readers, and when it begins a round.

use crate::Seats;
use tranship_core::topics;
use tranship_core::{Buffer, Pool};
use tranship_ledger::rounds::Rounds;

/// The most buffers of ended lines that wait for a round, in addition to one buffer for each line of the ring.
const MOST: usize = 64;
/// The most bytes of these buffers together. So rounds look for large buffers sooner.
const MOST_BYTES: usize = 8 << 20;
/// The fewest such buffers for which a round begins.
const LEAST: usize = 8;
/// Steps of a round that [`Rounds`] counts in before a round is due.
const LEAD: usize = 12;

/// The handles of the buffers that a line names or that a reader may hold.
pub struct Kept {
    /// By slots.
    buffers: Vec<Option<Buffer>>,
    count: usize,
    /// The length of the last buffer.
    bytes: usize,
    /// The number of buffers of ended lines that may wait for a round. It depends on that length.
    spare: usize,
}

impl Kept {
    /// Keeps none yet, of a pool of `slots` slots.
    pub fn new(slots: u32) -> Kept {
        Kept {
            buffers: (0..slots).map(|_| None).collect(),
            count: 0,
            bytes: 0,
            spare: LEAST,
        }
    }

    /// Returns how many buffers are kept.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the handle of a slot.
    pub fn get(&self, slot: u32) -> Option<&Buffer> {
        self.buffers.get(slot as usize)?.as_ref()
    }

    /// Keeps a handle of a buffer that a line names. A second handle of the same buffer is dropped.
    #[inline(always)]
    pub fn keep(&mut self, slot: u32, buffer: Buffer) {
        let bytes = buffer.len();
        if bytes != self.bytes {
            self.bytes = bytes;
            self.spare = (MOST_BYTES / bytes.max(1)).clamp(LEAST, MOST);
        }
        let place = &mut self.buffers[slot as usize];
        self.count += usize::from(place.replace(buffer).is_none());
    }

    /// Lets a buffer go that no line names and no reader holds.
    #[inline]
    pub fn free(&mut self, pool: &Pool, slot: u32) {
        if let Some(buffer) = self.buffers.get_mut(slot as usize).and_then(Option::take) {
            self.count -= 1;
            topics::let_go(pool, buffer);
        }
    }

    /// Returns how many more lines may end before a round is due. Buffers that earlier rounds found held do not count:
    /// readers that stand still would have a round begin every few messages.
    #[inline(always)]
    pub fn left(&self, rounds: &Rounds) -> usize {
        (self.spare + LEAD).saturating_sub(rounds.ended())
    }

    /// Ends the readers' connections, and leaves the buffers to the readers.
    pub fn end<T>(&mut self, seats: &mut Seats<T>, pool: &Pool) {
        seats.end(&self.buffers);
        for buffer in std::mem::take(&mut self.buffers).into_iter().flatten() {
            topics::leave_behind(pool, buffer);
        }
    }

    /// Forgets the buffers, in a forked child: they are the parent's.
    pub fn forget(&mut self) {
        let buffers = std::mem::take(&mut self.buffers);
        buffers.into_iter().for_each(std::mem::forget);
    }
}
