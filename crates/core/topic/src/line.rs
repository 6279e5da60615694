//! Words of the ring's lines, and of the few messages that go beside it.

use tranship_core::topics::Named;
use tranship_core::{BufferId, INLINE_BYTES, PoolId};
use tranship_ring::broadcast::{CONTENT, Message};

/// Bits 48 and up of word 0: the operation.
const OPERATION: u32 = 48;
/// Bits 54 and up of word 0: the number of inline bytes.
const LENGTH: u32 = 54;
const INLINE: u64 = 1;
const BUFFER: u64 = 2;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Bytes in the line itself, as many as are said.
    Inline([u8; INLINE_BYTES], usize),
    Buffer(Named),
}

/// Returns a line with a few bytes, at most [`INLINE_BYTES`].
pub(crate) fn inline(bytes: &[u8], word: u64) -> Message {
    let len = bytes.len().min(INLINE_BYTES);
    let mut all = [0; INLINE_BYTES];
    all[..len].copy_from_slice(&bytes[..len]);
    let mut content = [0; CONTENT];
    content[0] = word;
    for (word, eight) in content[1..].iter_mut().zip(all.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*eight);
    }
    Message {
        kind: INLINE << OPERATION | (len as u64) << LENGTH,
        content,
    }
}

/// Returns a line that names a buffer.
#[inline]
pub(crate) fn buffer(named: Named, word: u64) -> Message {
    Message {
        kind: BUFFER << OPERATION,
        content: [
            word,
            named.id.0,
            named.offset,
            named.length,
            u64::from(named.serial),
            0,
        ],
    }
}

/// Takes a line apart: its word, and what it says. None: no publisher writes such a line.
#[inline]
pub(crate) fn parse(message: &Message) -> Option<(u64, Said)> {
    let Message { kind, content } = message;
    let operation = kind >> OPERATION & 0x3f;
    let said = match operation {
        BUFFER => Said::Buffer(Named {
            id: BufferId(content[1]),
            offset: content[2],
            length: content[3],
            serial: u32::try_from(content[4]).ok()?,
        }),
        INLINE => {
            let len = usize::try_from(kind >> LENGTH & 0x7f).ok()?;
            let mut all = [0; INLINE_BYTES];
            for (eight, word) in all.as_chunks_mut::<8>().0.iter_mut().zip(&content[1..]) {
                *eight = word.to_le_bytes();
            }
            (len <= INLINE_BYTES).then_some(Said::Inline(all, len))?
        }
        _ => return None,
    };
    Some((content[0], said))
}

/// What a subscriber asks for, once it is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) reliable: bool,
}

impl Wish {
    pub(crate) fn bytes(self) -> [u8; 1] {
        [u8::from(self.reliable)]
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Wish> {
        let [reliable] = bytes else { return None };
        Some(Wish {
            reliable: *reliable != 0,
        })
    }
}

/// What a publisher says to one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The subscriber's desk is looked at from now on: it may claim lines from this position on.
    Go {
        position: u64,
        pool: PoolId,
        keep: u32,
        reliable: bool,
    },
    /// The subscriber is no longer reliable: it was behind for too long.
    Demoted,
    /// The subscription was ended: the subscriber's domain holds more than was agreed.
    Expelled,
}

impl Word {
    /// Returns the bytes and the word of the message.
    pub(crate) fn pack(self) -> ([u8; 9], u64) {
        let mut bytes = [0; 9];
        match self {
            Word::Go {
                position,
                pool,
                keep,
                reliable,
            } => {
                bytes[0] = 1 + u8::from(reliable);
                bytes[1..5].copy_from_slice(&pool.0.to_le_bytes());
                bytes[5..].copy_from_slice(&keep.to_le_bytes());
                (bytes, position)
            }
            Word::Demoted => (bytes, 0),
            Word::Expelled => {
                bytes[0] = 3;
                (bytes, 0)
            }
        }
    }

    pub(crate) fn parse(bytes: &[u8], word: u64) -> Option<Word> {
        let bytes: &[u8; 9] = bytes.try_into().ok()?;
        let number = |at: usize| {
            let four = bytes[at..].first_chunk::<4>();
            four.map(|four| u32::from_le_bytes(*four))
        };
        Some(match bytes[0] {
            0 => Word::Demoted,
            1 | 2 => Word::Go {
                position: word,
                pool: PoolId(number(1)?),
                keep: number(5)?,
                reliable: bytes[0] == 2,
            },
            3 => Word::Expelled,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_ring::broadcast::{SEQUENCES, WITHDRAWN};

    #[test]
    fn a_line_says_what_was_put_into_it() {
        let named = Named {
            id: BufferId::new(PoolId(7), 9, 4),
            offset: 1 << 40,
            length: 12,
            serial: 3,
        };
        let line = buffer(named, 60);
        assert_eq!(parse(&line), Some((60, Said::Buffer(named))));
        for len in [0, 1, INLINE_BYTES] {
            let bytes: Vec<u8> = (1..).take(len).collect();
            let line = inline(&bytes, u64::MAX);
            assert_eq!(line.kind & (SEQUENCES | WITHDRAWN), 0, "the ring's bits");
            let Some((u64::MAX, Said::Inline(all, n))) = parse(&line) else {
                panic!("{line:?}");
            };
            assert_eq!(all[..n], bytes);
        }
        for kind in [0, 3 << OPERATION, INLINE << OPERATION | 41 << LENGTH] {
            let content = [0; CONTENT];
            assert_eq!(parse(&Message { kind, content }), None);
        }
    }

    #[test]
    fn words_beside_the_ring_say_what_was_put_into_them() {
        let go = |reliable| Word::Go {
            position: 1 << 50,
            pool: PoolId(77),
            keep: 64,
            reliable,
        };
        for word in [go(true), go(false), Word::Demoted, Word::Expelled] {
            let (bytes, number) = word.pack();
            assert_eq!(Word::parse(&bytes, number), Some(word));
        }
        assert_eq!(Word::parse(&[9; 9], 0), None);
        assert_eq!(Word::parse(&[], 0), None);
        let wish = Wish { reliable: true };
        assert_eq!(Wish::parse(&wish.bytes()), Some(wish));
    }
}
