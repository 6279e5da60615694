//! Sending of lists. A list with files or buffers of shared pools goes in parts, in order. If one part goes short, the
//! call does.
//!
//! A file's bytes go by sendfile(2). Buffers go with all that is around them in one call with MSG_ZEROCOPY. This needs
//! a kernel that reports when it is done with them, and enough bytes. Otherwise they are copied, and neighbours that
//! can go by reference go by themselves.

use super::choice::{Chosen, NOTIFIED};
use super::route::Route;
use super::segment::{Piece, Segment};
use super::sender::Sender;
use super::socket::{Notified, Socket};
use super::way::{Way, Why, is_later, said};
use super::{copy, notified};
use crate::kernel::scatter;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use tranship_core::Buffer;
use tranship_sys::{signals, stream};

/// Bytes offered in one call with MSG_ZEROCOPY. All bytes that are offered, not only those that have room, count
/// against RLIMIT_MEMLOCK (8 MiB by default, for all sockets of a user). Bytes that do not fit are refused.
const AT_ONCE: usize = 1 << 20;
/// Bytes at a time of a file that the kernel cannot refer to.
const CHUNK: usize = 64 << 10;

impl Sender {
    /// Sends the pieces in order: as many bytes as there is room for; returns how many. It waits for a blocking socket
    /// as send(2) does. Bytes that were sent never change, whatever is written or freed after this returns.
    ///
    /// # Errors
    /// Those of send(2): `WouldBlock` if a non-blocking socket has no room at all, or if a blocking one's time-out
    /// (`SO_SNDTIMEO`) is over; `Interrupted` if a signal's handler ran while a blocking one was waited for;
    /// `BrokenPipe` (without a signal) if the other end is gone. If some bytes went before the error, the call returns
    /// their number instead.
    pub fn send(
        &mut self,
        fd: impl AsFd,
        socket: &mut Socket,
        pieces: &[Piece<'_>],
    ) -> io::Result<usize> {
        self.renew_after_fork()?;
        self.counts.sends += 1;
        let is_special = |piece: &Piece<'_>| piece.is_file() || piece.buffer().is_some();
        let sent = if pieces.iter().any(is_special) || !socket.held.is_empty() {
            self.send_list(fd.as_fd(), socket, pieces)
        } else {
            self.send_plain(fd.as_fd(), socket, pieces, false)
        };
        self.publish();
        sent
    }

    fn send_list(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        pieces: &[Piece<'_>],
    ) -> io::Result<usize> {
        if !socket.is_stream() {
            if pieces.iter().any(Piece::is_file) {
                return Err(super::datagrams::no_files());
            }
            return self.send_plain(fd, socket, pieces, false);
        }
        if !socket.held.is_empty() {
            notified::reap(fd, socket, &mut self.counts)?;
        }
        let (mut sent, mut rest) = (0, pieces);
        while let Some(first) = rest.first() {
            let (count, outcome) = match first {
                Piece::File(file, range) => (1, self.send_file(fd, socket.route, file, range)),
                _ => self.send_part(fd, socket, rest),
            };
            let offered: usize = rest[..count].iter().map(Piece::len).sum();
            match outcome {
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
            rest = &rest[count..];
        }
        Ok(sent)
    }

    /// Sends some pieces up to the next file; returns how many of them it was.
    fn send_part(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        rest: &[Piece<'_>],
    ) -> (usize, io::Result<usize>) {
        let stretch = rest.iter().take_while(|piece| !piece.is_file()).count();
        let all = &rest[..stretch];
        let of_buffers = |piece: &&Piece<'_>| piece.buffer().is_some();
        let shared: usize = all.iter().filter(of_buffers).map(Piece::len).sum();
        if shared >= NOTIFIED && socket.allows(socket.route, Way::Notified) {
            let more = stretch < rest.len();
            return (stretch, self.send_kept(fd, socket, all, more));
        }
        // Segments that may go by reference, and those that may not: headers go with either.
        let mut kind = None;
        let alike = |piece: &&Piece<'_>| match piece {
            Piece::Bytes(_) => true,
            other => *kind.get_or_insert(other.buffer().is_some()) == other.buffer().is_some(),
        };
        let count = all.iter().take_while(alike).count();
        let sent = self.send_plain(fd, socket, &all[..count], count < rest.len());
        (count, sent)
    }

    /// Sends by reference, and keeps the buffers.
    fn send_kept(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        pieces: &[Piece<'_>],
        more: bool,
    ) -> io::Result<usize> {
        let mut segments = Vec::with_capacity(pieces.len());
        let mut owners = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let first = segments.len();
            self.resolve(std::slice::from_ref(piece), None, true, &mut segments);
            piece.lend(None);
            let whole: Vec<Segment> = segments.drain(first..).collect();
            for mut segment in whole {
                while segment.len > AT_ONCE {
                    let (part, rest) = segment.split(AT_ONCE);
                    segments.push(part);
                    segment = rest;
                }
                segments.push(segment);
            }
            owners.resize(segments.len(), piece.buffer());
        }
        let mut sent = 0;
        let mut done = 0;
        while done < segments.len() {
            let (count, outcome) =
                self.one_kept(fd, socket, &segments[done..], &owners[done..], more);
            let part = &segments[done..done + count];
            let offered: usize = part.iter().map(|segment| segment.len).sum();
            match outcome {
                Ok(now) => {
                    sent += now;
                    if now < offered {
                        self.counts.partial += 1;
                        break;
                    }
                }
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
            done += count;
        }
        Ok(sent)
    }

    /// Makes one call; returns how many segments it was about.
    fn one_kept(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        segments: &[Segment],
        owners: &[Option<&Buffer>],
        more: bool,
    ) -> (usize, io::Result<usize>) {
        match self.refer_kept(fd, socket, segments, owners) {
            Ok((0, _)) => {
                // Bytes that may change, too many to be put aside.
                let more = more || segments.len() > 1;
                let sent = copy::send(fd, &segments[..1], more, &mut self.counts);
                self.note_copied(socket.route, Why::Kept, &segments[..1], &sent);
                (1, sent)
            }
            Ok((count, sent)) => {
                let chosen = Chosen {
                    way: Way::Notified,
                    why: Why::Kept,
                };
                self.note(socket.route, chosen, &segments[..count], sent);
                (count, Ok(sent))
            }
            // There is no room for pinned pages or notifications, the socket cannot do it, or a sandbox refuses it.
            Err(error) if !is_later(&error) => {
                let sent = copy::send(fd, segments, more, &mut self.counts);
                self.note_copied(socket.route, Why::Refused, segments, &sent);
                (segments.len(), said(error, sent))
            }
            Err(error) => (segments.len(), Err(error)),
        }
    }

    fn note_copied(&mut self, to: Route, why: Why, segments: &[Segment], sent: &io::Result<usize>) {
        if let Ok(sent) = sent {
            self.note(to, Chosen::copy(why), segments, *sent);
        }
    }

    /// Returns how many segments it took, and how many bytes.
    fn refer_kept(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        segments: &[Segment],
        owners: &[Option<&Buffer>],
    ) -> io::Result<(usize, usize)> {
        notified::begin(fd, socket, &mut self.counts)?;
        if socket.notified == Notified::Off {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        self.log.begin()?;
        let mut pieces = Vec::with_capacity(segments.len().min(scatter::MOST));
        let mut offered = 0;
        for segment in segments.iter().take(scatter::MOST) {
            offered += segment.len;
            if offered > AT_ONCE && !pieces.is_empty() {
                break;
            }
            let from = match segment.pages {
                Some(pages) => pages,
                None if segment.shared => segment.at,
                // SAFETY: the piece's own bytes.
                None => match unsafe { self.log.keep(segment.at, segment.len) } {
                    Some(kept) => kept,
                    None => break,
                },
            };
            pieces.push((from, segment.len));
        }
        if pieces.is_empty() {
            return Ok((0, 0));
        }
        socket.held.begin(fd)?;
        self.counts.calls += 1;
        // SAFETY: pages that never change again, the log's, which are never written twice, or buffers that are kept
        // below.
        let sent = unsafe { scatter::send_zerocopy(fd, &pieces) }
            .inspect_err(|_| socket.held.end_if_empty())?;
        let number = notified::sent_one(socket);
        let (mut buffers, mut bytes, mut at) = (Vec::new(), 0, 0);
        for ((_, len), owner) in pieces.iter().zip(owners) {
            if at < sent
                && let Some(buffer) = owner
            {
                buffers.push((*buffer).clone());
                bytes += (*len).min(sent - at);
            }
            at += len;
        }
        socket.held.keep(number, bytes, buffers);
        Ok((pieces.len(), sent))
    }

    fn send_file(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Route,
        file: &File,
        range: &Range<u64>,
    ) -> io::Result<usize> {
        let len = Piece::File(file, range.clone()).len();
        let mut sent = 0;
        while sent < len {
            let at = range.start + sent as u64;
            self.counts.calls += 1;
            let part = signals::without_sigpipe(|| stream::send_file(fd, file, at, len - sent));
            let (way, part) = match part {
                // A file that cannot be referred to (a file of /proc, say), or that a sandbox refuses, is read and
                // copied.
                Err(error) if sent == 0 || !is_later(&error) => {
                    let copied = self.copy_file(fd, file, at, len - sent, &error);
                    (Way::Copy, said(error, copied))
                }
                other => (Way::File, other),
            };
            match part {
                Ok(0) if sent == 0 => {
                    let text = format!(
                        "the file ends before byte {at}, up to {} were to be sent",
                        range.end
                    );
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                Ok(0) => break,
                Ok(now) => {
                    self.note_file(to, way, now);
                    sent += now;
                }
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.counts.partial += u64::from(sent < len);
        Ok(sent)
    }

    fn copy_file(
        &mut self,
        fd: BorrowedFd<'_>,
        file: &File,
        at: u64,
        len: usize,
        refused: &io::Error,
    ) -> io::Result<usize> {
        let mut bytes = vec![0; len.min(CHUNK)];
        let got = file.read_at(&mut bytes, at)?;
        if got == 0 {
            return Ok(0);
        }
        let segment = Segment::of_bytes(&bytes[..got]);
        self.copy_instead(fd, &[segment], got < len, refused)
    }
}
