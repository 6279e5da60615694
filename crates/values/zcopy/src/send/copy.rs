//! sendmsg(2): the kernel copies; up to a thousand pieces in a call.

use super::Counts;
use super::segment::Segment;
use crate::kernel::scatter;
use std::io;
use std::os::fd::BorrowedFd;

pub(super) fn send(
    socket: BorrowedFd<'_>,
    segments: &[Segment],
    more: bool,
    counts: &mut Counts,
) -> io::Result<usize> {
    send_by(socket, segments, more, counts, |fd, part, more| {
        // SAFETY: mapped memory until the send returns, as the pieces promise.
        unsafe { scatter::send(fd, part.iter().map(sourced), more) }
    })
}

/// Sends like [`send`], but never waits: `WouldBlock` where there is no room.
pub(super) fn send_now(
    socket: BorrowedFd<'_>,
    segments: &[Segment],
    more: bool,
    counts: &mut Counts,
) -> io::Result<usize> {
    send_by(socket, segments, more, counts, |fd, part, more| {
        // SAFETY: mapped memory until the send returns, as the pieces promise.
        unsafe { scatter::send_now(fd, part.iter().map(sourced), more) }
    })
}

fn sourced(segment: &Segment) -> (*const u8, usize) {
    (segment.source(), segment.len)
}

fn send_by(
    socket: BorrowedFd<'_>,
    segments: &[Segment],
    more: bool,
    counts: &mut Counts,
    send: impl Fn(BorrowedFd<'_>, &[Segment], bool) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut sent = 0;
    for part in segments.chunks(scatter::MOST) {
        let offered = part.iter().map(|segment| segment.len).sum();
        let last = part.as_ptr_range().end == segments.as_ptr_range().end;
        counts.calls += 1;
        match send(socket, part, more || !last) {
            Ok(now) => {
                sent += now;
                if now < offered {
                    break;
                }
            }
            Err(error) if sent == 0 => return Err(error),
            // The bytes that were sent count; the error comes again.
            Err(_) => break,
        }
    }
    Ok(sent)
}
