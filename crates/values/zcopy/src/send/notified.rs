//! MSG_ZEROCOPY: references to pages, and a notification on the socket's error queue.
//!
//! No value waits for a notification: pages that were sent are never written again, so they may be freed at once.
//! Buffers of shared pools do (`held`). All notifications are read, because unread ones use up a limit of the kernel.
//! They also report whether it copied after all, which ends the use for that socket.

use super::header::HeaderLog;
use super::segment::Segment;
use super::socket::Notified;
use super::{Counts, Socket};
use crate::kernel::scatter;
use std::io;
use std::os::fd::BorrowedFd;

/// Notifications that may be outstanding before they are read.
const OUTSTANDING: u32 = 64;

pub(super) fn send(
    fd: BorrowedFd<'_>,
    socket: &mut Socket,
    segments: &[Segment],
    log: &mut HeaderLog,
    counts: &mut Counts,
) -> io::Result<usize> {
    begin(fd, socket, counts)?;
    log.begin()?;
    let mut pieces = Vec::with_capacity(segments.len());
    for segment in segments.iter().take(scatter::MOST) {
        let from = match segment.pages {
            Some(pages) => pages,
            // SAFETY: the piece's own bytes.
            None => match unsafe { log.keep(segment.at, segment.len) } {
                Some(kept) => kept,
                // A long copied piece goes by itself, next time round.
                None => break,
            },
        };
        pieces.push((from, segment.len));
    }
    if pieces.is_empty() {
        return super::copy::send(fd, &segments[..1], segments.len() > 1, counts);
    }
    counts.calls += 1;
    // SAFETY: pages that never change again, or the log's, which are never written twice.
    let sent = unsafe { scatter::send_zerocopy(fd, &pieces) }?;
    sent_one(socket);
    Ok(sent)
}

/// Prepares a send.
pub(super) fn begin(
    fd: BorrowedFd<'_>,
    socket: &mut Socket,
    counts: &mut Counts,
) -> io::Result<()> {
    match socket.notified {
        Notified::On if socket.outstanding < OUTSTANDING => Ok(()),
        Notified::On => reap(fd, socket, counts),
        Notified::Untried => {
            if scatter::allows_zerocopy(fd)? {
                // Another program does it on this socket: the owner of a notification cannot be known.
                socket.notified = Notified::Off;
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            if let Err(error) = scatter::allow_zerocopy(fd) {
                socket.notified = Notified::Off;
                return Err(error);
            }
            socket.notified = Notified::On;
            Ok(())
        }
        Notified::Off => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    }
}

/// Counts a send that went; returns its number.
pub(super) fn sent_one(socket: &mut Socket) -> u32 {
    socket.outstanding += 1;
    let number = socket.next;
    socket.next = number.wrapping_add(1);
    number
}

/// Reads the notifications that have come.
pub(super) fn reap(fd: BorrowedFd<'_>, socket: &mut Socket, counts: &mut Counts) -> io::Result<()> {
    while let Some(done) = scatter::notification(fd)? {
        counts.calls += 1;
        socket.outstanding = socket.outstanding.saturating_sub(done.count);
        socket.held.release(&done);
        if done.copied {
            counts.gave_up_notified += u64::from(socket.notified != Notified::Off);
            socket.notified = Notified::Off;
        }
    }
    Ok(())
}
