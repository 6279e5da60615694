//! The reader's end.

use super::memory::ReaderMemory;
use super::words::{
    CONTENT, KEPT, Message, SEQUENCES, UNBEGUN, WINDOW, WITHDRAWN, Win, ahead, sequence,
};

/// Limits of a reader's claims and holds. Production uses [`Limits::new`]; models are smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Lines of a window, at most [`WINDOW`].
    pub window: u8,
    /// Entries of `kept` that are used, at most [`KEPT`].
    pub entries: u8,
    /// Holds that the table may have at a time, beside those in `kept` and in the window.
    pub table: u32,
    /// The most buffers that a message names.
    pub pieces: u32,
}

impl Limits {
    /// Returns the limits of a reader of messages of one buffer each that may have `table` holds in its table.
    pub const fn new(table: u32) -> Limits {
        Limits {
            window: WINDOW,
            entries: KEPT,
            table,
            pieces: 1,
        }
    }

    /// Returns how many buffers a writer finds at most in the table of a reader that keeps to the limits. The writer
    /// reads the table word by word: meanwhile the reader may let go of what was found, and hold there what its window
    /// covered.
    pub fn most_found(self) -> u32 {
        let window = u32::from(self.window).saturating_mul(self.pieces);
        self.table.saturating_add(window)
    }
}

/// Result of a look at the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// No line is there.
    Nothing,
    /// This many lines were missed. The caller looks again.
    Missed(u64),
    /// A message. The window covers it until [`Reader::finish`].
    Message(Message),
    /// The window is full of messages that are not finished, or a line was missed while some are not: finish them.
    Unfinished,
}

/// Where a reader says that it holds a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// In this entry of `kept`.
    Entry(u8),
    /// In the table, at this slot.
    Table(u32),
}

/// The reader holds as many buffers as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader holds {held} buffers in its table, and may hold {limit} there")]
pub struct Limited {
    /// Holds in the table.
    pub held: u32,
    /// The agreed limit.
    pub limit: u32,
}

/// The reader's private cursor. One thread at a time has it; [`let_go`] needs none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    /// The line that is read next.
    cursor: u64,
    /// The window: from the first line that is not finished
    low: u64,
    /// to the first that is not claimed.
    high: u64,
    /// Entries of `kept` that the window names.
    entries: u8,
    /// Whether `more` is set.
    more: bool,
    limits: Limits,
}

impl Reader {
    /// Makes a reader that reads from a position on. Its desk is all zeros, and the writer already looks at it.
    pub const fn new(cursor: u64, limits: Limits) -> Reader {
        Reader {
            cursor,
            low: cursor,
            high: cursor,
            entries: 0,
            more: false,
            limits,
        }
    }

    /// Returns the position that is read next.
    #[inline]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns how many messages were taken and are not finished.
    #[inline]
    pub fn unfinished(&self) -> u64 {
        self.cursor.wrapping_sub(self.low)
    }

    /// Looks at the next line, and takes it if it is there. Claims first, if nothing is claimed.
    #[inline(always)]
    pub fn receive<M: ReaderMemory>(&mut self, memory: &M) -> Result<Received, M::Stop> {
        if self.cursor == self.high && !self.claim(memory)? {
            return Ok(Received::Unfinished);
        }
        let position = self.cursor;
        let first = memory.first(position)?;
        if first & (SEQUENCES | WITHDRAWN) != sequence(position) {
            return self.other_line(memory, first);
        }
        let mut content = [0; CONTENT];
        for (i, word) in content.iter_mut().enumerate() {
            *word = memory.word(position, i + 1)?;
        }
        memory.fence_acquire()?;
        if memory.last(position)? != sequence(position) {
            return self.miss(memory, position.wrapping_add(1));
        }
        self.cursor = position.wrapping_add(1);
        Ok(Received::Message(Message {
            kind: first & !SEQUENCES,
            content,
        }))
    }

    /// Finds out why the line is not the next one.
    #[cold]
    fn other_line<M: ReaderMemory>(&mut self, memory: &M, first: u64) -> Result<Received, M::Stop> {
        match ahead(sequence(self.cursor), first & SEQUENCES) {
            // Withdrawn.
            0 => self.miss(memory, self.cursor.wrapping_add(1)),
            // Overwritten: goes on with the line that is there.
            more @ 1.. => self.miss(memory, self.cursor.wrapping_add_signed(more)),
            _ => Ok(Received::Nothing),
        }
    }

    /// Goes on at a later position.
    #[cold]
    fn miss<M: ReaderMemory>(&mut self, memory: &M, to: u64) -> Result<Received, M::Stop> {
        if self.cursor != self.low {
            return Ok(Received::Unfinished);
        }
        let by = to.wrapping_sub(self.cursor);
        let claimed = self.high.wrapping_sub(self.cursor);
        self.cursor = to;
        self.low = to;
        if by < claimed {
            self.show(memory)?;
        } else {
            self.high = to;
            self.claim(memory)?;
        }
        Ok(Received::Missed(by))
    }

