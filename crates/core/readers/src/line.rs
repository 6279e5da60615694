//! The content of a line of the ring.

use tranship_core::topics::Named;
use tranship_core::{BufferId, INLINE_BYTES};
use tranship_ring::broadcast::{CONTENT, Message};

/// Bits 48 and up of word 0: the operation.
const OPERATION: u32 = 48;
/// Bits 54 and up of word 0: the number of inline bytes.
const LENGTH: u32 = 54;
const INLINE: u64 = 1;
const BUFFER: u64 = 2;
const LIST: u64 = 3;
/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Bytes in the line itself. The number says how many.
    Inline([u8; INLINE_BYTES], usize),
    /// A buffer.
    Buffer(Named),
    /// The list of an aggregate's pieces.
    List(Named),
}

/// Returns a line with a few bytes, at most [`INLINE_BYTES`].
pub fn inline(bytes: &[u8], word: u64) -> Message {
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
#[inline(always)]
pub fn buffer(named: Named, word: u64) -> Message {
    names(BUFFER, named, word)
}

/// Returns a line that names the list of an aggregate's pieces.
pub fn list(named: Named, word: u64) -> Message {
    names(LIST, named, word)
}

#[inline(always)]
fn names(operation: u64, named: Named, word: u64) -> Message {
    Message {
        kind: operation << OPERATION,
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

/// Takes a line apart: its word, and its content. None: no publisher writes such a line.
#[inline]
pub fn parse(message: &Message) -> Option<(u64, Said)> {
    let Message { kind, content } = message;
    let operation = kind >> OPERATION & 0x3f;
    let said = match operation {
        BUFFER => Said::Buffer(named(content)?),
        LIST => Said::List(named(content)?),
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

#[inline(always)]
fn named(content: &[u64; CONTENT]) -> Option<Named> {
    Some(Named {
        id: BufferId(content[1]),
        offset: content[2],
        length: content[3],
        serial: u32::try_from(content[4]).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_core::PoolId;
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
        assert_eq!(parse(&list(named, 61)), Some((61, Said::List(named))));
        for len in [0, 1, INLINE_BYTES] {
            let bytes: Vec<u8> = (1..).take(len).collect();
            let line = inline(&bytes, u64::MAX);
            assert_eq!(line.kind & (SEQUENCES | WITHDRAWN), 0, "the ring's bits");
            let Some((u64::MAX, Said::Inline(all, n))) = parse(&line) else {
                panic!("{line:?}");
            };
            assert_eq!(all[..n], bytes);
        }
        for kind in [0, 4 << OPERATION, INLINE << OPERATION | 41 << LENGTH] {
            let content = [0; CONTENT];
            assert_eq!(parse(&Message { kind, content }), None);
        }
    }
}
