//! Words of the messages between `front` and `tcpip`, which has the clients' connections.
//!
//! Each side sends at most as many bytes as the other side has room for, or loses the connection. `Taken` gives room
//! back: in `front` when bytes are passed on, in `tcpip` when the client has acknowledged them.

use tranship_netpath::tcp::Id;

/// Meaning of a message for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// From `front`, of no connection: it is there, and knows none. `tcpip` cuts those it knew.
    Hello,
    /// From `tcpip`: the connection is there, with room for so many bytes.
    Opened,
    /// The message has so many bytes of the stream. If they are missing the connection is cut.
    Data,
    /// So many bytes were taken.
    Taken,
    /// The stream ends behind the bytes before.
    Ended,
    /// The connection is gone; from `front`: behind the bytes before.
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
/// | 0 to 15 | slot of the connection at `tcpip` |
/// | 16 to 31 | generation of the slot |
/// | 32 to 59 | number of bytes |
/// | 60 to 63 | kind |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub id: Id,
    pub kind: Kind,
    pub bytes: usize,
}

const BYTES: u64 = (1 << 28) - 1;

impl Note {
    pub(crate) fn new(id: Id, kind: Kind, bytes: usize) -> Note {
        Note { id, kind, bytes }
    }

    pub(crate) fn word(self) -> u64 {
        let bytes = (self.bytes as u64).min(BYTES);
        u64::from(self.id.slot)
            | u64::from(self.id.generation) << 16
            | bytes << 32
            | (self.kind as u64) << 60
    }

    /// Reads a word; `None`: it is none.
    #[allow(clippy::cast_possible_truncation)] // 16 and 28 bits
    pub(crate) fn read(word: u64) -> Option<Note> {
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
