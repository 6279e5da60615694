//! Sends: a list of pieces goes to a socket in order, what can be referred to by reference, the rest by copying.
//!
//! ```text
//!   pieces ─► segments: copied, or pages that no longer change
//!                 │ choice: by kind of socket and size, from what each way has cost here
//!        ┌────────┼──────────────┬───────────────┐
//!      copy    splice          file          notified
//!     sendmsg  vmsplice,splice sendfile      MSG_ZEROCOPY
//! ```
//!
//! A call sends as much as there is room for and says how much, as send(2): nothing of it waits here.

mod choice;
mod copy;
mod file;
mod header;
mod notified;
mod segment;
mod socket;
mod splice;

pub use choice::{Choice, Explanation, Way};
pub use segment::Piece;
pub use socket::Socket;

use crate::arena::classes::PAGE;
use choice::Chooser;
use header::HeaderLog;
use segment::Segment;
use splice::Pipe;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Instant;
use tranship_sys::ForkGuard;
use tranship_sys::pagemap::Pagemap;
use tranship_sys::signals;

/// What a [`Sender`] has sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Calls of [`Sender::send`].
    pub sends: u64,
    /// Bytes that the kernel copied.
    pub copied_bytes: u64,
    /// Bytes that went by reference to their pages.
    pub referred_bytes: u64,
    /// Bytes of values that were copied because their pageblock was not protected (yet), or a page had been written.
    pub unprotected_bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Sends that the kernel took less of than was offered.
    pub partial: u64,
    /// Sockets on which MSG_ZEROCOPY was given up because the kernel copied all the same.
    pub gave_up_notified: u64,
}

/// Sends values. One for each thread: it has a pipe, what it learnt about which way is cheapest, and no lock.
#[derive(Debug)]
pub struct Sender {
    pipe: Option<Pipe>,
    log: HeaderLog,
    chooser: Chooser,
    counts: Counts,
    pagemap: Option<Pagemap>,
    segments: Vec<Segment>,
    forced: Option<Way>,
    guard: ForkGuard,
}

/// Runs of written pages that are told apart in one piece.
const RUNS: usize = 8;

// SAFETY: the list of segments is empty between two sends; everything else may be sent.
unsafe impl Send for Sender {}

