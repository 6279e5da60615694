//! What the two libraries say to each other. A pure codec; whatever does not decode is a violation.

use crate::{Agreement, Code, Wish, backend::Frame};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Both ends must speak the same.
pub(crate) const VERSION: u16 = 1;
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

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    Assign(PoolInfo),
    /// With the receiver's own memory, where each end has its own.
    AssignAnswer(u64, Result<(), u16>),
    /// With the pool's memory.
    Show(u64),
    Shown(u64, Result<(), u16>),
    Remove(u64),
    RemoveAnswer(u64, Result<(), u16>),
    RemoveDecision(u64, bool),
    Transfer {
        how: Transfer,
        pool: u64,
        index: u32,
        meta: Vec<u8>,
        /// The buffer's bytes, where frames carry them.
        data: Vec<u8>,
    },
    Teardown,
    Finished,
}

impl Message {
    pub(crate) fn frame(&self, fds: Vec<Arc<OwnedFd>>) -> Result<Frame, Code> {
        let bytes = postcard::to_allocvec(self).map_err(|_| Code::Memory)?;
        Ok(Frame { bytes, fds })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
        let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(message)
    }
}

/// As it travels.
pub(crate) fn number(result: Result<(), Code>) -> Result<(), u16> {
    result.map_err(|code| code as u16)
}

/// As it arrives; a number without a meaning is the peer's mistake, and still a refusal.
pub(crate) fn code(number: u16) -> Code {
    Code::from_number(number).unwrap_or(Code::PeerViolation)
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
            meta: vec![1, 2, 3],
            data: Vec::new(),
        };
        let frame = message.frame(Vec::new()).expect("frame");
        assert_eq!(Message::decode(&frame.bytes), Some(message));
        let mut long = frame.bytes.clone();
        long.push(0);
        assert_eq!(Message::decode(&long), None);
        for cut in 0..frame.bytes.len() {
            assert_eq!(Message::decode(&frame.bytes[..cut]), None);
        }
        assert_eq!(Message::decode(&[200]), None);
        assert_eq!(code(0), Code::PeerViolation);
    }
}
