//! Codec of the messages between a reader and the share server: pure functions.
//!
//! A reader asks by the control ring: the key in pieces of up to [`INLINE_BYTES`], and in each message's word the
//! length of the whole key. It is answered in the order of its questions. A value's answer is its buffer, with flags
//! and number behind the value; all other answers are inline.

use crate::parse::KEY;
use tranship_core::INLINE_BYTES;

pub(super) const VERSION: u16 = 2;
/// Messages under way in each direction.
pub(super) const LINES: u32 = 256;
/// Bytes behind each value: flags and number.
pub(super) const TAIL: usize = 4 + 8;
/// Mark in the upper half of each word, by which another service's word is recognised.
const MARK: u64 = 0x7a63 << 48;

const KIND: u32 = 40;
const ASK: u64 = 1;
const HELLO: u64 = 2;
const HIT: u64 = 3;
const MISS: u64 = 4;
const REFUSED: u64 = 5;

/// Limits for the values that one reader holds at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Bytes of values.
    pub bytes: u64,
    /// Number of values.
    pub values: u32,
    /// Seconds for which a reader may hold a value. Afterwards it gets no other value.
    pub seconds: u32,
}

/// Reason for which a reader does not get a value that may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The reader would hold too many bytes.
    #[error(
        "{held} bytes of values are held, and {more} more are asked for: at most {most} may be held at a time; drop some"
    )]
    Bytes {
        /// Amount that the reader holds.
        held: u64,
        /// Bytes of the value.
        more: u64,
        /// Amount that the reader may hold.
        most: u64,
    },
    /// The reader holds too many values.
    #[error("{held} values are held, and no more than {most} may be at a time; drop some")]
    Values {
        /// Amount that the reader holds.
        held: u64,
        /// Amount that the reader may hold.
        most: u64,
    },
    /// The reader holds a value for too long.
    #[error(
        "a value has been held for {seconds} s, and others are given out only {most} s long until it is dropped"
    )]
    Time {
        /// Time since when.
        seconds: u64,
        /// Longest time that a value may be held.
        most: u64,
    },
    /// There is no room in the pool.
    #[error(
        "the server has no room to show {bytes} bytes by reference: its pool has {most} bytes, and others hold what is in it"
    )]
    NoRoom {
        /// Bytes of the value.
        bytes: u64,
        /// Bytes of the pool.
        most: u64,
    },
    /// The server's manager has not given its pool the memory yet.
    #[error(
        "the server's manager has not given the memory for {bytes} bytes in time; ask again later"
    )]
    Late {
        /// Bytes of the value.
        bytes: u64,
    },
    /// Too many others are connected or hold something.
    #[error("the server lets {most} readers hold values at a time, and as many do")]
    Readers {
        /// Most readers that there may be.
        most: u64,
    },
}

/// Message from the share server, other than a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Say {
    /// First message.
    Hello(u16, Limits),
    /// A buffer comes with it; seconds until it expires, if it does.
    Hit(Option<u32>),
    Miss,
    Refused(Refused),
}

fn word(kind: u64, low: u64) -> u64 {
    MARK | kind << KIND | low
}

/// Splits a word into kind and lower part.
fn open(word: u64) -> Option<(u64, u64)> {
    let known = word & (0xffff << 48) == MARK;
    known.then_some((word >> KIND & 0xff, word & ((1 << KIND) - 1)))
}

/// Returns the messages that ask for a key.
pub(super) fn ask(key: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    let word = word(ASK, key.len() as u64);
    key.chunks(INLINE_BYTES).map(move |piece| (piece, word))
}

/// A key on its way.
#[derive(Debug, Default)]
pub(super) struct Asked {
    key: Vec<u8>,
    wanted: usize,
}

