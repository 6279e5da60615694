//! When a writer begins a round.

use tranship_ledger::rounds::Rounds;

/// The most buffers of ended lines that wait for a round, in addition to one buffer for each line of the ring.
const MOST: usize = 64;
/// The most bytes of these buffers together. So rounds look for large buffers sooner.
const MOST_BYTES: usize = 8 << 20;
/// The fewest such buffers for which a round begins.
const LEAST: usize = 8;
/// Steps of a round that [`Rounds`] counts in before a round is due.
const LEAD: usize = 12;

/// The number of buffers of ended lines that may wait for a round. It depends on the length of the last buffer.
#[derive(Clone, Copy)]
pub struct Spare {
    bytes: usize,
    buffers: usize,
}

impl Spare {
    /// Begins with the fewest.
    pub fn new() -> Spare {
        let (bytes, buffers) = (0, LEAST);
        Spare { bytes, buffers }
    }

    /// Notes the length of a buffer that is sent.
    #[inline(always)]
    pub fn sent(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.bytes = bytes;
            self.buffers = (MOST_BYTES / bytes.max(1)).clamp(LEAST, MOST);
        }
    }

    /// Returns how many more lines may end before a round is due. Buffers that earlier rounds found held do not count:
    /// readers that stand still would have a round begin every few messages.
    #[inline(always)]
    pub fn left(&self, rounds: &Rounds) -> usize {
        (self.buffers + LEAD).saturating_sub(rounds.ended())
    }
}

impl Default for Spare {
    fn default() -> Self {
        Spare::new()
    }
}
