//! vmsplice(2) into a pipe, splice(2) from there to the socket: references to pages, nothing copied, also on loopback.
//!
//! The kernel hands at most 16 of a pipe's places to the socket at a time. A header and 16 pages so make two packets;
//! sent by itself before them it would cost more.

use super::Counts;
use super::header::HeaderLog;
use super::segment::Segment;
use super::way::is_later;
use crate::arena::classes::PAGE;
use crate::kernel::{pipe, scatter};
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Pieces in one call.
const PIECES: usize = 64;
/// Pages that a socket is offered at least: a value that is sent whole, and its surroundings.
const LEAST: usize = 32;

/// A pipe that is empty between two sends.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Pages that it holds.
    places: usize,
    /// Destination of bytes that a socket did not take. Open from the beginning: bytes that stay in the pipe would go
    /// to the next socket.
    sink: std::fs::File,
    /// Bytes that are in it.
    held: usize,
}

impl Pipe {
    pub(super) fn new() -> io::Result<Pipe> {
        let sink = std::fs::File::options().write(true).open("/dev/null")?;
        let (read, write) = pipe::nonblocking()?;
        // Makes the pipe as large as an unprivileged user may have it. If that fails, its size stays, which is two
        // pages for a user with many pipes.
        let bytes = pipe::set_room(&write, 256 * PAGE).or_else(|_| pipe::room(&write))?;
        let places = bytes / PAGE;
        Ok(Pipe {
            read,
            write,
            places,
            sink,
            held: 0,
        })
    }

    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let ends = [self.read.as_raw_fd(), self.write.as_raw_fd()];
        ends.into_iter().chain([self.sink.as_raw_fd()]).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Throws away the bytes that the socket did not take. If that fails some are left.
    fn drain(&mut self) {
        while self.held > 0 {
            match pipe::splice(&self.read, None, &self.sink, self.held, false) {
                Ok(gone) if gone > 0 => self.held -= gone,
                _ => return,
            }
        }
    }
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    segments: &[Segment],
    pipe: &mut Pipe,
    appetite: &mut usize,
    log: &mut HeaderLog,
    counts: &mut Counts,
) -> io::Result<usize> {
    let mut sent = 0;
    let mut rest = segments;
    let mut within = 0;
    while let Some(first) = rest.first() {
        let outcome = if first.pages.is_none() && first.len > HeaderLog::LONGEST {
            // Copied pieces in a row, in one call.
            let count = rest
                .iter()
                .take_while(|s| s.pages.is_none())
                .count()
                .min(scatter::MOST);
            copy_run(socket, &rest[..count], count < rest.len(), counts).map(|now| {
                (
                    now,
                    rest[..count].iter().map(|s| s.len).sum::<usize>(),
                    count,
                    0,
                )
            })
        } else {
            let places = pipe.places.min(*appetite);
            let run = splice_run(socket, rest, (within, places), pipe, log, counts);
            *appetite = match run {
                Ok((now, offered, ..)) => appetite_after(*appetite, now, offered),
                Err(_) => LEAST,
            };
            run
        };
        match outcome {
            Ok((now, offered, count, left_within)) => {
                sent += now;
                if now < offered {
                    return Ok(sent);
                }
                rest = &rest[count..];
                within = left_within;
            }
            Err(error) if sent == 0 => return Err(error),
            Err(_) => return Ok(sent),
        }
    }
    Ok(sent)
}

/// Returns how many pages to offer a socket at once, from what it took of its last offer. Pages that it does not take
/// have to be taken out of the pipe again, page by page.
fn appetite_after(appetite: usize, now: usize, offered: usize) -> usize {
    if now < offered {
        (now / PAGE).max(LEAST)
    } else {
        appetite.saturating_mul(2)
    }
}

/// Returns whether bytes go on where others end, on the same page.
fn follows(before: *const u8, len: usize, next: *const u8) -> bool {
    before.addr() + len == next.addr() && !next.addr().is_multiple_of(PAGE)
}

fn copy_run(
    socket: BorrowedFd<'_>,
    run: &[Segment],
    more: bool,
    counts: &mut Counts,
) -> io::Result<usize> {
    let pieces = run.iter().map(|segment| (segment.at, segment.len));
    counts.calls += 1;
    // SAFETY: mapped memory until the send returns, as the pieces promise.
    unsafe { scatter::send(socket, pieces, more) }
}