    /// Claims lines from the first one that is not finished on. False if that gives no new one.
    // Crash: a reader that dies with a claim pins at most `window` buffers until its desk is removed.
    pub fn claim<M: ReaderMemory>(&mut self, memory: &M) -> Result<bool, M::Stop> {
        let high = self.low.wrapping_add(self.limits.window.into());
        if high == self.cursor {
            return Ok(false);
        }
        while self.entries > u8::from(self.more) && memory.kept(self.entries - 1)? == 0 {
            self.entries -= 1;
        }
        self.high = high;
        self.show(memory)?;
        // Ordering: partner: the fence with which the writer begins a round. The claim before the look at the line
        // here; the overwritten line before the look at the desk there.
        memory.fence_full()?;
        Ok(true)
    }

    /// Claims one line, of any position: for a queue's reader, which takes only some lines. All messages are finished.
    /// The caller fences fully before it reads the line.
    // Crash: as for `claim`.
    #[inline(always)]
    pub fn claim_one<M: ReaderMemory>(&mut self, memory: &M, position: u64) -> Result<(), M::Stop> {
        while self.entries > u8::from(self.more) && memory.kept(self.entries - 1)? == 0 {
            self.entries -= 1;
        }
        self.low = position;
        self.cursor = position;
        self.high = position.wrapping_add(1);
        self.show(memory)
    }

    /// Shows the window. It is not [`UNBEGUN`]: where the bits of an empty window are all 0, it names an entry.
    #[inline(always)]
    fn show<M: ReaderMemory>(&self, memory: &M) -> Result<(), M::Stop> {
        #[allow(clippy::cast_possible_truncation, reason = "at most a window's")]
        let len = self.high.wrapping_sub(self.low) as u8;
        let win = Win {
            low: self.low & SEQUENCES,
            entries: self.entries,
            len,
        };
        memory.set_win(match win.pack() {
            UNBEGUN => Win { entries: 1, ..win }.pack(),
            word => word,
        })
    }

    /// Finishes the oldest message that is not finished: it was dropped, or every buffer that it names is held
    /// ([`Reader::hold`]). After it the window no longer covers the message.
    #[inline(always)]
    pub fn finish<M: ReaderMemory>(&mut self, memory: &M) -> Result<(), M::Stop> {
        debug_assert!(self.low != self.cursor, "all messages are finished");
        self.low = self.low.wrapping_add(1);
        self.show(memory)
    }

    /// Says that the reader holds a buffer of a message that is not finished. Call [`Reader::finish`] after it, once
    /// for all buffers of the message. `in_table` is the number of holds that the table has now, counted by the caller.
    ///
    /// The slot comes out of a line, whose words are the writer's: the caller checks first that the pool has it.
    // Crash: a hold and its window both cover the buffer; the desk's removal ends both.
    #[inline(always)]
    pub fn hold<M: ReaderMemory>(
        &mut self,
        memory: &M,
        slot: u32,
        in_table: u32,
    ) -> Result<Result<Hold, Limited>, M::Stop> {
        for entry in 0..self.limits.entries {
            if memory.kept(entry)? == 0 {
                memory.set_kept(entry, slot.wrapping_add(1))?;
                self.entries = self.entries.max(entry + 1);
                return Ok(Ok(Hold::Entry(entry)));
            }
        }
        self.hold_in_table(memory, slot, in_table)
    }

    #[cold]
    fn hold_in_table<M: ReaderMemory>(
        &mut self,
        memory: &M,
        slot: u32,
        in_table: u32,
    ) -> Result<Result<Hold, Limited>, M::Stop> {
        let limit = self.limits.table;
        if in_table >= limit {
            return Ok(Err(Limited {
                held: in_table,
                limit,
            }));
        }
        memory.count(slot, true)?;
        if !self.more {
            memory.set_more(1)?;
            self.more = true;
            self.entries = self.entries.max(1);
        }
        Ok(Ok(Hold::Table(slot)))
    }

    /// Says that the table is empty, if it is, so that the writer no longer reads it. Only this reader's thread fills
    /// the table, so an empty one stays empty.
    pub fn empty_table<M: ReaderMemory>(
        &mut self,
        memory: &M,
        in_table: u32,
    ) -> Result<(), M::Stop> {
        if self.more && in_table == 0 {
            memory.set_more(0)?;
            self.more = false;
        }
        Ok(())
    }

    /// Claims no more than what is taken and not finished, before the reader sleeps or goes idle.
    pub fn rest<M: ReaderMemory>(&mut self, memory: &M) -> Result<(), M::Stop> {
        self.high = self.cursor;
        self.show(memory)
    }
}

impl Reader {
    /// Ends the reader's part: claims nothing, and has the table stand for every hold. The caller has counted in the
    /// table each buffer that is still held, before. What was taken and not finished is let go of.
    // Crash: the table counts before `kept` is cleared, so each hold is seen in one of the two.
    pub fn leave<M: ReaderMemory>(&mut self, memory: &M) -> Result<(), M::Stop> {
        memory.set_more(1)?;
        self.more = true;
        self.entries = self.entries.max(1);
        self.low = self.cursor;
        self.high = self.cursor;
        self.show(memory)?;
        for entry in 0..self.limits.entries {
            memory.set_kept(entry, 0)?;
        }
        Ok(())
    }
}

/// Drops a buffer, in any thread, after the last access to it.
#[inline(always)]
pub fn let_go<M: ReaderMemory>(memory: &M, hold: Hold) -> Result<(), M::Stop> {
    match hold {
        Hold::Entry(entry) => memory.set_kept(entry, 0),
        Hold::Table(slot) => memory.count(slot, false),
    }
}
