//! The writer's end.

use super::memory::WriterMemory;
use super::words::{CONTENT, Message, SEQUENCES, WITHDRAWN, first_word, sequence};
use crate::line::Lines;
use tranship_sync::atomic::Ordering;

/// Returns what the writer's own line says that was published last in a place.
pub fn published(lines: Lines<'_>, position: u64) -> Message {
    // Ordering: relaxed; the writer's own words.
    let word = |at: usize| lines.at(position).words[at].load(Ordering::Relaxed);
    Message {
        kind: word(0) & !(SEQUENCES | WITHDRAWN),
        content: std::array::from_fn(|at| word(at + 1)),
    }
}

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