/// Sends a pipe's worth. Says how many bytes went, how many were offered, how many segments that finishes, and how far
/// it goes into the next one.
fn splice_run(
    socket: BorrowedFd<'_>,
    segments: &[Segment],
    (mut within, most): (usize, usize),
    pipe: &mut Pipe,
    log: &mut HeaderLog,
    counts: &mut Counts,
) -> io::Result<(usize, usize, usize, usize)> {
    log.begin()?;
    // Most messages are a header, a value and its end.
    let mut pieces = SmallVec::<[(*const u8, usize); 8]>::new();
    let (mut places, mut offered, mut done) = (0, 0, 0);
    for segment in segments {
        if pieces.len() == PIECES || places == most {
            break;
        }
        let from = match segment.pages {
            Some(pages) => pages,
            // SAFETY: the piece's own bytes.
            None => match unsafe { log.keep(segment.at, segment.len) } {
                Some(kept) => kept,
                None => break,
            },
        };
        // SAFETY: inside the segment.
        let from = unsafe { from.add(within) };
        let len = segment.len - within;
        // Only as many whole pages as the pipe has places.
        let room = (most - places) * PAGE - from.addr() % PAGE;
        let part = len.min(room);
        offered += part;
        // Places for its pages; the one that it begins in the middle of may have one already.
        places += (from.addr() + part).div_ceil(PAGE) - from.addr() / PAGE;
        match pieces.last_mut() {
            // A header in many pieces is one in the log: a place, not many.
            Some((before, has)) if follows(*before, *has, from) => {
                places -= 1;
                *has += part;
            }
            _ => pieces.push((from, part)),
        }
        if part < len {
            within += part;
            break;
        }
        within = 0;
        done += 1;
    }
    counts.calls += 2;
    // SAFETY: pages that never change again, or the log's, which are never written twice.
    let held = unsafe { pipe::vmsplice(&pipe.write, &pieces) };
    // An empty pipe has room, so the call does not have to wait. If it returns "not now", a sandbox refused it.
    let refused = |error| match is_later(&error) {
        true => io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        false => error,
    };
    pipe.held = held.map_err(refused)?;
    let more = done < segments.len();
    // A short send was ended by a signal or a time-out, or found no more room: another try would wait once more.
    let now = pipe::splice(&pipe.read, None, socket, pipe.held, more);
    pipe.held -= now.as_ref().map_or(0, |now| *now);
    pipe.drain();
    now.map(|now| (now, offered, done, within))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// Neighbours of one block: as many places as pages, in one piece or many.
    #[test]
    fn pieces_that_follow_each_other_take_a_place_for_each_page() {
        let (here, mut there) = UnixStream::pair().expect("sockets");
        let value: &[u8] = Box::leak(vec![7; 16 * PAGE].into_boxed_slice());
        let start = value.as_ptr().align_offset(PAGE);
        let value = &value[start..start + 10 * PAGE];
        let segments: Vec<_> = value.chunks(5000).map(Segment::of_read_only).collect();
        let mut pipe = Pipe::new().expect("a pipe");
        let mut log = HeaderLog::new().expect("a log");
        let mut counts = Counts::default();
        let run = splice_run(
            here.as_fd(),
            &segments,
            (0, 4),
            &mut pipe,
            &mut log,
            &mut counts,
        );
        let (now, offered, done, within) = run.expect("sent");
        assert!(offered <= 4 * PAGE, "{offered} bytes in 4 places");
        assert_eq!(
            (now, done, within),
            (offered, offered / 5000, offered % 5000)
        );
        let mut got = vec![0; now];
        there.read_exact(&mut got).expect("all of it");
        assert_eq!(got, value[..now]);
    }

    /// A header in many pieces, as Varnish gives it, takes one place in the pipe.
    #[test]
    fn a_header_in_many_pieces_takes_one_place_in_the_pipe() {
        let (here, mut there) = UnixStream::pair().expect("sockets");
        let header: Vec<u8> = (0..230).collect();
        let value = Box::leak(vec![7; PAGE].into_boxed_slice());
        let mut segments: Vec<_> = header.chunks(10).map(Segment::of_bytes).collect();
        segments.push(Segment::of_read_only(&value[..PAGE / 2]));
        let mut pipe = Pipe::new().expect("a pipe");
        let mut log = HeaderLog::new().expect("a log");
        // The header, and the value, which may begin on one page and end on the next.
        let places = (0, 3);
        let mut counts = Counts::default();
        let run = splice_run(
            here.as_fd(),
            &segments,
            places,
            &mut pipe,
            &mut log,
            &mut counts,
        );
        let all = header.len() + PAGE / 2;
        assert_eq!(run.expect("sent"), (all, all, segments.len(), 0));
        let mut got = vec![0; all];
        there.read_exact(&mut got).expect("all of it");
        assert_eq!(got, [&header[..], &value[..PAGE / 2]].concat());
    }
}
