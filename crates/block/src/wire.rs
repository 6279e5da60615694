//! What client and server say to each other: the metadata of the buffers that travel. A pure codec.
//!
//! An answer comes with the buffer of its question, so that no numbers are needed to tell them apart.

use crate::{Fault, Info, Request};
use serde::{Deserialize, Serialize};

/// Both ends must speak the same.
pub(crate) const VERSION: u16 = 2;
/// The longest metadata, bytes: a request for the largest buffer, with all its checksums.
pub(crate) const META_BYTES: u32 = 512;
/// The largest buffers, bytes. Their checksums, five bytes each, fit into the metadata.
pub(crate) const MAX_BUFFER_BYTES: u64 = 256 << 10;

/// From the client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// The first on every channel. Channels of the same session that are older are over: nothing that still waits in
    /// them is done after the answer.
    Hello {
        version: u16,
        session: u64,
        /// The same on all channels of a client.
        client: u64,
        /// It wants leases.
        caches: bool,
    },
    /// A request.
    Do(Request),
}

/// From the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Say {
    /// A buffer for the client to ask with.
    Credit,
    /// To `Hello`. The number is that of the opening of the disk, as long as it is open; without one there are no leases.
    Welcome(Info, Option<u128>),
    /// To `Do`, with the checksums of what was read; and with a lease, if the client gets one: how many writes of others were
    /// done when the question came.
    Done(Result<Vec<u32>, Fault>, Option<u64>),
    /// `Hello` of a version that is not spoken here.
    Version(u16),
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Only memory can be missing.
    postcard::to_allocvec(message).unwrap_or_default()
}

/// None: nothing that can be said.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK_BYTES, Op};

    #[test]
    fn the_longest_message_fits() {
        let blocks = usize::try_from(MAX_BUFFER_BYTES).expect("small") / BLOCK_BYTES;
        let request = Request {
            op: Op::Zero { punch: true },
            offset: u64::MAX,
            len: u32::MAX,
            durable: true,
            // A request that begins inside a block has one more.
            sums: vec![u32::MAX; blocks + 1],
        };
        let limit = usize::try_from(META_BYTES).expect("small");
        assert!(encode(&Ask::Do(request)).len() <= limit);
        assert!(encode(&Say::Done(Ok(vec![u32::MAX; blocks + 1]), Some(u64::MAX))).len() <= limit);
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
