//! What the two libraries say to each other. A pure codec; whatever does not decode is a violation.

use crate::{Agreement, Error, Kind, Meta, Piece, Wish};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_transport::{Frame, FrameBytes};

/// Both ends must speak the same.
pub(crate) const VERSION: u16 = 3;
/// The longest metadata of an operation, bytes.
pub(crate) const MAX_META_BYTES: u32 = 2048;

/// What one end says about a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolInfo {
    /// The same in all domains.
    pub id: u64,
    pub buffers: u32,
    pub buffer_bytes: u64,
    /// May its receivers assign it to further channels?
    pub forward: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Transfer {
    Move,
    Pass,
    Copy,
    Release,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Bind {
        version: u16,
        domain: u64,
        wish: Wish,
    },
    BindAnswer {
        domain: u64,
        meta_bytes: u32,
        /// Is the binder the source?
        source: bool,
        answer: Result<Agreement, u16>,
    },
    /// And whether each buffer is a sealed memfd by itself.
    Assign(PoolInfo, bool),
    /// With the staging memory of who answers, if that is the source, at level `none`.
    AssignAnswer(u64, Result<(), u16>),
    /// With the pool's memory, unless its buffers come one by one; at level `none` with the staging memory of who assigns, if that
    /// is the source. Or why there is none.
    Show(u64, Result<(), u16>),
    Shown(u64, Result<(), u16>),
    Remove(u64),
    RemoveAnswer(u64, Result<(), u16>),
    RemoveDecision(u64, bool),
    Teardown,
    Finished,
    /// What the parts since the last one make.
    Aggregate {
        copies: bool,
        pieces: Vec<Piece>,
        meta: Vec<u8>,
    },
    /// Not encoded as the others are, but see [`Head`]: what is said most.
    #[serde(skip)]
    Transfer {
        how: Transfer,
        pool: u64,
        index: u32,
        meta: Meta,
        /// Of an aggregate, which is told with its last message.
        part: bool,
    },
}

/// How a transfer begins: a first byte that no other message has, which transfer ([`PART`] is set for parts), the length of the metadata (2
/// bytes), the buffer's place (4 bytes), its pool (8 bytes), all little-endian. The metadata follows.
struct Head {
    how: Transfer,
    part: bool,
    meta_len: u16,
    index: u32,
    pool: u64,
}

const TRANSFER: u8 = 0xf0;
const PART: u8 = 0x10;
const HEAD_BYTES: usize = 16;

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        (out[0], out[1]) = (TRANSFER, self.how as u8 | if self.part { PART } else { 0 });
        out[2..4].copy_from_slice(&self.meta_len.to_le_bytes());
        out[4..8].copy_from_slice(&self.index.to_le_bytes());
        out[8..].copy_from_slice(&self.pool.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [_, how, a, b, c, d, e, f, pool @ ..] = *head;
        let head = Head {
            how: *Transfer::ALL.get(usize::from(how & !PART))?,
            part: how & PART != 0,
            meta_len: u16::from_le_bytes([a, b]),
            index: u32::from_le_bytes([c, d, e, f]),
            pool: u64::from_le_bytes(pool),
        };
        Some((head, rest))
    }
}

impl Transfer {
    const ALL: [Transfer; 4] = [
        Transfer::Move,
        Transfer::Pass,
        Transfer::Copy,
        Transfer::Release,
    ];
}

impl Message {
    pub(crate) fn frame(&self, fds: Vec<Arc<OwnedFd>>) -> Result<Frame, Error> {
        let bytes = match self {
            Message::Transfer {
                how,
                pool,
                index,
                meta,
                part,
            } => {
                let head = Head {
                    how: *how,
                    part: *part,
                    meta_len: u16::try_from(meta.len()).map_err(Error::of(Kind::BadArgument))?,
                    index: *index,
                    pool: *pool,
                };
                let mut bytes = FrameBytes::from_slice(&head.encode());
                bytes.extend_from_slice(meta);
                bytes
            }
            other => postcard::to_allocvec(other)
                .map_err(Error::of(Kind::OutOfMemory))?
                .into(),
        };
        Ok(Frame {
            bytes,
            fds,
            payload: None,
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
        if bytes.first() == Some(&TRANSFER) {
            let (head, meta) = Head::decode(bytes)?;
            let whole = meta.len() == usize::from(head.meta_len);
            return whole.then(|| Message::Transfer {
                how: head.how,
                pool: head.pool,
                index: head.index,
                meta: meta.into(),
                part: head.part,
            });
        }
        let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(message)
    }
}

/// As it travels.
pub(crate) fn number(result: &Result<(), Error>) -> Result<(), u16> {
    result
        .as_ref()
        .map_err(|error| error.kind().number())
        .copied()
}

/// As it arrives; a number without a meaning is the peer's mistake, and still a refusal.
pub(crate) fn refused(number: u16) -> Error {
    match Kind::from_u16(number) {
        Some(kind) => Error::because(kind, "the other end refused", kind),
        None => Error::new(
            Kind::PeerViolation,
            format!("the other end refused with the number {number}, which no kind of error has"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_none() {
        let message = Message::Transfer {
            how: Transfer::Move,
            pool: 7,
            index: 3,
            meta: vec![1, 2, 3].into(),
            part: false,
        };
        let frame = message.frame(Vec::new()).expect("frame");
        assert_eq!(Message::decode(&frame.bytes).as_ref(), Some(&message));
        let mut long = frame.bytes.clone();
        long.push(0);
        assert_eq!(Message::decode(&long), None);
        for cut in 0..frame.bytes.len() {
            assert_eq!(Message::decode(&frame.bytes[..cut]), None);
        }
        assert_eq!(Message::decode(&[200]), None);
        assert_eq!(refused(0), Kind::PeerViolation);
    }
}
