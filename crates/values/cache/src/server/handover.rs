//! The hand-over, as messages on a Unix socket: the successor asks, and has everything before the server lets go of it.
//!
//! ```text
//!   successor                                  server
//!   take, format ───────────────────────────►  stops to serve; clients wait
//!                ◄───────────────────────────  image, descriptors of arena, listeners, connections
//!   reads it, believes none of it
//!   ready        ───────────────────────────►  ends
//!                ◄───────────────────────────  yours
//! ```
//!
//! Until `ready` came the server can go on as before, and does so when the successor is gone or says nothing.

use super::shared::Shared;
use crate::image::Image;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tranship_sys::{epoll, memfd, process, socket};

/// Longest wait for the other server's next message.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The longest message, bytes.
const LONGEST: usize = 1024;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Say {
    /// Hand it over, in this format.
    Take(u32),
    /// Refusal, and the reason.
    No(String),
    /// Descriptors: arena, image, this socket's listener, TCP, and UDP if there is.
    Image,
    /// Descriptors of the next connections.
    Connections,
    /// All is there and can be used.
    Ready,
    /// The values belong to the successor only.
    Yours,
}

/// A message, and the descriptors that came with it.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) say: Say,
    pub(super) fds: Vec<OwnedFd>,
}

pub(super) fn odd(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Say {
    fn encode(&self) -> Vec<u8> {
        match self {
            Say::Take(format) => [&[1][..], &format.to_le_bytes()].concat(),
            Say::No(why) => [&[2][..], why.as_bytes()].concat(),
            Say::Image => vec![3],
            Say::Connections => vec![4],
            Say::Ready => vec![5],
            Say::Yours => vec![6],
        }
    }

    fn decode(bytes: &[u8]) -> Option<Say> {
        let (kind, rest) = bytes.split_first()?;
        Some(match (kind, rest.len()) {
            (1, 4) => Say::Take(u32::from_le_bytes(rest.try_into().ok()?)),
            (2, _) => Say::No(String::from_utf8_lossy(rest).into_owned()),
            (3, 0) => Say::Image,
            (4, 0) => Say::Connections,
            (5, 0) => Say::Ready,
            (6, 0) => Say::Yours,
            _ => return None,
        })
    }
}

pub(super) fn say(to: impl AsFd, say: &Say, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = say.encode();
    bytes.truncate(LONGEST);
    socket::sendmsg(to, &bytes, fds, false)
}

/// Returns the next message; none at the end.
pub(super) fn hear(from: impl AsFd) -> io::Result<Option<Heard>> {
    let from = from.as_fd();
    if !epoll::wait_readable(from, Some(PATIENCE))? {
        let text = format!("the other server said nothing for {} s", PATIENCE.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    }
    let mut room = [0; LONGEST];
    let got = socket::recvmsg(from, &mut room, true)?;
    if got.ctrunc || got.truncated {
        return Err(odd(
            "a message came without all of its descriptors: are as many allowed here (ulimit -n)?",
        ));
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    let say = Say::decode(&room[..got.bytes]);
    let say = say.ok_or_else(|| odd("a message that no cache server sends"))?;
    Ok(Some(Heard { say, fds: got.fds }))
}

/// Returns whether the process at the other end belongs to this user or to root.
pub(super) fn is_friend(socket: impl AsFd) -> io::Result<bool> {
    let uid = socket::peer_credentials(socket)?.uid;
    Ok(uid == process::geteuid() || uid == 0)
}

/// Returns the image of the store for a successor, and the number of values that it cannot contain. Nobody serves
/// meanwhile.
pub(super) fn write_down(shared: &Shared) -> (Image, u64) {
    let (items, lost) = shared.store.write_down();
    let mut image = Image {
        numbers: shared.store.next_number(),
        items,
        ..Image::default()
    };
    // Relaxed: nobody changes it, as nobody serves.
    let flush_at = shared.flush_at.load(Ordering::Relaxed);
    if flush_at != 0 {
        let left = flush_at - i64::from(shared.store.now());
        image.flush_in = u64::try_from(left.max(1)).unwrap_or(1);
    }
    (image, lost)
}

/// Returns bytes as a file without a name.
pub(super) fn as_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd::create("tranship-cache-image")?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Reads such a file back.
pub(super) fn read_file(file: OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::from(file);
    let len = file.seek(SeekFrom::End(0))?;
    if len > most {
        return Err(odd(format!(
            "an image of {len} bytes, of which {most} can be"
        )));
    }
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    // The file may have grown since.
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
