//! A guess at the place of the next message's buffer.

/// Slots of a block: a sender collects them together, and so sends them together again.
const BLOCK: u32 = 8;
/// Blocks that the guess can tell apart.
const BLOCKS: usize = 512;

/// The guess is that the next buffer is as far from the last one as that was from the one before: the collector hands
/// slots out in their old order.
pub(super) struct Guess {
    pub(super) last: usize,
    pub(super) step: usize,
    /// The block of the last message.
    block: u32,
    /// For each block the one that came after it the last time.
    after: Box<[u32; BLOCKS]>,
}

impl Default for Guess {
    fn default() -> Guess {
        Guess {
            last: 0,
            step: 0,
            block: 0,
            after: Box::new([0; BLOCKS]),
        }
    }
}

impl Guess {
    /// Whether there was a message to guess from.
    #[inline(always)]
    pub(super) fn is_any(&self) -> bool {
        self.last != 0
    }
    #[inline(always)]
    pub(super) fn next(&self) -> *const u8 {
        std::ptr::without_provenance(self.last.wrapping_add(self.step))
    }
    #[inline(always)]
    pub(super) fn saw(&mut self, ptr: *const u8) {
        self.step = ptr.addr().wrapping_sub(self.last);
        self.last = ptr.addr();
    }
    /// Returns the first slot of the block that came after this slot's block the last time; only once, at the begin of
    /// a block.
    #[inline(always)]
    pub(super) fn next_block(&mut self, slot: u32) -> Option<u32> {
        let block = slot / BLOCK;
        (block != self.block).then(|| {
            self.after[self.block as usize % BLOCKS] = block;
            self.block = block;
            self.after[block as usize % BLOCKS].wrapping_mul(BLOCK)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_followed_by_the_one_that_followed_it_the_last_time() {
        let mut guess = Guess::default();
        let order = [40, 8, 4096, 16];
        let mut round = || {
            let mut seen = Vec::new();
            for first in order {
                let blocks = (first..first + BLOCK).map(|slot| guess.next_block(slot));
                let blocks: Vec<_> = blocks.collect();
                assert!(blocks[1..].iter().all(Option::is_none), "once a block");
                seen.extend(blocks[0]);
            }
            seen
        };
        round();
        assert_eq!(round()[..3], [8, 4096, 16]);
        assert_eq!(round(), [8, 4096, 16, 40]);
    }
}