/// Invalid question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it sent an invalid question: {0}")]
pub(super) struct Nonsense(&'static str);

impl Asked {
    /// Takes a piece; true when the key is whole.
    pub(super) fn take(&mut self, bytes: &[u8], word: u64) -> Result<bool, Nonsense> {
        let Some((ASK, len)) = open(word) else {
            return Err(Nonsense("another service's"));
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if !(1..=KEY).contains(&len) {
            return Err(Nonsense("a key of no length that keys have"));
        }
        if self.key.is_empty() {
            self.wanted = len;
        }
        let left = self.wanted - self.key.len();
        if len != self.wanted || bytes.len() != left.min(INLINE_BYTES) {
            return Err(Nonsense("pieces of a key that do not fit together"));
        }
        self.key.extend_from_slice(bytes);
        Ok(self.key.len() == self.wanted)
    }

    /// Returns the whole key.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Clears it for the next key.
    pub(super) fn clear(&mut self) {
        self.key.clear();
    }
}

/// Returns the bytes behind a value.
pub(super) fn tail(flags: u32, cas: u64) -> [u8; TAIL] {
    let mut tail = [0; TAIL];
    tail[..4].copy_from_slice(&flags.to_le_bytes());
    tail[4..].copy_from_slice(&cas.to_le_bytes());
    tail
}

/// Returns flags and number.
pub(super) fn read_tail(tail: [u8; TAIL]) -> (u32, u64) {
    let [a, b, c, d, cas @ ..] = tail;
    (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(cas))
}

impl Say {
    /// Returns the message's word, and its bytes.
    pub(super) fn encode(self) -> (u64, Vec<u8>) {
        let numbers = |all: &[u64]| all.iter().flat_map(|n| n.to_le_bytes()).collect();
        match self {
            Say::Hello(version, limits) => {
                let Limits {
                    bytes,
                    values,
                    seconds,
                } = limits;
                let all = numbers(&[bytes, values.into(), seconds.into()]);
                (word(HELLO, version.into()), all)
            }
            Say::Hit(ttl) => {
                let low = ttl.map_or(0, |ttl| u64::from(ttl) + 1);
                (word(HIT, low), Vec::new())
            }
            Say::Miss => (word(MISS, 0), Vec::new()),
            Say::Refused(why) => {
                let (which, all) = match why {
                    Refused::Bytes { held, more, most } => (1, [held, more, most]),
                    Refused::Values { held, most } => (2, [held, 0, most]),
                    Refused::Time { seconds, most } => (3, [seconds, 0, most]),
                    Refused::NoRoom { bytes, most } => (4, [bytes, 0, most]),
                    Refused::Readers { most } => (5, [0, 0, most]),
                    Refused::Late { bytes } => (6, [bytes, 0, 0]),
                };
                (word(REFUSED, which), numbers(&all))
            }
        }
    }

    /// Decodes a message's word and bytes.
    pub(super) fn decode(word: u64, bytes: &[u8]) -> Option<Say> {
        let (kind, low) = open(word)?;
        let numbers = || -> Option<[u64; 3]> {
            let mut all = [0; 3];
            let words = bytes.chunks_exact(8);
            let fits = bytes.len() == 24;
            for (to, word) in all.iter_mut().zip(words) {
                *to = u64::from_le_bytes(word.try_into().ok()?);
            }
            fits.then_some(all)
        };
        Some(match (kind, bytes.len()) {
            (HELLO, _) => {
                let [bytes, values, seconds] = numbers()?;
                let limits = Limits {
                    bytes,
                    values: u32::try_from(values).ok()?,
                    seconds: u32::try_from(seconds).ok()?,
                };
                Say::Hello(u16::try_from(low).ok()?, limits)
            }
            (HIT, 0) => Say::Hit(match low {
                0 => None,
                low => Some(u32::try_from(low - 1).ok()?),
            }),
            (MISS, 0) if low == 0 => Say::Miss,
            (REFUSED, _) => {
                let [first, second, most] = numbers()?;
                Say::Refused(match low {
                    1 => Refused::Bytes {
                        held: first,
                        more: second,
                        most,
                    },
                    2 => Refused::Values { held: first, most },
                    3 => Refused::Time {
                        seconds: first,
                        most,
                    },
                    4 => Refused::NoRoom { bytes: first, most },
                    5 => Refused::Readers { most },
                    6 => Refused::Late { bytes: first },
                    _ => return None,
                })
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
