//! Image that a server hands over to its successor, as bytes: the records of its values and of its clients. Pure
//! functions.
//!
//! ```text
//!   magic │ format │ checksum of the rest │ counts │ items │ connections          numbers are little-endian
//! ```
//!
//! The reader believes none of it: a count, a length or a place that cannot be is an error or is left out, never more
//! than that.

use tranship_zcopy::ValuePlace;

/// Version of the bytes, and of the messages around them. One server hands over to another only if both have the same.
pub const FORMAT: u32 = 2;
const MAGIC: [u8; 8] = *b"ts-cache";
/// Magic, format, checksum.
const HEAD: usize = 8 + 4 + 8;
/// Most connections in an image.
const CONNECTIONS: u32 = 1 << 20;

/// State of a server for its successor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Image {
    /// The next unique number.
    pub numbers: u64,
    /// Seconds until all is to be forgotten; 0: never.
    pub flush_in: u64,
    /// Stored items, by shards; in each shard the item that is evicted first comes first.
    pub items: Vec<Kept>,
    /// Clients, in the order of their descriptors.
    pub connections: Vec<Client>,
}

/// A key, and the place of its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The key.
    pub key: Box<[u8]>,
    /// The client's word.
    pub flags: u32,
    /// Unique number of the value.
    pub cas: u64,
    /// Seconds until it expires; 0: never.
    pub expires_in: u32,
    /// Seconds since it was last read.
    pub idle: u32,
    /// The item was read since it was stored.
    pub fetched: bool,
    /// The item was marked as stale.
    pub stale: bool,
    /// A client was told to renew it.
    pub won: bool,
    /// The item was asked for more than once.
    pub protected: bool,
    /// Place of the value in the arena.
    pub place: ValuePlace,
}

/// State of a conversation with a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Client {
    /// Meaning of the client's next bytes.
    pub next: Next,
    /// The client has announced that it ends.
    pub ending: bool,
    /// Bytes of the client that are not answered yet.
    pub input: Vec<u8>,
    /// Answers that it has not taken.
    pub replies: Vec<u8>,
}

/// Meaning of a client's next bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Next {
    /// A command.
    #[default]
    Line,
    /// This many bytes that are no command.
    Swallow(u64),
    /// Bytes up to the end of a line, which are no command.
    SwallowLine,
}

/// Reason for which an image cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// The bytes do not begin with the magic number.
    #[error("it is no image of a cache server")]
    Magic,
    /// The image is of another version.
    #[error("it has format {0}, and this server reads format {FORMAT}")]
    Format(u32),
    /// The bytes changed on their way.
    #[error("its checksum is wrong")]
    Checksum,
    /// The bytes end too early, or contain an impossible number.
    #[error("it is damaged at byte {0}")]
    Damaged(usize),
}

impl Image {
    /// Encodes the image as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut all = vec![0; HEAD];
        let number = |all: &mut Vec<u8>, number: u64| all.extend(number.to_le_bytes());
        number(&mut all, self.numbers);
        number(&mut all, self.flush_in);
        number(&mut all, self.items.len() as u64);
        number(&mut all, self.connections.len() as u64);
        for item in &self.items {
            all.push(u8::try_from(item.key.len()).unwrap_or(0));
            all.extend_from_slice(&item.key);
            let bits = [item.fetched, item.stale, item.won, item.protected];
            let bits = bits
                .iter()
                .rev()
                .fold(0, |all, bit| all << 1 | u8::from(*bit));
            all.push(bits);
            all.extend(item.flags.to_le_bytes());
            all.extend(item.cas.to_le_bytes());
            all.extend(item.expires_in.to_le_bytes());
            all.extend(item.idle.to_le_bytes());
            all.extend(item.place.offset.to_le_bytes());
            all.extend(item.place.len.to_le_bytes());
            all.extend(item.place.kind.to_le_bytes());
        }
        for client in &self.connections {
            let (kind, bytes) = match client.next {
                Next::Line => (0, 0),
                Next::Swallow(bytes) => (1, bytes),
                Next::SwallowLine => (2, 0),
            };
            all.push(kind | u8::from(client.ending) << 7);
            number(&mut all, bytes);
            for bytes in [&client.input, &client.replies] {
                number(&mut all, bytes.len() as u64);
                all.extend_from_slice(bytes);
            }
        }
        let sum = sum(&all[HEAD..]);
        all[..8].copy_from_slice(&MAGIC);
        all[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        all[12..HEAD].copy_from_slice(&sum.to_le_bytes());
        all
    }

