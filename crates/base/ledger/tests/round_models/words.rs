//! The words of shared memory, and the library's accesses to them.

use std::fmt;

use tranship_ring::broadcast::{self, ReaderMemory, WriterMemory};

use crate::config::{Config, D, KEPT, READERS, RINGS, SLOTS, Without};
use crate::replay::{Run, Script, Stop, Word};

/// Words of a line that are modelled: 0, 1, 7.
const LINE: usize = 3;
/// `win`, `more`, `kept`, the table.
const DESK: usize = 2 + KEPT + SLOTS;
pub const DESKS: usize = RINGS * D * LINE;
const OTHERS: usize = DESKS + READERS * DESK;
/// All of them.
pub const WORDS: usize = (OTHERS + 2 + 4 * SLOTS).next_multiple_of(4);

fn word(at: usize) -> Word {
    Word::try_from(at).expect("few")
}

fn line(ring: usize, position: u64, part: usize) -> Word {
    let line = usize::try_from(position).expect("64 bits") % D;
    word((ring * D + line) * LINE + part)
}

pub fn first(ring: usize, position: u64) -> Word {
    line(ring, position, 0)
}

fn content(ring: usize, position: u64) -> Word {
    line(ring, position, 1)
}

pub fn last(ring: usize, position: u64) -> Word {
    line(ring, position, 2)
}

pub fn win(reader: usize) -> Word {
    word(DESKS + reader * DESK)
}

pub fn more(reader: usize) -> Word {
    win(reader) + 1
}

pub fn kept(reader: usize, entry: usize) -> Word {
    word(DESKS + reader * DESK + 2 + entry)
}

pub fn table(reader: usize, slot: usize) -> Word {
    word(DESKS + reader * DESK + 2 + KEPT + slot)
}

/// Where the first reader says what its other thread is to let go of: 0, or 1 more than an entry, and the slot.
#[allow(clippy::cast_possible_truncation, reason = "few words")]
pub const HANDED: Word = OTHERS as Word;
/// The ring of one message, from the first reader to the domain without a desk.
pub const FORWARDED: Word = HANDED + 1;

pub fn generation(slot: usize) -> Word {
    word(OTHERS + 2 + slot)
}

/// Of the queue of forwarded buffers.
pub fn sent(slot: usize) -> Word {
    word(OTHERS + 2 + SLOTS + slot)
}

pub fn rcvd(slot: usize) -> Word {
    word(OTHERS + 2 + 2 * SLOTS + slot)
}

/// Of the domain without a desk.
pub fn refs(slot: usize) -> Word {
    word(OTHERS + 2 + 3 * SLOTS + slot)
}

/// The reader to whose desk the word belongs.
pub fn desk_of(at: Word) -> Option<usize> {
    let at = usize::from(at);
    (DESKS..OTHERS).contains(&at).then(|| (at - DESKS) / DESK)
}

pub fn same_line(a: Word, b: Word) -> bool {
    usize::from(a) / LINE == usize::from(b) / LINE
}

/// The words of a line but the first.
pub fn is_rest_of_line(at: Word) -> bool {
    let at = usize::from(at);
    at < DESKS && at % LINE != 0
}

/// Meaning of a desk's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Win,
    More,
    Kept,
    Table,
}

pub fn part_of(at: Word) -> Part {
    match (usize::from(at) - DESKS) % DESK {
        0 => Part::Win,
        1 => Part::More,
        n if n < 2 + KEPT => Part::Kept,
        _ => Part::Table,
    }
}

