//! Codec of the frames that the two carriers of a channel exchange: pure functions. All numbers are little-endian;
//! `docs/protocol.md` has the table.

use tranship_core::INLINE_BYTES;
use tranship_transport::FrameBytes;

const MAGIC: [u8; 4] = *b"tsch";
const VERSION: u16 = 2;
/// Most messages that the receiver's program may send back before the sender's program takes one.
pub(crate) const CONTROLS: u64 = 256;
/// Most bytes of words about an end.
const TEXT_BYTES: usize = 1024;

/// Introduction that both ends send first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// Whether the speaker's program sends; otherwise it receives.
    pub(crate) sends: bool,
    /// Messages, and bytes of them, that the speaker has room for and its program has not taken. A sender's are 0.
    pub(crate) messages: u32,
    pub(crate) bytes: u64,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    Hello(Hello),
    /// A word, and bytes of the program's in the frame itself.
    Inline(u64, FrameBytes),
    /// A buffer's bytes follow: shared or moved.
    Buffer {
        moved: bool,
        word: u64,
        bytes: u64,
    },
    /// An aggregate's pieces follow, with their number and total bytes: shared or moved.
    Aggregate {
        moved: bool,
        word: u64,
        pieces: u32,
        bytes: u64,
    },
    /// A piece of the aggregate: so many bytes, which follow.
    Piece(u64),
    /// The sender has closed the channel.
    End,
    /// The receiver has everything up to that.
    Ended,
    /// The receiver's program has taken this number of messages, from the first on.
    Taken(u64),
    /// A word and bytes of the receiver's program to the sender's.
    Control(u64, FrameBytes),
    /// The receiver's program has released something, with this word. This counts as one of its messages.
    Released(u64),
    /// Number of those messages that were put where the sender's program finds them, from the first on.
    Told(u64),
    /// Nothing more comes, for this reason.
    Over {
        /// A [`ErrorKind`](tranship_core::ErrorKind)'s number, if there is one: the other end's own choice.
        kind: u16,
        why: String,
    },
}

/// Reason for which bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("there is no frame of kind {kind} with {bytes} bytes")]
    Frame { kind: u8, bytes: usize },
    #[error("version {0} of the protocol of channels, this is version {VERSION}")]
    Version(u16),
    #[error("an empty frame")]
    Empty,
}

/// Takes numbers off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn rest(&mut self, most: usize) -> Option<FrameBytes> {
        let bytes = std::mem::take(&mut self.0);
        (bytes.len() <= most).then(|| FrameBytes::from_slice(bytes))
    }
}

