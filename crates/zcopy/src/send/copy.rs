//! sendmsg(2): the kernel copies; up to a thousand pieces in a call.

use super::Counts;
use super::segment::Segment;
use std::io;
use std::os::fd::BorrowedFd;
use tranship_sys::scatter;

pub(super) fn send(
    socket: BorrowedFd<'_>,
    segments: &[Segment],
    more: bool,
    counts: &mut Counts,
) -> io::Result<usize> {
    let mut sent = 0;
    for part in segments.chunks(scatter::MOST) {
        let pieces = part.iter().map(|segment| (segment.source(), segment.len));
        let offered = part.iter().map(|segment| segment.len).sum();
        let last = part.as_ptr_range().end == segments.as_ptr_range().end;
        counts.calls += 1;
        // SAFETY: mapped memory until the send returns, as the pieces promise.
        match unsafe { scatter::send(socket, pieces, more || !last) } {
            Ok(now) => {
                sent += now;
                if now < offered {
                    break;
                }
            }
            Err(error) if sent == 0 => return Err(error),
            // What was sent counts; the error comes again.
            Err(_) => break,
        }
    }
    Ok(sent)
}
