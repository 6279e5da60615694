//! Sender: one for each thread.

use super::choice::{Chooser, Chosen, Weight};
use super::counts::Counts;
use super::header::HeaderLog;
use super::packet::Packet;
use super::registered::Registered;
use super::route::Route;
use super::segment::{self, Datagram, Piece, Segment};
use super::socket::Socket;
use super::splice::{self, Pipe};
use super::way::{Cause, Way, Why, is_later, said};
use super::{copy, notified};
use crate::arena::Inner;
use crate::arena::classes::PAGE;
use crate::kernel::pagemap::Pagemap;
use crate::tally::{Tally, layout};
use rustix::net::sockopt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use tranship_sys::ForkGuard;
use tranship_sys::signals;
use tranship_sys::stream;

/// Sends values. One for each thread: it has a pipe, a place for its counts, and no lock.
///
/// ```
/// # mod tranship { pub use tranship_zcopy as zcopy; }
/// use std::io::Read;
/// use std::os::unix::net::UnixStream;
/// use tranship::zcopy::{Arena, Piece, Sender, Socket};
///
/// let value = Arena::new()?.copy(b"a value")?;
/// let (here, mut there) = UnixStream::pair()?;
/// let mut socket = Socket::new(&here)?; // goes with this connection
/// let mut sender = Sender::new()?; // one for the thread
/// let sent = sender.send(&here, &mut socket, &[Piece::Bytes(b"7 "), Piece::Value(&value)])?;
/// let mut got = [0; 9];
/// there.read_exact(&mut got[..sent])?;
/// assert_eq!(&got, b"7 a value");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sender {
    pipe: Option<Pipe>,
    pub(super) log: HeaderLog,
    pub(super) chooser: Chooser,
    /// Page where other processes see the counts.
    tally: Tally,
    pub(super) counts: Counts,
    /// Counts that the place on the page had before this sender.
    before: Counts,
    pagemap: Option<Pagemap>,
    pub(super) registered: Registered,
    pub(super) segments: Vec<Segment>,
    pub(super) datagrams: Vec<Datagram>,
    pub(super) packet: Packet,
    pub(super) forced: Option<Way>,
    guard: ForkGuard,
}

/// Runs of written pages that are told apart in one piece.
const RUNS: usize = 8;

fn push(segments: &mut Vec<Segment>, segment: Segment) {
    if segment.len > 0 {
        segments.push(segment);
    }
}

/// Returns whether a send to it waits until there is room, or a signal comes.
fn waits_for_ever(fd: BorrowedFd<'_>) -> bool {
    let limit = sockopt::socket_timeout(fd, sockopt::Timeout::Send);
    limit.is_ok_and(|limit| limit.is_none()) && !stream::is_nonblocking(fd)
}

// SAFETY: the list of segments is empty between two sends, and of a packet nothing is used again; everything else may
// be sent.
unsafe impl Send for Sender {}

