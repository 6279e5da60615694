//! The encoding: one message in one datagram, in postcard form, with nothing after the end and a bounded length.

use crate::text::text_fault;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

/// The longest message. A claim of a reader with very many chunks is split by its sender.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Names of domains, pools and exports: 1 to this many bytes of printable UTF-8.
pub const MAX_NAME_BYTES: usize = 64;
/// Most bytes of an address with a scheme, and of a carrier's name for a place.
pub const MAX_ADDRESS_BYTES: usize = 400;
/// Most descriptors in one message.
pub const MAX_FDS: usize = 16;

/// A datagram that is not a message.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// Longer than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {bytes} bytes, the limit is {MAX_MESSAGE_BYTES}")]
    TooLong {
        /// The message's length.
        bytes: usize,
    },
    /// The bytes are not a message of this version.
    #[error("{bytes} bytes that are not a message of this version: {why}")]
    Malformed {
        /// The message's length.
        bytes: usize,
        /// The codec's error.
        why: postcard::Error,
    },
    /// Bytes after the message's end.
    #[error("{bytes} bytes after the end of the message")]
    Trailing {
        /// The number of bytes.
        bytes: usize,
    },
}

/// Encodes a message. Panics only on an own message above the limit, which is an error of the caller.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let bytes = postcard::to_allocvec(message).expect("our own message types always encode");
    assert!(
        bytes.len() <= MAX_MESSAGE_BYTES,
        "own message of {} bytes is above {MAX_MESSAGE_BYTES}",
        bytes.len()
    );
    bytes
}

/// Reads a list with one descriptor for each entry.
pub(crate) fn as_many_as_descriptors<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let all = Vec::deserialize(from)?;
    match all.len() <= MAX_FDS {
        true => Ok(all),
        false => Err(D::Error::invalid_length(all.len(), &"at most 16 entries")),
    }
}

/// Decodes one datagram.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLong { bytes: bytes.len() });
    }
    let (message, rest) =
        postcard::take_from_bytes(bytes).map_err(|why| DecodeError::Malformed {
            bytes: bytes.len(),
            why,
        })?;
    if !rest.is_empty() {
        return Err(DecodeError::Trailing { bytes: rest.len() });
    }
    Ok(message)
}

/// Says whether a name may be used: 1 to [`MAX_NAME_BYTES`] bytes without a [fault](text_fault).
pub fn check_name(name: &str) -> bool {
    check_text(name, MAX_NAME_BYTES)
}

/// Checks a text like a name, with another length.
pub fn check_text(text: &str, most_bytes: usize) -> bool {
    !text.is_empty() && text.len() <= most_bytes && text_fault(text).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolId, Req, Request};

    #[test]
    fn no_more_chunks_than_a_message_has_descriptors() {
        for (count, is_one) in [(16, true), (17, false)] {
            let message = Request::ShowChunks {
                req: Req(1),
                pool: PoolId(2),
                chunks: (0..count).map(|n| (n, n)).collect(),
                least: 1,
            };
            let decoded = decode::<Request>(&encode(&message));
            assert_eq!(decoded.is_ok(), is_one, "{decoded:?}");
        }
    }
}
