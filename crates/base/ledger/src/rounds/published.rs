//! Which buffers the lines of a ring name.

use super::round::Rounds;
use std::collections::VecDeque;
use tranship_ring::broadcast::{Message, Writer, WriterMemory};

/// In place of a slot: the line names none.
const NOTHING: u32 = u32::MAX;
/// In place of a slot: the line names several.
const SEVERAL: u32 = u32::MAX - 1;

/// The lines of one ring, as their writer knows them: which have not ended, and which buffers they name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    writer: Writer,
    /// The oldest line that has not ended.
    first: u64,
    /// The slot that each line names, or [`NOTHING`] or [`SEVERAL`].
    names: Box<[u32]>,
    /// The slots of the lines that name several, in the order of positions.
    several: VecDeque<Box<[u32]>>,
    /// The ring's number in the pool's rounds.
    ring: usize,
}

impl Published {
    /// Makes the writer of a power of two of lines, which begins at a position: 0 for fresh lines.
    pub fn new(lines: u32, position: u64, ring: usize) -> Published {
        Published {
            writer: Writer::new(position),
            first: position,
            names: vec![NOTHING; lines.next_power_of_two() as usize].into(),
            several: VecDeque::new(),
            ring,
        }
    }

    /// Returns the position that is published next.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.writer.tail()
    }

    /// Returns the oldest position whose line has not ended.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first
    }

    #[allow(clippy::cast_possible_truncation, reason = "below the number of lines")]
    #[inline(always)]
    fn index(&self, position: u64) -> usize {
        (position & (self.names.len() as u64 - 1)) as usize
    }

    /// Publishes a line that names a buffer, over the oldest one where the ring is full. The caller has seen to it that
    /// no reliable reader has that one still to take ([`Reliable::room`](super::Reliable::room)).
    #[inline(always)]
    pub fn publish<M: WriterMemory>(
        &mut self,
        memory: &M,
        rounds: &mut Rounds,
        message: Message,
        slot: u32,
    ) -> Result<u64, M::Stop> {
        rounds.name(slot);
        self.put(memory, rounds, message, slot)
    }

    /// Publishes a line that names several buffers, or none.
    pub fn publish_many<M: WriterMemory>(
        &mut self,
        memory: &M,
        rounds: &mut Rounds,
        message: Message,
        slots: &[u32],
    ) -> Result<u64, M::Stop> {
        for &slot in slots {
            rounds.name(slot);
        }
        let name = match slots {
            [] => NOTHING,
            [slot] => *slot,
            _ => {
                self.several.push_back(slots.into());
                SEVERAL
            }
        };
        self.put(memory, rounds, message, name)
    }

    #[inline(always)]
    fn put<M: WriterMemory>(
        &mut self,
        memory: &M,
        rounds: &mut Rounds,
        message: Message,
        name: u32,
    ) -> Result<u64, M::Stop> {
        let position = self.writer.publish(memory, message)?;
        let lines = self.names.len() as u64;
        if position.wrapping_sub(self.first) >= lines {
            // It is overwritten.
            self.end_first(rounds);
        }
        let index = self.index(position);
        self.names[index] = name;
        Ok(position)
    }

    /// Hands the buffers of the oldest line to the rounds. The line has ended.
    #[inline(always)]
    fn end_first(&mut self, rounds: &mut Rounds) {
        let (ring, position) = (self.ring, self.first);
        self.first = position.wrapping_add(1);
        let index = self.index(position);
        match std::mem::replace(&mut self.names[index], NOTHING) {
            NOTHING => {}
            SEVERAL => {
                for &slot in &self.several.pop_front().unwrap_or_default() {
                    rounds.retire(ring, position, slot);
                }
            }
            slot => rounds.retire(ring, position, slot),
        }
    }

    /// Withdraws the oldest line, for a writer that finds nothing free. `floor` is the first line that a reliable reader
    /// has still to take. False if there is no line before it.
    pub fn withdraw<M: WriterMemory>(
        &mut self,
        memory: &M,
        rounds: &mut Rounds,
        floor: u64,
    ) -> Result<bool, M::Stop> {
        if self.first == self.tail() || self.first.wrapping_sub(floor).cast_signed() >= 0 {
            return Ok(false);
        }
        self.writer.withdraw(memory, self.first)?;
        self.end_first(rounds);
        Ok(true)
    }

    /// Ends the lines that the ring's only reader has passed: its window begins at `low`.
    pub fn end_passed(&mut self, rounds: &mut Rounds, low: u64) {
        let low = tranship_ring::broadcast::at(self.first, low);
        // A window that begins elsewhere is a liar's.
        let passed = low.wrapping_sub(self.first);
        if passed > self.tail().wrapping_sub(self.first) {
            return;
        }
        for _ in 0..passed {
            self.end_first(rounds);
        }
    }
}