impl Sender {
    /// A sender. Takes a pipe and a page table's descriptor when it first needs them.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn new() -> io::Result<Sender> {
        Ok(Sender {
            pipe: None,
            log: HeaderLog::new()?,
            chooser: Chooser::default(),
            counts: Counts::default(),
            pagemap: None,
            segments: Vec::new(),
            forced: None,
            guard: ForkGuard::new()?,
        })
    }

    /// Sends by this way wherever it can be used, and measures nothing. `None`: chooses again.
    pub fn force(&mut self, way: Option<Way>) {
        self.forced = way;
    }

    /// Sends the pieces in order: as many bytes as there is room for; says how many. A blocking socket is waited for as
    /// send(2) does. What was sent never changes, whatever is written or freed after this returns.
    ///
    /// # Errors
    /// As send(2): `WouldBlock` if a non-blocking socket has no room at all, `BrokenPipe` (without a signal) if the
    /// other end is gone.
    pub fn send(
        &mut self,
        fd: impl AsFd,
        socket: &mut Socket,
        pieces: &[Piece<'_>],
    ) -> io::Result<usize> {
        if self.guard.is_child() {
            // The pipe is the parent's too, and the page tables are the parent's.
            (self.pipe, self.pagemap) = (None, None);
            self.guard = ForkGuard::new()?;
        }
        self.counts.sends += 1;
        let mut segments = std::mem::take(&mut self.segments);
        segments.clear();
        let referable = self.resolve(pieces, &mut segments);
        let sent = self.send_segments(fd.as_fd(), socket, &segments, referable);
        segments.clear();
        self.segments = segments;
        sent
    }

    fn send_segments(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        segments: &[Segment],
        referable: usize,
    ) -> io::Result<usize> {
        let total = segments.iter().map(|segment| segment.len).sum::<usize>();
        if referable == 0 {
            let sent = self.by(Way::Copy, fd, socket, segments)?;
            self.note(Way::Copy, segments, sent, total);
            return Ok(sent);
        }
        let (way, timed) = match self.forced {
            Some(way) if socket.allows(way) => (way, false),
            Some(_) => (Way::Copy, false),
            None => self.chooser.choose(socket, referable),
        };
        let begin = timed.then(Instant::now);
        let sent = match self.by(way, fd, socket, segments) {
            // What the kernel refuses by reference (no pipe, no room for notifications, pages that cannot be spliced) is copied.
            Err(error) if way != Way::Copy && is_about_the_way(&error) => {
                self.chooser.refused(socket, referable, way);
                self.by(Way::Copy, fd, socket, segments)?
            }
            other => {
                let sent = other?;
                // A partial send says little about what a whole one costs.
                if let Some(begin) = begin
                    && sent == total
                {
                    let ns = begin.elapsed().as_nanos();
                    self.chooser.learn(socket, referable, way, ns, sent);
                }
                sent
            }
        };
        self.note(way, segments, sent, total);
        Ok(sent)
    }

    fn by(
        &mut self,
        way: Way,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        segments: &[Segment],
    ) -> io::Result<usize> {
        match way {
            Way::Copy => copy::send(fd, segments, &mut self.counts),
            Way::Splice => {
                let pipe = match &mut self.pipe {
                    Some(pipe) => pipe,
                    none => none.insert(Pipe::new()?),
                };
                signals::without_sigpipe(|| {
                    splice::send(fd, segments, pipe, &mut self.log, &mut self.counts)
                })
            }
            Way::File => signals::without_sigpipe(|| file::send(fd, segments, &mut self.counts)),
            Way::Notified => notified::send(fd, socket, segments, &mut self.log, &mut self.counts),
        }
    }

    /// Turns pieces into segments; says how many bytes may go by reference.
    fn resolve(&mut self, pieces: &[Piece<'_>], segments: &mut Vec<Segment>) -> usize {
        for piece in pieces {
            match piece {
                Piece::Value(value) => {
                    value.arena().freeze_queued();
                    let segment = Segment::of_arena(value.arena(), value.as_ptr(), value.len());
                    self.push(segments, segment);
                }
                Piece::Part(value, range) => {
                    value.arena().freeze_queued();
                    let bytes = &value[range.clone()];
                    let segment = Segment::of_arena(value.arena(), bytes.as_ptr(), bytes.len());
                    self.push(segments, segment);
                }
                Piece::Raw(raw) => {
                    raw.arena.inner.freeze_for(raw.at);
                    let segment = Segment::of_arena(&raw.arena.inner, raw.at, raw.len);
                    self.push_raw(segments, segment);
                }
                Piece::ReadOnly(bytes) => segments.push(Segment::of_read_only(bytes)),
                Piece::Bytes(bytes) => segments.push(Segment::of_bytes(bytes)),
            }
        }
        segments.retain(|segment| segment.len > 0);
        let referable = segments.iter().filter(|segment| segment.pages.is_some());
        referable.map(|segment| segment.len).sum()
    }

    fn push(&mut self, segments: &mut Vec<Segment>, segment: Segment) {
        if segment.pages.is_none() {
            self.counts.unprotected_bytes += segment.len as u64;
        }
        segments.push(segment);
    }

    /// Its owner may have written since it was protected: such pages are not what the program sees, and are copied.
    fn push_raw(&mut self, segments: &mut Vec<Segment>, mut segment: Segment) {
        if segment.pages.is_none() {
            return self.push(segments, segment);
        }
        let mut runs = [const { 0..0 }; RUNS];
        let first = segment.at.addr() % PAGE;
        let Some(count) = self.written(segment, &mut runs) else {
            return self.push(segments, segment.copied());
        };
        // Bytes of the segment that are done with.
        let mut done = 0;
        for run in &runs[..count] {
            let (from, to) = (run.start.saturating_sub(first), run.end - first);
            if from > done {
                let (clean, rest) = segment.split(from - done);
                (segment, done) = (rest, from);
                self.push(segments, clean);
            }
            let (written, rest) = segment.split((to - done).min(segment.len));
            (segment, done) = (rest, to);
            self.push(segments, written.copied());
        }
        // More may follow of which there was no room to tell.
        let rest = if count == RUNS {
            segment.copied()
        } else {
            segment
        };
        self.push(segments, rest);
    }

    /// The runs of written pages around a segment; none if nobody can say.
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

    fn note(&mut self, way: Way, segments: &[Segment], sent: usize, total: usize) {
        self.counts.partial += u64::from(sent < total);
        let mut left = sent;
        for segment in segments {
            let part = segment.len.min(left) as u64;
            if way != Way::Copy && segment.pages.is_some() {
                self.counts.referred_bytes += part;
            } else {
                self.counts.copied_bytes += part;
            }
            left -= segment.len.min(left);
        }
    }

    /// What it has sent so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Which way it takes for which size on which kind of socket, and why.
    #[must_use]
    pub fn explain(&self) -> Vec<Explanation> {
        self.chooser.explain()
    }
}

/// Does an error come from how it was sent, and not from the connection?
fn is_about_the_way(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINVAL
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::EOPNOTSUPP
                | libc::EMFILE
                | libc::ENFILE
                | libc::EMSGSIZE
                | libc::EPERM
                | libc::ESPIPE
        )
    )
}