impl Sender {
    /// Creates a sender. Takes a pipe and a page table's descriptor when it first needs them.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn new() -> io::Result<Sender> {
        let tally = Tally::claim();
        Ok(Sender {
            pipe: None,
            log: HeaderLog::new()?,
            before: Counts::published(&tally),
            tally,
            chooser: Chooser::default(),
            counts: Counts::default(),
            pagemap: None,
            registered: Registered::default(),
            segments: Vec::new(),
            datagrams: Vec::new(),
            packet: Packet::default(),
            forced: None,
            guard: ForkGuard::new()?,
        })
    }

    /// Sends by this way wherever it can be used. For one by reference full pageblocks are protected at the next send,
    /// also where that does not pay, and for [`Way::Copy`] they are not. `None`: goes by size again.
    pub fn force(&mut self, way: Option<Way>) {
        self.forced = way;
    }

    /// Sends to streams within this machine by reference from that many bytes on (256 KiB unless told).
    pub fn refer_from(&mut self, bytes: usize) {
        self.chooser.spliced = bytes;
    }

    /// Returns whether any of these may go by reference, and that pays on a stream socket without notifications.
    /// Otherwise the caller can as well use send(2), and then calls [`Sender::copied`]. Protects nothing.
    #[must_use]
    #[doc(hidden)]
    pub fn may_refer(&mut self, pieces: &[Piece<'_>]) -> bool {
        // A sender that cannot have its own resources reports that at the send.
        if self.renew_after_fork().is_err() {
            return true;
        }
        let could = pieces.iter().filter(|piece| match piece {
            Piece::Bytes(_) => false,
            Piece::Raw(raw) => raw.arena.inner.could_refer(raw.at, raw.len),
            _ => true,
        });
        let pays = |weight| self.chooser.may_pay(weight);
        match self.forced {
            Some(way) => way != Way::Copy && could.count() > 0,
            // Most are too small, and then nothing is looked up.
            None => pays(Weight::at_most(pieces.iter(), 0)) && pays(Weight::at_most(could, 0)),
        }
    }

    /// Counts a send that the caller made by copying, of pieces for which [`Sender::may_refer`] said no, and of which
    /// so many bytes went.
    ///
    /// # Errors
    /// As [`Sender::new`], in a forked child.
    #[doc(hidden)]
    pub fn copied(&mut self, pieces: &[Piece<'_>], sent: usize) -> io::Result<()> {
        self.renew_after_fork()?;
        let mut segments = std::mem::take(&mut self.segments);
        segments.clear();
        for piece in pieces.iter().filter(|piece| piece.len() > 0) {
            match piece {
                Piece::Raw(raw) => {
                    let segment = Segment::of_arena(&raw.arena.inner, raw.at, raw.len);
                    push(&mut segments, segment);
                }
                Piece::ReadOnly(bytes) => segments.push(Segment::of_read_only(bytes)),
                Piece::Bytes(bytes) => segments.push(Segment::of_bytes(bytes)),
                // `may_refer` says yes for the other kinds, so none of them is here.
                _ => {}
            }
        }
        self.counts.sends += 1;
        self.counts.calls += 1;
        let offered = segments.iter().map(|segment| segment.len).sum::<usize>();
        self.counts.partial += u64::from(sent < offered);
        let why = match (segment::referable(&segments), self.forced) {
            (0, _) => Why::Nothing,
            (_, Some(_)) => Why::Told,
            (_, None) => Why::Small,
        };
        self.note(Route::Other, Chosen::copy(why), &segments, sent);
        segments.clear();
        self.segments = segments;
        self.publish();
        Ok(())
    }

    /// Sends pieces of any kind but files; `more` follows.
    pub(super) fn send_plain(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        pieces: &[Piece<'_>],
        more: bool,
    ) -> io::Result<usize> {
        let mut segments = std::mem::take(&mut self.segments);
        segments.clear();
        let protects = self.protects(socket, socket.route, Weight::at_most(pieces.iter(), 0));
        self.resolve(pieces, None, protects, &mut segments);
        let sent = self.send_segments(fd, socket, pieces, &mut segments, more);
        segments.clear();
        self.segments = segments;
        sent
    }

    /// Renews the resources in a forked child: the pipe is the parent's too, and so are the page tables and the place
    /// on the page.
    pub(super) fn renew_after_fork(&mut self) -> io::Result<()> {
        if self.guard.is_child() {
            (self.pipe, self.pagemap) = (None, None);
            self.registered.forget();
            self.guard = ForkGuard::new()?;
            self.tally = Tally::claim();
            self.before = Counts::published(&self.tally);
        }
        Ok(())
    }

    pub(super) fn publish(&self) {
        self.counts.publish(&self.tally, &self.before);
    }

    fn send_segments(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        pieces: &[Piece<'_>],
        segments: &mut Vec<Segment>,
        more: bool,
    ) -> io::Result<usize> {
        let total = segments.iter().map(|segment| segment.len).sum::<usize>();
        // A datagram alone is not worth it.
        let referable = if socket.is_stream() {
            segment::referable(segments)
        } else {
            0
        };
        let mut chosen = self.decide(socket, socket.route, referable, || Weight::of(segments, 0));
        if chosen.way != Way::Copy {
            pieces.iter().for_each(|piece| piece.lend(None));
            self.make_sure(segments, 0);
        }
        let sent = match self.by(chosen.way, fd, socket, segments, more) {
            // Whatever the reason of the refusal (no pipe, no room for notifications, pages that cannot be spliced, a
            // sandbox), none of the bytes went: they are copied.
            Err(error) if chosen.way != Way::Copy => {
                let copied = self.copy_instead(fd, segments, more, &error);
                if copied.is_ok() && !is_later(&error) {
                    self.chooser.refused(self.counts.sends, socket.route);
                }
                chosen = Chosen::copy(Why::Refused);
                said(error, copied)?
            }
            other => other?,
        };
        self.counts.partial += u64::from(sent < total);
        self.note(socket.route, chosen, segments, sent);
        Ok(sent)
    }

    /// Copies pieces that another way refused.
    pub(super) fn copy_instead(
        &mut self,
        fd: BorrowedFd<'_>,
        segments: &[Segment],
        more: bool,
        refused: &io::Error,
    ) -> io::Result<usize> {
        if !is_later(refused) {
            return copy::send(fd, segments, more, &mut self.counts);
        }
        // splice(2) and sendfile(2) look for signals before they look for room, send(2) does when it has to wait: room
        // there is goes first.
        match copy::send_now(fd, segments, more, &mut self.counts) {
            // A socket that waits for ever has no "not now" of its own.
            Err(full)
                if full.kind() == io::ErrorKind::WouldBlock
                    && refused.kind() == io::ErrorKind::WouldBlock
                    && waits_for_ever(fd) =>
            {
                copy::send(fd, segments, more, &mut self.counts)
            }
            other => other,
        }
    }

    /// Decides the way of a send, and the reason. The number says how many bytes may go by reference.
    pub(super) fn decide(
        &mut self,
        socket: &Socket,
        route: Route,
        referable: usize,
        weight: impl FnOnce() -> Weight,
    ) -> Chosen {
        match self.forced {
            _ if referable == 0 => Chosen::copy(Why::Nothing),
            Some(way) if socket.allows(route, way) => Chosen {
                way,
                why: Why::Told,
            },
            Some(_) => Chosen::copy(Why::Socket),
            None => self
                .chooser
                .choose(self.counts.sends, socket, route, weight()),
        }
    }

    /// Returns whether full pageblocks are to be protected before a send of that weight at most.
    pub(super) fn protects(&self, socket: &Socket, route: Route, weight: Weight) -> bool {
        match self.forced {
            None => self.chooser.pays(self.counts.sends, socket, route, weight),
            Some(way) => way != Way::Copy,
        }
    }

    fn by(
        &mut self,
        way: Way,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        segments: &[Segment],
        more: bool,
    ) -> io::Result<usize> {
        match way {
            Way::Copy => copy::send(fd, segments, more, &mut self.counts),
            Way::Splice => {
                let pipe = match &mut self.pipe {
                    Some(pipe) => pipe,
                    none => none.insert(Pipe::new()?),
                };
                let appetite = &mut socket.appetite;
                let (log, counts) = (&mut self.log, &mut self.counts);
                let sent = signals::without_sigpipe(|| {
                    splice::send(fd, segments, pipe, appetite, log, counts)
                });
                if !pipe.is_empty() {
                    self.pipe = None; // its content is ours alone
                }
                sent
            }
            Way::Notified => notified::send(fd, socket, segments, &mut self.log, &mut self.counts),
            Way::File | Way::Registered => unreachable!("files and datagrams go by themselves"),
        }
    }

    /// Turns pieces into segments; values are likely to be of the arena that is `known`. Protects their full
    /// pageblocks if the send is large enough to go by reference.
    pub(super) fn resolve<'p>(
        &mut self,
        pieces: &'p [Piece<'_>],
        known: Option<&'p Arc<Inner>>,
        protects: bool,
        segments: &mut Vec<Segment>,
    ) {
        let told = self.forced.is_some();
        let protect = |arena: &Inner| match told {
            _ if !protects => {}
            false => arena.freeze_if_it_pays(),
            true => arena.freeze_queued(),
        };
        for piece in pieces.iter().filter(|piece| piece.len() > 0) {
            match piece {
                Piece::Value(value) => {
                    let arena = value.arena_or(known);
                    protect(arena);
                    let segment = Segment::of_arena(arena, value.as_ptr(), value.len());
                    push(segments, segment);
                }
                Piece::Part(value, range) => {
                    let arena = value.arena_or(known);
                    protect(arena);
                    let bytes = &value[range.clone()];
                    let segment = Segment::of_arena(arena, bytes.as_ptr(), bytes.len());
                    push(segments, segment);
                }
                Piece::Raw(raw) => {
                    let arena = &raw.arena.inner;
                    if protects {
                        arena.enqueue_large(raw.at);
                    }
                    protect(arena);
                    let segment = Segment::of_arena(arena, raw.at, raw.len);
                    let unsure = segment.pages.is_some();
                    push(segments, Segment { unsure, ..segment });
                }
                Piece::ReadOnly(bytes) => segments.push(Segment::of_read_only(bytes)),
                Piece::Bytes(bytes) => segments.push(Segment::of_bytes(bytes)),
                Piece::Buffer(buffer) => segments.push(Segment::of_buffer(buffer, 0..buffer.len())),
                Piece::BufferPart(buffer, range) => {
                    segments.push(Segment::of_buffer(buffer, range.clone()));
                }
                Piece::File(..) => unreachable!("files go by themselves, and not as datagrams"),
            }
        }
    }

    /// Asks the page tables about segments from a place on whose owners may have written since they were protected.
    /// That costs as much as copying a page or two, and is left out for bytes that are copied anyway.
    pub(super) fn make_sure(&mut self, segments: &mut Vec<Segment>, from: usize) {
        if !segments[from..].iter().any(|segment| segment.unsure) {
            return;
        }
        for segment in segments.split_off(from) {
            if segment.unsure {
                let unsure = false;
                self.push_raw(segments, Segment { unsure, ..segment });
            } else {
                segments.push(segment);
            }
        }
    }

    /// Adds a piece whose owner may have written it since it was protected. Such pages are not those that the program
    /// sees, and are copied.
    fn push_raw(&mut self, segments: &mut Vec<Segment>, mut segment: Segment) {
        if segment.pages.is_none() {
            return push(segments, segment);
        }
        let mut runs = [const { 0..0 }; RUNS];
        let first = segment.at.addr() % PAGE;
        let Some(count) = self.written(segment, &mut runs) else {
            return push(segments, segment.copied());
        };
        // Bytes of the segment that are done with.
        let mut done = 0;
        for run in &runs[..count] {
            let (from, to) = (run.start.saturating_sub(first), run.end - first);
            if from > done {
                let (clean, rest) = segment.split(from - done);
                (segment, done) = (rest, from);
                push(segments, clean);
            }
            let (written, rest) = segment.split((to - done).min(segment.len));
            (segment, done) = (rest, to);
            push(segments, written.copied());
        }
        // More runs may follow for which there was no room in the answer.
        let rest = if count == RUNS {
            segment.copied()
        } else {
            segment
        };
        push(segments, rest);
    }

    /// Returns the runs of written pages around a segment; none if that is not known.
    fn written(&mut self, segment: Segment, runs: &mut [Range<usize>]) -> Option<usize> {
        let pagemap = match &self.pagemap {
            Some(pagemap) => pagemap,
            None => self.pagemap.insert(Pagemap::open().ok()?),
        };
        self.counts.calls += 1;
        let first = segment.at.addr() % PAGE;
        let len = (first + segment.len).next_multiple_of(PAGE);
        // SAFETY: the page's start, which is of the same mapping.
        let start = NonNull::new(unsafe { segment.at.sub(first) }.cast_mut())?;
        pagemap.touched(start, len, runs).ok()
    }

    /// Counts what went one way, and why.
    pub(super) fn note(&mut self, to: Route, chosen: Chosen, segments: &[Segment], sent: usize) {
        let (tally, Chosen { way, why }) = (&self.tally, chosen);
        let at = layout::choice(to.index(), way.index(), why.index());
        tally.add(at, 1);
        tally.add(at + 1, sent as u64);
        let mut copied = [0; Cause::ALL.len()];
        let mut left = sent;
        for segment in segments {
            let part = segment.len.min(left) as u64;
            let kept = segment.shared && way == Way::Notified;
            if segment.pages.is_none() && !kept {
                copied[segment.cause as usize] += part;
            } else if way == Way::Copy || way == Way::Registered && segment.file.is_none() {
                copied[Cause::Chosen as usize] += part;
            } else {
                self.counts.referred_bytes += part;
            }
            left -= segment.len.min(left);
        }
        for (cause, bytes) in copied
            .into_iter()
            .enumerate()
            .filter(|(_, bytes)| *bytes > 0)
        {
            self.counts.copied_bytes += bytes;
            tally.add(layout::CAUSES + cause, bytes);
        }
    }

    /// Counts bytes of a file.
    pub(super) fn note_file(&mut self, to: Route, way: Way, sent: usize) {
        let tally = &self.tally;
        let at = layout::choice(to.index(), way.index(), Why::File.index());
        tally.add(at, 1);
        tally.add(at + 1, sent as u64);
        if way == Way::File {
            self.counts.referred_bytes += sent as u64;
        } else {
            self.counts.copied_bytes += sent as u64;
            tally.add(layout::CAUSES + Cause::Plain as usize, sent as u64);
        }
    }

    /// Makes the descriptors that it will need now, and returns them. A program that closes them while it lives would
    /// have it write into the files that come under their numbers.
    ///
    /// # Errors
    /// If the kernel refuses them.
    #[doc(hidden)]
    pub fn descriptors(&mut self) -> io::Result<Vec<RawFd>> {
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            none => none.insert(Pipe::new()?),
        };
        let mut all = pipe.descriptors();
        let pagemap = match &self.pagemap {
            Some(pagemap) => pagemap,
            None => self.pagemap.insert(Pagemap::open()?),
        };
        all.push(pagemap.as_fd().as_raw_fd());
        all.extend(self.tally.descriptor());
        Ok(all)
    }

    /// Returns its counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
