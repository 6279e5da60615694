//! The writer's end.

use super::memory::WriterMemory;
use super::words::{CONTENT, Message, WITHDRAWN, first_word, sequence};

/// The writer's private cursor: which position is published next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Writer {
    tail: u64,
}

impl Writer {
    /// Makes a writer that begins at a position: 0 for fresh lines.
    pub const fn new(tail: u64) -> Writer {
        Writer { tail }
    }

    /// Returns the position that is published next.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Publishes a line, over the one that lies in its place. Returns its position.
    // Crash: a line whose word 7 is newer than its word 0 is torn: a reader counts the earlier one as missed. The
    // writer's death ends the ring.
    #[inline(always)]
    pub fn publish<M: WriterMemory>(
        &mut self,
        memory: &M,
        message: Message,
    ) -> Result<u64, M::Stop> {
        let position = self.tail;
        // A reader that sees anything of the new content sees that word 7 is no longer its own.
        memory.set_last(position, sequence(position))?;
        memory.fence_release()?;
        for i in 0..CONTENT {
            memory.set_word(position, i + 1, message.content[i])?;
        }
        memory.set_first(position, first_word(position, message.kind))?;
        self.tail = position.wrapping_add(1);
        memory.prefetch(self.tail);
        Ok(position)
    }

    /// Withdraws a line that was published and not overwritten since. A reader counts it as missed.
    pub fn withdraw<M: WriterMemory>(&self, memory: &M, position: u64) -> Result<(), M::Stop> {
        memory.set_first(position, sequence(position) | WITHDRAWN)
    }
}
