//! Protected pageblocks and their pages, for the code that registers them with the kernel.

use super::block::State;
use super::inner::Inner;
use std::io;
use std::ptr::NonNull;

/// Protected pageblocks: runs of neighbours, by the first one's number, with their epochs.
#[derive(Debug, Default)]
pub(crate) struct Protected {
    pub(crate) stretches: Vec<(u32, Vec<u32>)>,
    pub(crate) blocks: u32,
}

impl Inner {
    /// Returns up to `most` of the pageblocks that are protected now.
    pub(crate) fn protected(&self, most: u32) -> Protected {
        let mut found = Protected::default();
        for block in 0..self.frontier() {
            // The epoch first: if the state is of an earlier one, the epoch has changed by the time of a send.
            let epoch = self.epochs.of(block as usize);
            if epoch % 2 == 1 || self.states.get(block) != State::Frozen {
                continue;
            }
            if found.blocks == most {
                break;
            }
            found.blocks += 1;
            match found.stretches.last_mut() {
                Some((first, epochs)) if *first as usize + epochs.len() == block as usize => {
                    epochs.push(epoch);
                }
                _ => found.stretches.push((block, vec![epoch])),
            }
        }
        found
    }

    /// Maps the file's pages of some pageblocks to somewhere else, for the kernel's eyes.
    ///
    /// # Safety
    /// There is private memory of the caller's, as long, that nobody uses.
    pub(crate) unsafe fn show(&self, first: u32, blocks: usize, at: NonNull<u8>) -> io::Result<()> {
        let (offset, _) = self.span(first, 1);
        // SAFETY: passed on.
        unsafe { self.view.show(offset, blocks * self.block_bytes, at) }
    }
}
