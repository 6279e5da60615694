//! Words of the messages between TCP/IP, which has the hosts' connections, and a program of another domain.
//!
//! Each side sends at most as many bytes as the other side has room for, or loses the connection. `Taken` gives room
//! back: of the program when bytes are passed on, of TCP/IP when the host has acknowledged them.

use super::Id;

/// Meaning of a message for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// From the program, of no connection: it is there, and knows none. TCP/IP cuts those it knew.
    Hello,
    /// From TCP/IP: the connection is there, with room for so many bytes.
    Opened,
    /// The message has so many bytes of the stream. If they are missing the connection is cut.
    Data,
    /// So many bytes were taken.
    Taken,
    /// The stream ends behind the bytes before.
    Ended,
    /// The connection is gone; from the program: behind the bytes before.
    Closed,
}

const KINDS: [Kind; 6] = [
    Kind::Hello,
    Kind::Opened,
    Kind::Data,
    Kind::Taken,
    Kind::Ended,
    Kind::Closed,
];

/// A message's word.
///
/// | bits | meaning |
/// |---|---|
/// | 0 to 15 | slot of the connection at TCP/IP |
/// | 16 to 31 | generation of the slot |
/// | 32 to 59 | number of bytes |
/// | 60 to 63 | kind |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The connection.
    pub id: Id,
    /// The meaning.
    pub kind: Kind,
    /// The number of bytes.
    pub bytes: usize,
}

const BYTES: u64 = (1 << 28) - 1;

impl Note {
    /// Makes a note.
    #[must_use]
    pub fn new(id: Id, kind: Kind, bytes: usize) -> Note {
        Note { id, kind, bytes }
    }

    /// Returns the word.
    #[must_use]
    pub fn word(self) -> u64 {
        let bytes = (self.bytes as u64).min(BYTES);
        u64::from(self.id.slot)
            | u64::from(self.id.generation) << 16
            | bytes << 32
            | (self.kind as u64) << 60
    }

    /// Reads a word; `None`: it is none.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // 16 and 28 bits
    pub fn read(word: u64) -> Option<Note> {
        let kind = *KINDS.get((word >> 60) as usize)?;
        let id = Id {
            slot: word as u16,
            generation: (word >> 16) as u16,
        };
        Some(Note::new(id, kind, (word >> 32 & BYTES) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_it_was_made_of() {
        let id = Id {
            slot: 0x1234,
            generation: 0xffff,
        };
        for kind in KINDS {
            for bytes in [0, 1, (1 << 28) - 1] {
                let note = Note::new(id, kind, bytes);
                assert_eq!(Note::read(note.word()), Some(note));
            }
        }
        assert_eq!(Note::read(6 << 60), None);
    }
}
