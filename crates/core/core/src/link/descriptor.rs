//! Ring lines as `docs/format.md` describes them: words in, fields out, every field checked. Unused bits are zero, so
//! that a later version may use them.

use super::inline::Inline;
pub(crate) use crate::buffer::Reference;
use crate::error::Violation;
use crate::options::WhenFull;
use std::sync::atomic::Ordering;
use tranship_proto::{BufferId, PoolId};
use tranship_ring::{INLINE_BYTES, Line};

/// In word 0, beside the operation: the receiver may skip the message if another one waits behind it.
const SKIPPABLE: u64 = 1 << 48;

const OP_INLINE: u64 = 1;
const OP_BUFFER: u64 = 2;
const OP_AGGREGATE: u64 = 3;
const OP_MOVED: u64 = 4;
const OP_MOVED_AGGREGATE: u64 = 5;
const OP_RELEASED: u64 = 6;
const OP_REMOVED: u64 = 7;

/// Meaning of a line with a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// A buffer that is shared from here on.
    Buffer,
    /// The list of an aggregate.
    Aggregate,
    /// A buffer that is the receiver's from here on.
    Moved,
    /// The list of an aggregate whose pieces are the receiver's from here on.
    MovedAggregate,
}

impl Carries {
    #[inline(always)]
    fn op(self) -> u64 {
        match self {
            Carries::Buffer => OP_BUFFER,
            Carries::Aggregate => OP_AGGREGATE,
            Carries::Moved => OP_MOVED,
            Carries::MovedAggregate => OP_MOVED_AGGREGATE,
        }
    }
}

/// A line, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Inline(Inline),
    Reference(Carries, Reference),
    /// On the way back: a payload was released. The id is its buffer's, if both ends know a name for it.
    Released(Option<BufferId>),
    /// On the way back: the receiver has removed the pool from the channel.
    Removed(PoolId),
}

/// Makes a line with inline bytes. At most [`INLINE_BYTES`] are taken.
#[inline]
pub(crate) fn inline_line(bytes: &[u8], word: u64) -> [u64; 8] {
    let len = bytes.len().min(INLINE_BYTES);
    let mut body = [0u8; INLINE_BYTES];
    body[..len].copy_from_slice(&bytes[..len]);
    let mut words = [0u64; 8];
    words[0] = (OP_INLINE << 32) | ((len as u64) << 40);
    words[1] = word;
    for (word, eight) in words[2..].iter_mut().zip(body.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*eight);
    }
    words
}

/// Makes a line that names a buffer.
#[inline(always)]
pub(crate) fn reference_line(reference: Reference, carries: Carries, word: u64) -> [u64; 8] {
    [
        carries.op() << 32,
        word,
        reference.id.0,
        reference.offset,
        reference.length,
        u64::from(reference.serial),
        0,
        0,
    ]
}

/// Makes a line that reports a release. No buffer has the id 0, which is of no pool.
pub(crate) fn released_line(id: Option<BufferId>, word: u64) -> [u64; 8] {
    let id = id.map_or(0, |id| id.0);
    [OP_RELEASED << 32, word, id, 0, 0, 0, 0, 0]
}

/// Makes a line that reports the removal of a pool.
pub(crate) fn removed_line(pool: PoolId) -> [u64; 8] {
    [OP_REMOVED << 32, 0, pool.0.into(), 0, 0, 0, 0, 0]
}

/// Returns word and reference of a line that carries this; `None` for any other line. Loads each word once.
#[inline(always)]
pub(crate) fn named(carries: Carries, first: u64, line: &Line) -> Option<(u64, Reference)> {
    if first >> 32 != carries.op() {
        return None;
    }
    // Ordering: relaxed, after the acquire of word 0.
    let word = |i: usize| line.words[i].load(Ordering::Relaxed);
    let serial = word(5);
    if serial >> 32 | word(6) | word(7) != 0 {
        return None;
    }
    // Trust: id, offset and length are checked against the pool by the receiver.
    #[allow(clippy::cast_possible_truncation)] // the low half is meant
    let reference = Reference {
        id: BufferId(word(2)),
        offset: word(3),
        length: word(4),
        serial: serial as u32,
    };
    Some((word(1), reference))
}