    /// Decodes an image.
    ///
    /// # Errors
    /// [`Unreadable`], if they are none.
    pub fn decode(bytes: &[u8]) -> Result<Image, Unreadable> {
        let mut from = Reader { bytes, at: 0 };
        if from.take(8) != Some(&MAGIC[..]) {
            return Err(Unreadable::Magic);
        }
        let format = from.u32().ok_or(Unreadable::Magic)?;
        if format != FORMAT {
            return Err(Unreadable::Format(format));
        }
        if from.u64() != bytes.get(HEAD..).map(sum) {
            return Err(Unreadable::Checksum);
        }
        match from.image() {
            Some(image) if from.at == bytes.len() => Ok(image),
            _ => Err(Unreadable::Damaged(from.at)),
        }
    }
}

/// Returns Fowler, Noll and Vo's hash, of words: it finds accidental cuts and changes.
fn sum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for word in bytes.chunks(8) {
        let mut whole = [0; 8];
        whole[..word.len()].copy_from_slice(word);
        sum = (sum ^ u64::from_le_bytes(whole)).wrapping_mul(0x0000_0100_0000_01b3);
        sum ^= sum >> 29;
    }
    sum ^ bytes.len() as u64
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.u64()?).ok()?;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn image(&mut self) -> Option<Image> {
        let (numbers, flush_in) = (self.u64()?, self.u64()?);
        let (items, connections) = (self.u64()?, self.u64()?);
        if connections > u64::from(CONNECTIONS) {
            return None;
        }
        // No reservation for a count that is only claimed: each item takes bytes that must be there.
        let items = (0..items).map(|_| self.item()).collect::<Option<_>>()?;
        let connections = (0..connections)
            .map(|_| self.client())
            .collect::<Option<_>>()?;
        Some(Image {
            numbers,
            flush_in,
            items,
            connections,
        })
    }

    fn item(&mut self) -> Option<Kept> {
        let len = usize::from(self.u8()?);
        let key = self.take(len)?.into();
        let bits = self.u8()?;
        let bit = |at: u8| bits >> at & 1 == 1;
        Some(Kept {
            key,
            flags: self.u32()?,
            cas: self.u64()?,
            expires_in: self.u32()?,
            idle: self.u32()?,
            fetched: bit(0),
            stale: bit(1),
            won: bit(2),
            protected: bit(3),
            place: ValuePlace {
                offset: self.u64()?,
                len: self.u64()?,
                kind: self.u32()?,
            },
        })
    }

    fn client(&mut self) -> Option<Client> {
        let (kind, bytes) = (self.u8()?, self.u64()?);
        Some(Client {
            next: match kind & 0x7f {
                0 => Next::Line,
                1 => Next::Swallow(bytes),
                2 => Next::SwallowLine,
                _ => return None,
            },
            ending: kind & 0x80 != 0,
            input: self.long()?,
            replies: self.long()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image() -> impl Strategy<Value = Image> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
        let item = (
            bytes(),
            any::<(u32, u64, u32, u32)>(),
            any::<(bool, bool, bool, bool)>(),
            any::<(u64, u64, u32)>(),
        );
        let item = item.prop_map(|(key, (flags, cas, expires_in, idle), bits, place)| Kept {
            key: key.into(),
            flags,
            cas,
            expires_in,
            idle,
            fetched: bits.0,
            stale: bits.1,
            won: bits.2,
            protected: bits.3,
            place: ValuePlace {
                offset: place.0,
                len: place.1,
                kind: place.2,
            },
        });
        let next = prop_oneof![
            Just(Next::Line),
            Just(Next::SwallowLine),
            any::<u64>().prop_map(Next::Swallow)
        ];
        let client = (next, any::<bool>(), bytes(), bytes());
        let client = client.prop_map(|(next, ending, input, replies)| Client {
            next,
            ending,
            input,
            replies,
        });
        (
            any::<(u64, u64)>(),
            proptest::collection::vec(item, 0..8),
            proptest::collection::vec(client, 0..4),
        )
            .prop_map(|((numbers, flush_in), items, connections)| Image {
                numbers,
                flush_in,
                items,
                connections,
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(image in image()) {
            prop_assert_eq!(Image::decode(&image.encode()), Ok(image));
        }

        #[test]
        fn what_was_changed_or_cut_is_refused(
            image in image(),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let bytes = image.encode();
            let at = at.index(bytes.len());
            prop_assert!(Image::decode(&bytes[..at]).is_err());
            let mut bent = bytes.clone();
            bent[at] ^= 1 << bit;
            prop_assert!(Image::decode(&bent).is_err());
        }

        #[test]
        fn what_lies_with_a_right_checksum_is_an_error_at_most(
            image in image(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = image.encode();
            let at = HEAD + at.index(bytes.len() - HEAD);
            bytes[at] = to;
            let sum = sum(&bytes[HEAD..]);
            bytes[12..HEAD].copy_from_slice(&sum.to_le_bytes());
            let _ = Image::decode(&bytes);
        }
    }

    #[test]
    fn another_format_is_named() {
        let mut bytes = Image::default().encode();
        bytes[8] = 9;
        assert_eq!(Image::decode(&bytes), Err(Unreadable::Format(9)));
    }
}
