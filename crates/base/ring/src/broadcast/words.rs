//! The words of lines and desks.

/// Bits of a sequence number in shared words.
const BITS: u32 = 48;
/// The part of word 0, of word 7 and of a window that is a sequence number.
pub const SEQUENCES: u64 = (1 << BITS) - 1;
/// The bit of word 0 that says: the writer has withdrawn this line.
pub const WITHDRAWN: u64 = 1 << 63;
/// Words of a line between the two sequence numbers.
pub const CONTENT: usize = 6;
/// The index of a line's last word: the sequence number, once more.
pub const LAST: usize = CONTENT + 1;
/// The most lines that a window covers. A writer takes a longer one for this.
pub const WINDOW: u8 = 8;
/// Entries of `kept`.
pub const KEPT: u8 = 12;

/// The word of a window whose reader has claimed nothing yet. It says nothing of where the reader begins.
pub const UNBEGUN: u64 = 0;

/// Content of a line: the bits of word 0 above the sequence number, in place, and words 1 to 6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Message {
    /// Bits 48 to 63 of word 0. The lower bits and [`WITHDRAWN`] are the ring's.
    pub kind: u64,
    /// Words 1 to 6.
    pub content: [u64; CONTENT],
}

/// Returns the number by which shared words name the line of a position: the position plus 1. So a line of zeros is not
/// the first one.
#[inline(always)]
pub fn sequence(position: u64) -> u64 {
    position.wrapping_add(1) & SEQUENCES
}

/// The bit of a word that names a position, and of which 0 says that it names none.
const NAMES: u64 = 1 << 60;

/// Returns the word that names a position, beside words that name none. The sequence number alone is 0 for position
/// 2^48 - 1.
#[inline(always)]
pub(super) fn name(position: u64) -> u64 {
    sequence(position) | NAMES
}

/// Returns the sequence number of the position that such a word names. `None`: it names none.
#[inline(always)]
pub(super) fn named(word: u64) -> Option<u64> {
    (word & NAMES != 0).then_some(word & SEQUENCES)
}

/// Returns word 0 of a published line.
#[inline(always)]
pub fn first_word(position: u64, kind: u64) -> u64 {
    (kind & !(SEQUENCES | WITHDRAWN)) | sequence(position)
}

/// Returns how far `other` lies ahead of `this`, both of 48 bits; negative if it lies behind.
#[inline(always)]
pub fn ahead(this: u64, other: u64) -> i64 {
    let shift = u64::BITS - BITS;
    (other.wrapping_sub(this) << shift).cast_signed() >> shift
}

/// Returns the position nearest to `near` of which a window shows the lower 48 bits.
#[inline(always)]
pub fn at(near: u64, shown: u64) -> u64 {
    near.wrapping_add_signed(ahead(near, shown))
}

/// A reader's window: the lines that it may hold, and how many entries of `kept` are to be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Win {
    /// The first line, modulo 2^48.
    pub low: u64,
    /// The number of entries of `kept` to look at. If it is not 0, look at `more` too.
    pub entries: u8,
    /// The number of lines from `low` on.
    pub len: u8,
}

impl Win {
    /// Packs a window into the desk's word.
    #[inline(always)]
    pub fn pack(self) -> u64 {
        self.low << 16 | u64::from(self.entries) << 8 | u64::from(self.len)
    }

    /// Reads a window out of the desk's word. Every value of the word is a window.
    #[inline(always)]
    pub fn unpack(word: u64) -> Win {
        let [len, entries, ..] = word.to_le_bytes();
        Win {
            low: word >> 16,
            entries,
            len,
        }
    }
}