/// Returns word and bytes of a line with inline bytes; `None` for any other line, or a wrong one. Loads each word once.
#[inline(always)]
pub(crate) fn inline(first: u64, line: &Line) -> Option<(u64, Inline)> {
    let len = first >> 40;
    if (first >> 32) & 0xff != OP_INLINE || len > INLINE_BYTES as u64 {
        return None;
    }
    // Ordering: relaxed, after the acquire of word 0.
    let word = |i: usize| line.words[i].load(Ordering::Relaxed).to_le();
    if word(7) != 0 {
        return None;
    }
    let words = [word(2), word(3), word(4), word(5), word(6)];
    #[allow(clippy::cast_possible_truncation)] // at most INLINE_BYTES
    Some((
        u64::from_le(word(1)),
        Inline {
            words,
            len: len as u8,
        },
    ))
}

/// Returns the bit of lines for a channel that deals with a full ring in this way.
pub(crate) fn skippable(when_full: WhenFull) -> u64 {
    match when_full {
        WhenFull::DropOldest => SKIPPABLE,
        _ => 0,
    }
}

/// Clears the skip bit of a line's copy, and returns whether it was set: the receiver may skip such a message.
pub(crate) fn take_skippable(words: &mut [u64; 8]) -> bool {
    let may = words[0] & SKIPPABLE != 0;
    words[0] &= !SKIPPABLE;
    may
}

/// Takes a line apart. It is the caller's copy: nothing here is read twice from shared memory.
#[inline]
pub(crate) fn parse(words: &[u64; 8]) -> Result<Descriptor, Violation> {
    let op = (words[0] >> 32) & 0xff;
    let named = |carries| Ok(Descriptor::Reference(carries, reference(words)?));
    match op {
        OP_BUFFER => named(Carries::Buffer),
        OP_AGGREGATE => named(Carries::Aggregate),
        OP_MOVED => named(Carries::Moved),
        OP_MOVED_AGGREGATE => named(Carries::MovedAggregate),
        OP_RELEASED => {
            zero(0, words[0] >> 40 << 40)?;
            for (at, word) in (3u8..).zip(&words[3..]) {
                zero(at, *word)?;
            }
            Ok(Descriptor::Released(
                (words[2] != 0).then_some(BufferId(words[2])),
            ))
        }
        OP_REMOVED => {
            zero(0, words[0] >> 40 << 40)?;
            zero(1, words[1])?;
            zero(2, words[2] >> 32 << 32)?;
            for (at, word) in (3u8..).zip(&words[3..]) {
                zero(at, *word)?;
            }
            #[allow(clippy::cast_possible_truncation)] // the low half is meant
            Ok(Descriptor::Removed(PoolId(words[2] as u32)))
        }
        OP_INLINE => {
            #[allow(clippy::cast_possible_truncation)] // masked to 8 bits
            let len = (words[0] >> 40) as u8;
            if usize::from(len) > INLINE_BYTES {
                return Err(Violation::InlineLength { bytes: len });
            }
            zero(0, words[0] >> 48 << 48)?;
            zero(7, words[7])?;
            let [_, _, words @ .., _] = *words;
            Ok(Descriptor::Inline(Inline {
                words: words.map(u64::to_le),
                len,
            }))
        }
        #[allow(clippy::cast_possible_truncation)] // masked to 8 bits
        other => Err(Violation::Operation { op: other as u8 }),
    }
}

fn reference(words: &[u64; 8]) -> Result<Reference, Violation> {
    zero(0, words[0] >> 40 << 40)?;
    zero(5, words[5] >> 32 << 32)?;
    zero(6, words[6])?;
    zero(7, words[7])?;
    // Trust: id, offset and length are checked against the pool by the receiver.
    #[allow(clippy::cast_possible_truncation)] // the low half is meant
    Ok(Reference {
        id: BufferId(words[2]),
        offset: words[3],
        length: words[4],
        serial: words[5] as u32,
    })
}

