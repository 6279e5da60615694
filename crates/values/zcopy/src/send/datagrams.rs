//! Datagrams: those of one length go to the kernel in one call (UDP_SEGMENT), copied or by reference.
//!
//! A call by reference takes fewer of them (`packet`).
//!
//! Datagrams by reference go out of pages that were looked up once for many sends (`registered`). A lookup for each
//! send (MSG_ZEROCOPY) costs as much as copying a page.

use super::choice::{Chosen, Weight};
use super::notified;
use super::packet::Packet;
use super::route::Route;
use super::segment::{self, Datagram, Piece, Segment};
use super::sender::Sender;
use super::socket::Socket;
use super::way::{Way, Why, is_later, is_the_sockets};
use crate::arena::Inner;
use crate::kernel::segment as gso;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Destination of datagrams.
#[derive(Clone, Copy, Debug)]
struct Target<'a> {
    fd: BorrowedFd<'a>,
    to: Option<SocketAddr>,
}

impl Sender {
    /// Sends datagrams, each a list of pieces, to an address or (none) to the peer of the socket. Datagrams in a row
    /// that are of one length (the last one perhaps shorter) go together. Returns how many went. Bytes on their way
    /// never change, as with [`Sender::send`].
    ///
    /// # Errors
    /// As sendmsg(2), if none went: `WouldBlock` if there is no room, EMSGSIZE if the first is too long. `InvalidInput`
    /// for [`Piece::File`].
    pub fn send_datagrams<'p>(
        &mut self,
        fd: impl AsFd,
        socket: &mut Socket,
        to: Option<SocketAddr>,
        datagrams: &[impl AsRef<[Piece<'p>]>],
    ) -> io::Result<usize> {
        if datagrams
            .iter()
            .any(|one| one.as_ref().iter().any(Piece::is_file))
        {
            return Err(no_files());
        }
        self.renew_after_fork()?;
        self.counts.sends += 1;
        let mut segments = std::mem::take(&mut self.segments);
        let mut all = std::mem::take(&mut self.datagrams);
        segments.clear();
        all.clear();
        // Handles of values that nobody has touched for long are not in the caches: all are fetched at once.
        let pieces = datagrams.iter().flat_map(|one| one.as_ref());
        pieces.for_each(Piece::prefetch);
        let arena = datagrams
            .iter()
            .find_map(|one| one.as_ref().iter().find_map(Piece::arena));
        let fd = fd.as_fd();
        let target = Target { fd, to };
        let route = socket.route.to(to);
        let pieces = datagrams.iter().flat_map(|one| one.as_ref());
        let protects = self.protects(socket, route, Weight::at_most(pieces, datagrams.len()));
        for datagram in datagrams {
            let first = segments.len();
            self.resolve(datagram.as_ref(), arena, protects, &mut segments);
            self.make_sure(&mut segments, first);
            all.push(Datagram {
                len: segments[first..].iter().map(|segment| segment.len).sum(),
                segments: first..segments.len(),
            });
        }
        let weight = Weight::of(&segments, all.len());
        self.look_at_registered(route, socket, arena, &segments, protects);
        let referable = segment::referable(&segments);
        let chosen = self.decide(socket, route, referable, || weight);
        if chosen.way != Way::Copy {
            let pieces = datagrams.iter().flat_map(|one| one.as_ref());
            pieces.for_each(|piece| piece.lend(arena));
        }
        let sent = self.send_all(target, socket, chosen, &segments, &all);
        socket.registered = false;
        self.counts.datagrams += *sent.as_ref().unwrap_or(&0) as u64;
        segments.clear();
        (self.segments, self.datagrams) = (segments, all);
        self.publish();
        sent
    }

    /// Takes the notifications of MSG_ZEROCOPY that have come. A socket that has some reports an error, again and
    /// again, to a program that waits for it (epoll(7)). Buffers of shared pools that the kernel is done with are
    /// released here, and by the next [`Sender::send`] to the socket. Registered pages are released here too, when many
    /// of them were freed.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub fn settle(&mut self, fd: impl AsFd, socket: &mut Socket) -> io::Result<()> {
        self.registered.look();
        if socket.outstanding == 0 {
            return Ok(());
        }
        notified::reap(fd.as_fd(), socket, &mut self.counts)
    }

    fn send_all(
        &mut self,
        target: Target<'_>,
        socket: &mut Socket,
        mut chosen: Chosen,
        segments: &[Segment],
        all: &[Datagram],
    ) -> io::Result<usize> {
        let route = socket.route.to(target.to);
        if chosen.way == Way::Registered {
            self.registered.prefetch(segments);
        }
        let mut done = 0;
        while let Some(first) = all.get(done) {
            let rest = &all[done..];
            let outcome = match chosen.way {
                Way::Registered => self.refer_registered(target, socket, segments, rest),
                _ => self.copy(target, socket, segments, rest),
            };
            let outcome = match outcome {
                // An error of a datagram's socket is reported once, and not lost.
                Err(error)
                    if chosen.way != Way::Copy && !is_later(&error) && !is_the_sockets(&error) =>
                {
                    self.chooser.refused(self.counts.sends, route);
                    chosen = Chosen::copy(Why::Refused);
                    self.copy(target, socket, segments, rest)
                }
                other => other,
            };
            let count = match outcome {
                Ok(count) => count,
                Err(error) if done == 0 => return Err(error),
                // The datagrams that went count; the error comes again.
                Err(_) => break,
            };
            let gone = &all[done..done + count];
            let range = first.segments.start..gone.last().map_or(0, |last| last.segments.end);
            let bytes = gone.iter().map(|one| one.len).sum();
            self.counts.together += u64::from(count > 1);
            self.note(route, chosen, &segments[range], bytes);
            done += count;
        }
        self.counts.partial += u64::from(done < all.len());
        Ok(done)
    }

