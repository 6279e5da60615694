//! The messages between the manager and a worker.

use crate::state::Facts;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
pub(super) use tranship_proto::encode;
use tranship_proto::{MAX_MESSAGE_BYTES, decode};
use tranship_sys::socket::Received;

/// The longest message of a client, plus one byte that reveals a longer one.
pub(super) const MESSAGE_BYTES: usize = MAX_MESSAGE_BYTES + 1;
/// The most bytes before a client's message.
const HEAD_BYTES: usize = 1024;
pub(super) const MAX_BYTES: usize = 2 + HEAD_BYTES + MESSAGE_BYTES;
/// Most descriptors with facts, and most that are handed on.
pub(super) const MAX_CARRIED: usize = tranship_proto::MAX_FDS;

/// The manager's request to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// Take a message from the connection that came along.
    Carry { client: u64 },
    /// Close the descriptors that came along, once the manager has let go of them.
    Close,
    /// The manager has let go.
    LetGo,
}

/// A worker's report about a client's message.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Head {
    pub client: u64,
    /// The connection was read to its end, or is broken.
    pub ended: bool,
    pub truncated: bool,
    pub ctrunc: bool,
    /// Number of received descriptors, without the pidfd.
    pub came: u32,
    /// Facts of the first ones; those with facts are handed on.
    pub facts: Vec<Option<Facts>>,
    /// The sender's pidfd is handed on after them.
    pub pidfd: bool,
    /// Nothing is left to be closed: the worker waits for work.
    pub idle: bool,
}

/// A client's message, with the descriptors that were worth handing on.
#[derive(Debug)]
pub(in crate::shell) struct Carried {
    pub ended: bool,
    pub bytes: Vec<u8>,
    pub truncated: bool,
    pub ctrunc: bool,
    pub came: usize,
    pub fds: Vec<(Facts, Option<OwnedFd>)>,
    pub pidfd: Option<OwnedFd>,
}

pub(super) fn write(head: &Head, message: &[u8]) -> Vec<u8> {
    let head = encode(head);
    let len = u16::try_from(head.len()).unwrap_or(0);
    [&len.to_le_bytes(), &head[..], message].concat()
}

/// Reads the client, its message, and whether the worker is idle; `None` if the worker only says that it is.
pub(super) fn read(bytes: &[u8], received: Received) -> Option<(u64, Carried, bool)> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let (head, message) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
    let head: Head = decode(head).ok()?;
    let mut given = received.fds.into_iter();
    let fds = head
        .facts
        .into_iter()
        .map(|facts| match facts {
            Some(facts) => (facts, given.next()),
            None => (Facts::default(), None),
        })
        .collect();
    let carried = Carried {
        ended: head.ended,
        bytes: message.to_vec(),
        truncated: head.truncated,
        // Descriptors without room here are as lost as those without room in the worker.
        ctrunc: head.ctrunc || received.ctrunc,
        came: head.came as usize,
        fds,
        pidfd: given.next().filter(|_| head.pidfd),
    };
    Some((head.client, carried, head.idle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Header, Sealed};

    #[test]
    fn all_that_is_found_has_room_before_the_message() {
        let facts = Facts {
            sealed: Sealed::Shared,
            size: u64::MAX,
            header: Some(Header {
                kind: u32::MAX,
                count: u32::MAX,
                max_bytes: u64::MAX,
                chunk_bytes: u64::MAX,
            }),
            made_here: false,
            inode: u64::MAX,
        };
        let head = Head {
            client: u64::MAX,
            came: u32::MAX,
            facts: vec![Some(facts); MAX_CARRIED],
            ..Head::default()
        };
        let written = write(&head, &[0; MESSAGE_BYTES]);
        assert!(written.len() <= MAX_BYTES, "{}", written.len());
    }
}