fn zero(word: u8, bits: u64) -> Result<(), Violation> {
    match bits {
        0 => Ok(()),
        _ => Err(Violation::Reserved { word, bits }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        for len in 0..=INLINE_BYTES {
            let bytes: Vec<u8> = (0u8..).take(len).collect();
            let words = inline_line(&bytes, 7);
            let Ok(Descriptor::Inline(back)) = parse(&words) else {
                panic!("not inline")
            };
            assert_eq!(&back[..], &bytes[..]);
            assert_eq!(words[1], 7);
        }
        let reference = Reference {
            id: BufferId(u64::MAX),
            offset: 1 << 40,
            length: 3,
            serial: u32::MAX,
        };
        for carries in [
            Carries::Buffer,
            Carries::Aggregate,
            Carries::Moved,
            Carries::MovedAggregate,
        ] {
            let line = reference_line(reference, carries, 0);
            assert_eq!(parse(&line), Ok(Descriptor::Reference(carries, reference)));
        }
        for id in [None, Some(BufferId(1)), Some(BufferId(u64::MAX))] {
            let line = released_line(id, 9);
            assert_eq!((parse(&line), line[1]), (Ok(Descriptor::Released(id)), 9));
        }
        for pool in [PoolId(1), PoolId(u32::MAX)] {
            assert_eq!(parse(&removed_line(pool)), Ok(Descriptor::Removed(pool)));
        }
    }

    proptest::proptest! {
        /// The fast ways take only lines that the whole way takes, with the same meaning.
        #[test]
        fn any_line_means_one_thing(words: [u64; 8], op in 0..9u64, len in 0..64u64, tidy in 0..5usize) {
            let mut words = words;
            let mut first = (op << 32) | (len << 40) | (words[0] >> 48 << 48);
            if tidy > 0 {
                first = (op << 32) | if op == OP_INLINE { len << 40 } else { 0 };
            }
            if tidy > 1 && op == OP_INLINE {
                words[7] = 0;
            }
            if tidy > 1 && op != OP_INLINE {
                (words[5], words[6], words[7]) = (words[5] & 0xffff_ffff, 0, 0);
                // The descriptor is one of them after all, in one word.
                words[3 + tidy] |= u64::from(tidy > 2) << 40;
            }
            let line = Line::default();
            for (word, value) in line.words.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            words[0] = first;
            let whole = parse(&words).ok();
            let quick = |carries| {
                let named = named(carries, first, &line);
                named.map(|(_, reference)| Descriptor::Reference(carries, reference))
            };
            let (shared, moved) = (quick(Carries::Buffer), quick(Carries::Moved));
            let short = inline(first, &line).map(|(_, bytes)| Descriptor::Inline(bytes));
            let expected = match whole {
                Some(Descriptor::Reference(Carries::Buffer, _)) => (whole, None, None),
                Some(Descriptor::Reference(Carries::Moved, _)) => (None, whole, None),
                Some(Descriptor::Inline(_)) => (None, None, whole),
                Some(
                    Descriptor::Reference(Carries::Aggregate | Carries::MovedAggregate, _)
                    | Descriptor::Released(_)
                    | Descriptor::Removed(_),
                )
                | None => (None, None, None),
            };
            assert_eq!((shared, moved, short), expected);
        }
    }

    #[test]
    fn reserved_bits_are_violations() {
        let reference = Reference {
            id: BufferId(u64::MAX),
            offset: u64::MAX,
            length: u64::MAX,
            serial: u32::MAX,
        };
        let lines = [
            inline_line(&[0xff; INLINE_BYTES], u64::MAX),
            reference_line(reference, Carries::Buffer, u64::MAX),
            reference_line(reference, Carries::Aggregate, u64::MAX),
            reference_line(reference, Carries::Moved, u64::MAX),
            reference_line(reference, Carries::MovedAggregate, u64::MAX),
            released_line(Some(BufferId(u64::MAX)), u64::MAX),
            removed_line(PoolId(u32::MAX)),
        ];
        // Bits of word 0 above the operation, and of the last three words.
        let reserved = |op: usize| match op {
            0 => vec![(0, 48..64), (7, 0..64)],
            5 => vec![
                (0, 40..64),
                (3, 0..64),
                (4, 0..64),
                (5, 0..64),
                (6, 0..64),
                (7, 0..64),
            ],
            6 => vec![
                (0, 40..64),
                (1, 0..64),
                (2, 32..64),
                (3, 0..64),
                (4, 0..64),
                (5, 0..64),
                (6, 0..64),
                (7, 0..64),
            ],
            _ => vec![(0, 40..64), (5, 32..64), (6, 0..64), (7, 0..64)],
        };
        for (op, good) in lines.iter().enumerate() {
            assert!(parse(good).is_ok());
            for (word, bits) in reserved(op) {
                for bit in bits {
                    let mut line = *good;
                    line[word] |= 1 << bit;
                    let word = u8::try_from(word).expect("8 words");
                    let bits = 1 << bit;
                    assert_eq!(parse(&line), Err(Violation::Reserved { word, bits }));
                }
            }
        }
    }

    #[test]
    fn wild_lines_are_violations() {
        for op in [0, 8, 255] {
            let line = [u64::from(op) << 32, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!(parse(&line), Err(Violation::Operation { op }));
        }
        assert_eq!(
            parse(&[(1 << 32) | (41 << 40), 0, 0, 0, 0, 0, 0, 0]),
            Err(Violation::InlineLength { bytes: 41 })
        );
    }
}