    /// Finds out whether most bytes of the datagrams lie in registered pages. Bytes that do not, although they could,
    /// count towards registering more if that `pays`.
    fn look_at_registered(
        &mut self,
        route: Route,
        socket: &mut Socket,
        arena: Option<&Arc<Inner>>,
        segments: &[Segment],
        pays: bool,
    ) {
        let (Some(arena), true) = (arena, route == Route::Datagrams) else {
            return;
        };
        // A lock of the arena may be held for ever in a forked child.
        if arena.is_inherited() {
            return;
        }
        if self.registered.copies(socket.number) {
            socket.copies_registered = true;
            self.counts.gave_up_notified += 1;
        }
        if socket.copies_registered {
            return;
        }
        if self.forced == Some(Way::Registered) {
            socket.registered = self.registered.insist(arena);
            return;
        }
        socket.registered = self.registered.is_ready(arena);
        if !pays {
            return;
        }
        if !socket.registered {
            let could = segments.iter().filter(|one| one.file.is_some()).count();
            self.registered.missed(could);
        }
        self.registered.consider(arena);
    }

    /// Sends the first few, copied; returns how many.
    fn copy(
        &mut self,
        target: Target<'_>,
        socket: &mut Socket,
        segments: &[Segment],
        rest: &[Datagram],
    ) -> io::Result<usize> {
        let count = if socket.together { alike(rest) } else { 1 };
        let pieces = |count: usize| -> Vec<_> {
            let range = rest[0].segments.start..rest[count - 1].segments.end;
            segments[range]
                .iter()
                .map(|one| (one.source(), one.len))
                .collect()
        };
        self.counts.calls += 1;
        // SAFETY: mapped memory until the send returns, as the pieces promise.
        let sent = unsafe {
            gso::send_pieces(
                target.fd,
                target.to,
                &pieces(count),
                cut(rest, count),
                false,
            )
        };
        match sent {
            // A device or a kernel that cannot, or datagrams that are longer than it carries: one by one.
            Err(error) if count > 1 && is_about_the_cut(&error) => {
                socket.together = false;
                self.counts.calls += 1;
                // SAFETY: as above.
                unsafe { gso::send_pieces(target.fd, target.to, &pieces(1), None, false) }?;
                Ok(1)
            }
            other => other.map(|()| count),
        }
    }

    /// Sends the first few out of registered pages; returns how many. Those that do not lie there are copied.
    fn refer_registered(
        &mut self,
        target: Target<'_>,
        socket: &mut Socket,
        segments: &[Segment],
        rest: &[Datagram],
    ) -> io::Result<usize> {
        if !self.registered.begin() {
            return self.copy(target, socket, segments, rest);
        }
        let most = if socket.together { alike(rest) } else { 1 };
        let (registered, packet) = (&mut self.registered, &mut self.packet);
        let count = gather(packet, &rest[..most], |one, packet| {
            registered.places(&segments[one.segments.clone()], packet)
        });
        if count == 0 {
            let elsewhere = |one: &&Datagram| !self.registered.has(&segments[one.segments.clone()]);
            let count = rest.iter().take_while(elsewhere).count();
            self.registered.missed(count);
            let count = count.max(1);
            return self.copy(target, socket, segments, &rest[..count]);
        }
        self.counts.calls += 1;
        let (pieces, size) = (self.packet.pieces(), cut(rest, count));
        self.registered
            .send((target.fd, socket.number), target.to, pieces, size)?;
        Ok(count)
    }
}

pub(super) fn no_files() -> io::Error {
    let text = "a file's bytes cannot be part of a datagram: read them first";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Puts as many datagrams into a packet as it takes whole; returns how many.
fn gather(
    packet: &mut Packet,
    all: &[Datagram],
    mut put: impl FnMut(&Datagram, &mut Packet) -> bool,
) -> usize {
    packet.clear();
    for (count, one) in all.iter().enumerate() {
        let before = packet.mark();
        if !put(one, packet) {
            packet.back(before);
            return count;
        }
    }
    all.len()
}

/// Returns how many datagrams from the first one on have its length (the last one perhaps shorter) and fit into a call.
fn alike(rest: &[Datagram]) -> usize {
    let size = rest[0].len;
    let (mut count, mut bytes) = (0, 0);
    for one in rest {
        bytes += one.len;
        let fits = count < gso::MOST && bytes <= gso::MOST_BYTES;
        if count > 0 && !(fits && one.len <= size && one.len > 0) {
            break;
        }
        count += 1;
        if one.len < size {
            break;
        }
    }
    count
}

/// Returns the length at which the kernel is to cut.
fn cut(rest: &[Datagram], count: usize) -> Option<u16> {
    (count > 1)
        .then(|| u16::try_from(rest[0].len).ok())
        .flatten()
}

fn is_about_the_cut(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT | libc::EMSGSIZE)
    )
}
