//! Codec of the messages between client and server: pure functions.
//!
//! A message without data is inline. Data comes first in its buffer, so that it lies at a page, and the message's
//! fields follow it. Data that an end passes on is the first of two pieces, and its message's fields are the second. The message's word has the number of a question, which its answer has, too, and the number of data
//! bytes.

use crate::limits::{HEAD_BYTES, MAX_DATA_BYTES};
use crate::{Fault, Info, Request};
use serde::{Deserialize, Serialize};
use tranship_core::{Body, Buffer, Error, ErrorKind, Message, Trust};

/// Version that both ends must speak.
pub(crate) const VERSION: u16 = 5;
/// Bits of the word for the length; the others are the number's.
const LEN_BITS: u32 = 20;

/// Message from the client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// First message.
    Hello(Hello),
    /// A request to do.
    Do(Request),
}

/// Introduction of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub version: u16,
    /// Ticket that came by the channel of the answers.
    #[serde(with = "postcard::fixint::le")]
    pub ticket: u128,
    /// Number of the session. Older channels of the same session are over: no request that still waits in them is done
    /// after the answer.
    #[serde(with = "postcard::fixint::le")]
    pub session: u64,
    /// Number that is the same in all sessions of a client.
    #[serde(with = "postcard::fixint::le")]
    pub client: u64,
    /// The client wants leases.
    pub caches: bool,
}

/// Message from the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Say {
    /// First message: the client that shows this number at the channel of the questions is answered here.
    Ticket(u128),
    /// Answer to `Hello`. The number is that of the opening of the disk, as long as it is open; without one there are
    /// no leases.
    Welcome(Info, Option<u64>),
    /// Answer to `Do`, with the checksums of the data that was read. If the client gets a lease, it has the number of
    /// writes of others that were done when the question came.
    Done(Result<Vec<u32>, Fault>, Option<u64>),
    /// Answer to a `Hello` of a version that is not spoken here.
    Version(u16),
    /// The client takes no pool of this level, which is the server's.
    Trust(Trust),
}

/// Returns a message's word.
pub(crate) fn word(number: u64, len: usize) -> u64 {
    number << LEN_BITS | len as u64
}

/// Returns the number in a word.
pub(crate) fn number(word: u64) -> u64 {
    word >> LEN_BITS
}

/// Decodes a message into its content, its question's number, and its data. None: the message is not valid.
pub(crate) fn open<T: for<'a> Deserialize<'a>>(
    message: Message,
) -> Option<(T, u64, Option<Buffer>)> {
    let number = number(message.word);
    match message.body {
        Body::Inline(bytes) => Some((decode(&bytes)?, number, None)),
        Body::Buffer(buffer) => {
            let len = usize::try_from(message.word % (1 << LEN_BITS)).ok()?;
            let head_len = buffer.len().checked_sub(len)?;
            // Read once: its sender may be able to change it.
            let mut head = [0; HEAD_BYTES];
            let head = head.get_mut(..head_len).filter(|_| len <= MAX_DATA_BYTES)?;
            buffer.view().copy_to_slice(len, head).ok()?;
            Some((decode(head)?, number, Some(buffer.slice(..len))))
        }
        Body::Aggregate(both) if both.pieces().len() == 2 => {
            let (data, own) = (both.pieces().front()?, both.pieces().back()?);
            let len = usize::try_from(message.word % (1 << LEN_BITS)).ok()?;
            let mut head = [0; HEAD_BYTES];
            let is_whole = len <= MAX_DATA_BYTES && data.len() == len;
            let head = head.get_mut(..own.len()).filter(|_| is_whole)?;
            own.view().copy_to_slice(0, head).ok()?;
            Some((decode(head)?, number, Some(data.clone())))
        }
        Body::Aggregate(_) | Body::BufferMut(_) | Body::AggregateMut(_) | Body::Released(_) => None,
    }
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Encoding fails only for lack of memory.
    postcard::to_allocvec(message).unwrap_or_default()
}

/// Decodes bytes. None: they are not valid.
fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// Returns the error for an other end that broke the protocol.
pub(crate) fn violation(who: &str, what: &str) -> Error {
    let text = format!("{who} broke the protocol of blocks: {what}");
    Error::new(ErrorKind::PeerViolation, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK_BYTES, Op};
    use tranship_core::INLINE_BYTES;

    #[test]
    fn the_longest_messages_fit() {
        let blocks = MAX_DATA_BYTES / BLOCK_BYTES;
        let mut request = Request {
            op: Op::Zero { punch: true },
            offset: u64::MAX,
            len: u32::MAX,
            durable: true,
            // A request that begins inside a block has one piece more.
            sums: vec![u32::MAX; blocks + 1],
        };
        let done = Say::Done(Ok(vec![u32::MAX; blocks + 1]), Some(u64::MAX));
        assert!(encode(&Ask::Do(request.clone())).len() <= HEAD_BYTES);
        assert!(encode(&done).len() <= HEAD_BYTES);
        request.sums.clear();
        let hello = Ask::Hello(Hello {
            version: u16::MAX,
            ticket: u128::MAX,
            session: u64::MAX,
            client: u64::MAX,
            caches: true,
        });
        for ask in [Ask::Do(request), hello] {
            assert!(encode(&ask).len() <= INLINE_BYTES, "{ask:?}");
        }
        let info = Info {
            size: u64::MAX,
            read_only: true,
            boot: u128::MAX,
        };
        let bounds = Fault::Bounds {
            offset: u64::MAX,
            len: u64::MAX,
            size: u64::MAX,
        };
        for say in [
            Say::Ticket(u128::MAX),
            Say::Welcome(info, Some(u64::MAX)),
            Say::Done(Err(bounds), Some(u64::MAX)),
            Say::Done(Ok(Vec::new()), Some(u64::MAX)),
            Say::Version(u16::MAX),
            Say::Trust(Trust::None),
        ] {
            assert!(encode(&say).len() <= INLINE_BYTES, "{say:?}");
        }
    }

    #[test]
    fn a_word_has_a_number_and_a_length() {
        let most = (1 << (u64::BITS - LEN_BITS)) - 1;
        for len in [0, 1, MAX_DATA_BYTES] {
            assert_eq!(number(word(most, len)), most);
            assert_eq!(word(0, len), len as u64);
        }
    }

    #[test]
    fn garbage_is_nothing() {
        let ask = Ask::Do(Request::new(Op::Write, 5, 6));
        let bytes = encode(&ask);
        assert_eq!(decode::<Ask>(&bytes), Some(ask));
        for cut in 0..bytes.len() {
            assert_eq!(decode::<Ask>(&bytes[..cut]), None);
        }
        assert_eq!(decode::<Ask>(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(decode::<Say>(&[9; 40]), None);
    }
}