impl Word {
    pub(crate) fn encode(&self) -> FrameBytes {
        let mut out = FrameBytes::new();
        match self {
            Word::Hello(hello) => {
                out.push(1);
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&VERSION.to_le_bytes());
                out.push(if hello.sends { 1 } else { 2 });
                out.extend_from_slice(&hello.messages.to_le_bytes());
                out.extend_from_slice(&hello.bytes.to_le_bytes());
            }
            Word::Inline(word, bytes) => text(&mut out, 2, *word, bytes),
            Word::Buffer { moved, word, bytes } => {
                numbers(&mut out, if *moved { 4 } else { 3 }, &[*word, *bytes]);
            }
            Word::Aggregate {
                moved,
                word,
                pieces,
                bytes,
            } => {
                numbers(&mut out, if *moved { 13 } else { 5 }, &[*word, *bytes]);
                out.extend_from_slice(&pieces.to_le_bytes());
            }
            Word::Piece(bytes) => numbers(&mut out, 6, &[*bytes]),
            Word::End => out.push(7),
            Word::Ended => out.push(8),
            Word::Taken(messages) => numbers(&mut out, 9, &[*messages]),
            Word::Control(word, bytes) => text(&mut out, 10, *word, bytes),
            Word::Released(word) => numbers(&mut out, 14, &[*word]),
            Word::Told(controls) => numbers(&mut out, 11, &[*controls]),
            Word::Over { kind, why } => {
                out.push(12);
                out.extend_from_slice(&kind.to_le_bytes());
                let most = why.floor_char_boundary(TEXT_BYTES);
                out.extend_from_slice(&why.as_bytes()[..most]);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Word, Malformed> {
        let (kind, rest) = bytes.split_first().ok_or(Malformed::Empty)?;
        let mut from = Reader(rest);
        let malformed = Malformed::Frame {
            kind: *kind,
            bytes: bytes.len(),
        };
        if *kind == 1 {
            let (magic, version) = (from.take(), from.u16());
            return match (magic == Some(MAGIC), version) {
                (true, Some(VERSION)) => hello(&mut from).ok_or(malformed),
                (true, Some(other)) => Err(Malformed::Version(other)),
                _ => Err(malformed),
            };
        }
        let word = Word::of(*kind, &mut from);
        word.filter(|_| from.0.is_empty()).ok_or(malformed)
    }

    fn of(kind: u8, from: &mut Reader<'_>) -> Option<Word> {
        Some(match kind {
            2 => Word::Inline(from.u64()?, from.rest(INLINE_BYTES)?),
            3 | 4 => Word::Buffer {
                moved: kind == 4,
                word: from.u64()?,
                bytes: from.u64()?,
            },
            5 | 13 => Word::Aggregate {
                moved: kind == 13,
                word: from.u64()?,
                bytes: from.u64()?,
                pieces: from.u32()?,
            },
            6 => Word::Piece(from.u64()?),
            7 => Word::End,
            8 => Word::Ended,
            9 => Word::Taken(from.u64()?),
            10 => Word::Control(from.u64()?, from.rest(INLINE_BYTES)?),
            11 => Word::Told(from.u64()?),
            12 => Word::Over {
                kind: from.u16()?,
                why: String::from_utf8_lossy(&from.rest(TEXT_BYTES)?).into_owned(),
            },
            14 => Word::Released(from.u64()?),
            _ => return None,
        })
    }
}

fn hello(from: &mut Reader<'_>) -> Option<Word> {
    let sends = match from.take()? {
        [1] => true,
        [2] => false,
        _ => return None,
    };
    let (messages, bytes) = (from.u32()?, from.u64()?);
    let hello = Hello {
        sends,
        messages,
        bytes,
    };
    from.0.is_empty().then_some(Word::Hello(hello))
}

fn numbers(out: &mut FrameBytes, kind: u8, numbers: &[u64]) {
    out.push(kind);
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn text(out: &mut FrameBytes, kind: u8, word: u64, bytes: &[u8]) {
    numbers(out, kind, &[word]);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Word> {
        let bytes = FrameBytes::from_slice(&[7; INLINE_BYTES]);
        let why = "because".to_owned();
        vec![
            Word::Hello(Hello {
                sends: false,
                messages: 256,
                bytes: 1 << 40,
            }),
            Word::Inline(u64::MAX, bytes.clone()),
            Word::Buffer {
                moved: false,
                word: 1,
                bytes: 2,
            },
            Word::Buffer {
                moved: true,
                word: 3,
                bytes: 4,
            },
            Word::Aggregate {
                moved: false,
                word: 5,
                pieces: 6,
                bytes: 7,
            },
            Word::Piece(8),
            Word::End,
            Word::Ended,
            Word::Taken(9),
            Word::Control(10, bytes),
            Word::Told(11),
            Word::Over { kind: 11, why },
            Word::Aggregate {
                moved: true,
                word: 12,
                pieces: 13,
                bytes: 14,
            },
            Word::Released(15),
        ]
    }

    #[test]
    fn what_is_said_is_understood() {
        for word in all() {
            assert_eq!(Word::decode(&word.encode()), Ok(word));
        }
    }

    #[test]
    fn nothing_else_is() {
        for word in all() {
            let bytes = word.encode();
            let free = matches!(
                word,
                Word::Inline(..) | Word::Control(..) | Word::Over { .. }
            );
            let mut longer = bytes.clone();
            longer.push(0);
            if !matches!(word, Word::Over { .. }) {
                assert!(Word::decode(&longer).is_err(), "{word:?} and a byte");
            }
            if !free {
                let shorter = &bytes[..bytes.len() - 1];
                assert!(Word::decode(shorter).is_err(), "{word:?} without a byte");
            }
        }
        for kind in [0, 15, 255] {
            assert!(Word::decode(&[kind]).is_err());
        }
        assert_eq!(Word::decode(&[]), Err(Malformed::Empty));
        let mut other = all()[0].encode();
        other[5] = 9;
        assert_eq!(Word::decode(&other), Err(Malformed::Version(9)));
    }
}