/// For traces.
pub struct Named(pub Word);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = usize::from(self.0);
        if at < DESKS {
            let (ring, line) = (at / LINE / D, at / LINE % D);
            let part = ["w0", "content", "w7"][at % LINE];
            return write!(f, "ring {ring} line {line} {part}");
        }
        if at < OTHERS {
            let (reader, part) = ((at - DESKS) / DESK, (at - DESKS) % DESK);
            return match part {
                0 => write!(f, "win of {reader}"),
                1 => write!(f, "more of {reader}"),
                n if n < 2 + KEPT => write!(f, "kept[{}] of {reader}", n - 2),
                n => write!(f, "table[{}] of {reader}", n - 2 - KEPT),
            };
        }
        let names = ["generation", "sent", "rcvd", "ref"];
        match at - OTHERS {
            0 => f.write_str("handed"),
            1 => f.write_str("forwarded"),
            n => write!(f, "{}[{}]", names[(n - 2) / SLOTS], (n - 2) % SLOTS),
        }
    }
}

/// One party's view.
pub struct View<'a> {
    pub script: &'a Script<'a>,
    pub config: &'a Config,
    pub ring: usize,
    /// The reader with this desk.
    pub reader: usize,
    /// Broken: a line that was read before it is claimed.
    pub line: Option<[u64; 3]>,
    /// Broken: the entry that the reader takes for free as soon as the other thread says that it let go.
    pub given: Option<u8>,
}

impl<'a> View<'a> {
    pub fn new(script: &'a Script<'a>, config: &'a Config, ring: usize, reader: usize) -> Self {
        Self {
            script,
            config,
            ring,
            reader,
            line: None,
            given: None,
        }
    }
}

impl WriterMemory for View<'_> {
    type Stop = Stop;

    fn set_first(&self, position: u64, word: u64) -> Run<()> {
        self.script.store(first(self.ring, position), word)
    }
    /// The other words are not modelled: the order of stores is that of this one.
    fn set_word(&self, position: u64, index: usize, word: u64) -> Run<()> {
        match index {
            1 => self.script.store(content(self.ring, position), word),
            _ => Ok(()),
        }
    }
    fn set_last(&self, position: u64, word: u64) -> Run<()> {
        self.script.store(last(self.ring, position), word)
    }
    /// Stores keep their order.
    fn fence_release(&self) -> Run<()> {
        Ok(())
    }
}

impl ReaderMemory for View<'_> {
    type Stop = Stop;

    fn first(&self, position: u64) -> Run<u64> {
        if let Some(line) = self.line {
            return Ok(line[0]);
        }
        self.script.load(first(self.ring, position))
    }
    fn word(&self, position: u64, index: usize) -> Run<u64> {
        match (index, self.line) {
            (1, Some(line)) => Ok(line[1]),
            (1, None) => self.script.load(content(self.ring, position)),
            _ => Ok(0),
        }
    }
    fn last(&self, position: u64) -> Run<u64> {
        if self.config.is(Without::WholeLines) {
            return Ok(broadcast::sequence(position));
        }
        if let Some(line) = self.line {
            return Ok(line[2]);
        }
        self.script.load(last(self.ring, position))
    }
    fn set_win(&self, word: u64) -> Run<()> {
        self.script.store(win(self.reader), word)
    }
    fn kept(&self, entry: u8) -> Run<u32> {
        let at = match self.given == Some(entry) && self.config.is(Without::ClearingFirst) {
            true => HANDED,
            false => kept(self.reader, entry.into()),
        };
        let word = self.script.load(at)?;
        Ok(u32::try_from(word).expect("32 bits"))
    }
    fn set_kept(&self, entry: u8, word: u32) -> Run<()> {
        self.script
            .store(kept(self.reader, entry.into()), word.into())
    }
    fn set_more(&self, word: u32) -> Run<()> {
        self.script.store(more(self.reader), word.into())
    }
    fn count(&self, slot: u32, up: bool) -> Run<()> {
        self.script.count(table(self.reader, slot as usize), up)
    }
    /// Loads keep their order.
    fn fence_acquire(&self) -> Run<()> {
        Ok(())
    }
    fn fence_full(&self) -> Run<()> {
        match self.config.without {
            Without::ReadersFence => Ok(()),
            _ => self.script.fence(),
        }
    }
}
