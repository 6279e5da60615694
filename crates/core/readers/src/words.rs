//! A writer's words to one reader, beside the ring.

use tranship_core::PoolId;

/// The place at which a reader begins, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go {
    /// The first line that the reader may claim.
    pub position: u64,
    /// The writer's pool.
    pub pool: PoolId,
    /// The number of buffers that the reader may keep, in addition to those for which its desk has entries.
    pub keep: u32,
    /// A word of the kind of writer.
    pub mark: u16,
}

/// A writer's word to one reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The writer reads the reader's desk from now on.
    Go(Go),
    /// A word of the kind of writer.
    Other(u64),
    /// The writer has ended the connection, because the reader's domain holds more buffers than was agreed.
    Expelled,
}

/// Bytes of a word's message.
const BYTES: usize = 11;

impl Word {
    /// Returns the bytes and the word of the message.
    pub fn pack(self) -> ([u8; BYTES], u64) {
        let mut bytes = [0; BYTES];
        let (code, word) = match self {
            Word::Go(go) => {
                bytes[1..5].copy_from_slice(&go.pool.0.to_le_bytes());
                bytes[5..9].copy_from_slice(&go.keep.to_le_bytes());
                bytes[9..].copy_from_slice(&go.mark.to_le_bytes());
                (1, go.position)
            }
            Word::Other(word) => (2, word),
            Word::Expelled => (3, 0),
        };
        bytes[0] = code;
        (bytes, word)
    }

    /// Takes a message apart. `None`: no writer says this.
    pub fn parse(bytes: &[u8], word: u64) -> Option<Word> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| {
            let four = bytes[at..].first_chunk::<4>();
            four.map(|four| u32::from_le_bytes(*four))
        };
        Some(match bytes[0] {
            1 => Word::Go(Go {
                position: word,
                pool: PoolId(number(1)?),
                keep: number(5)?,
                mark: u16::from_le_bytes([bytes[9], bytes[10]]),
            }),
            2 => Word::Other(word),
            3 => Word::Expelled,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_was_put_into_them() {
        let go = Word::Go(Go {
            position: 1 << 50,
            pool: PoolId(77),
            keep: 64,
            mark: 0xabcd,
        });
        for word in [go, Word::Other(63), Word::Expelled] {
            let (bytes, number) = word.pack();
            assert_eq!(Word::parse(&bytes, number), Some(word));
        }
        assert_eq!(Word::parse(&[9; BYTES], 0), None);
        assert_eq!(Word::parse(&[], 0), None);
    }
}
