//! sendfile(2) from the arena's file, piece by piece; copied bytes go between by send(2).

use super::Counts;
use super::segment::Segment;
use crate::kernel::scatter;
use std::io;
use std::os::fd::BorrowedFd;
use tranship_sys::stream;

pub(super) fn send(
    socket: BorrowedFd<'_>,
    segments: &[Segment],
    counts: &mut Counts,
) -> io::Result<usize> {
    let mut sent = 0;
    let mut rest = segments;
    while let Some(first) = rest.first() {
        counts.calls += 1;
        let place = first.file.as_ref();
        let (outcome, offered, count) = match place.and_then(|at| Some((at.file()?, at.offset))) {
            Some((file, offset)) => {
                let outcome = stream::send_file(socket, file, offset, first.len);
                (outcome, first.len, 1)
            }
            None => {
                let count = rest
                    .iter()
                    .take_while(|s| s.file.is_none())
                    .count()
                    .clamp(1, scatter::MOST);
                let run = rest[..count].iter();
                let offered = run.clone().map(|s| s.len).sum();
                let run = run.map(|s| (s.at, s.len));
                // SAFETY: mapped memory until the send returns, as the pieces promise.
                let outcome = unsafe { scatter::send(socket, run, count < rest.len()) };
                (outcome, offered, count)
            }
        };
        match outcome {
            Ok(now) => {
                sent += now;
                if now < offered {
                    return Ok(sent);
                }
                rest = &rest[count..];
            }
            Err(error) if sent == 0 => return Err(error),
            Err(_) => return Ok(sent),
        }
    }
    Ok(sent)
}
