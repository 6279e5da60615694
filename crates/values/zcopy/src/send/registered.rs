//! Datagrams out of registered pages: io_uring's SENDMSG_ZC (Linux 6.15). The pages of an arena's protected pageblocks
//! are looked up and held once, for all later sends. MSG_ZEROCOPY does that for each page of each send, which costs as
//! much as copying a page.
//!
//! ```text
//!   range    pageblock 3 │ 4 │ 9 │ …  │ log      the kernel has its pages; its addresses are only names
//!   table    pageblock → place in the range, and the pageblock's epoch when that was made
//! ```
//!
//! A range never changes. A thread of its own makes a new one when many of the sent bytes lie elsewhere. A range is
//! given up when too much of it was freed, because its pages are held as long. A pageblock's epoch says whether it
//! still has the pages that were registered.

use super::marks::Marks;
use super::packet::Packet;
use super::segment::Segment;
use crate::arena::classes::PAGE;
use crate::arena::{Epochs, Inner};
use crate::kernel::ring::{self, Ring};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use tranship_sys::map;

/// Bytes of the log, in two halves.
const LOG: usize = 1 << 20;
const HALF: usize = LOG / 2;
/// The longest copied piece of a datagram.
const LONGEST: usize = 1024;
/// Most bytes of the log that the pieces of one call may need.
const MESSAGE: usize = 64 * LONGEST;
/// Datagrams for each protected pageblock that had to go otherwise before a range is made for them: by then that has
/// cost more than the range.
const MISSES: u64 = 8;
/// Sends below which a range cannot be judged.
const LEAST: u64 = 2048;
/// One in this number of datagrams may lie elsewhere, and one in this number of pageblocks may have been freed.
const TOLERATED: u64 = 8;

/// Registration state of a sender.
#[derive(Debug, Default)]
pub(super) struct Registered {
    range: Option<Range>,
    coming: Option<Receiver<io::Result<Range>>>,
    /// Datagrams that lay in it since it was made, and that did not.
    hits: u64,
    misses: u64,
    /// Misses before the next check whether a range is worth it.
    patience: u64,
    /// The kernel cannot, or does not let us.
    refused: bool,
}

impl Registered {
    /// Returns whether datagrams of this arena can go by this way, for the greatest part.
    pub(super) fn is_ready(&mut self, arena: &Inner) -> bool {
        self.look();
        let covers = self.hits + self.misses < LEAST || self.misses * TOLERATED <= self.hits;
        let same = |range: &Range| range.identity == arena.file().1;
        covers && self.range.as_ref().is_some_and(same)
    }

    /// Returns [`Registered::is_ready`], and waits for it if it can become ready.
    pub(super) fn insist(&mut self, arena: &Inner) -> bool {
        if !self.is_ready(arena) && !self.refused {
            let made = Range::new(arena);
            self.take(made);
        }
        self.is_ready(arena)
    }

    /// Takes over ranges that have been made, and gives up those that hold too much.
    pub(super) fn look(&mut self) {
        match self.coming.as_ref().map(Receiver::try_recv) {
            Some(Ok(made)) => self.take(made),
            Some(Err(TryRecvError::Disconnected)) => self.refuse(),
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if self.range.as_ref().is_some_and(Range::is_stale) {
            self.range = None;
        }
    }

    fn take(&mut self, made: io::Result<Range>) {
        match made {
            Ok(range) => {
                *self = Registered {
                    range: Some(range),
                    ..Registered::default()
                }
            }
            Err(_) => self.refuse(),
        }
    }

    /// Notes that the kernel cannot.
    pub(super) fn refuse(&mut self) {
        *self = Registered {
            refused: true,
            ..Registered::default()
        };
    }

    /// Forgets all in a forked child, which has neither the thread nor its ranges.
    pub(super) fn forget(&mut self) {
        std::mem::forget(self.coming.take());
        *self = Registered::default();
    }

    /// Notes that datagrams with protected values went otherwise, because no range has the values.
    pub(super) fn missed(&mut self, datagrams: usize) {
        self.misses += datagrams as u64;
    }

    /// Asks for another range, if that has become worth it.
    pub(super) fn consider(&mut self, arena: &Arc<Inner>) {
        if self.refused || self.coming.is_some() || self.misses < self.patience.max(LEAST) {
            return;
        }
        let most = most_blocks(arena.block_bytes());
        let blocks = u64::from(arena.protected(most + 1).blocks);
        if blocks == 0 || blocks > u64::from(most) {
            // Half of them registered would break up datagrams that go together.
            self.patience = self.misses * 2;
        } else if self.misses < blocks * MISSES {
            self.patience = blocks * MISSES;
        } else {
            self.order(arena);
        }
    }

    fn order(&mut self, arena: &Arc<Inner>) {
        let (give, coming) = sync_channel(1);
        let arena = Arc::clone(arena);
        let work = move || {
            // The sender may not want it any more.
            let _ = give.send(Range::new(&arena));
        };
        let thread = std::thread::Builder::new().name("tranship-zc-reg".to_owned());
        match thread.spawn(work) {
            Ok(_) => self.coming = Some(coming),
            Err(_) => self.patience = self.misses * 2,
        }
    }

    /// Begins the pieces of a call; false if the log has no room until the kernel is done with its present content.
    pub(super) fn begin(&mut self) -> bool {
        self.range.as_mut().is_some_and(Range::begin)
    }

    /// Prefetches the records of the segments' places into the caches.
    pub(super) fn prefetch(&self, segments: &[Segment]) {
        if let Some(range) = &self.range {
            segments.iter().for_each(|segment| range.prefetch(segment));
        }
    }

    /// Returns whether it has all of a datagram.
    pub(super) fn has(&self, segments: &[Segment]) -> bool {
        let range = self.range.as_ref();
        range.is_some_and(|range| segments.iter().all(|segment| range.has(segment)))
    }

    /// Puts a datagram's segments, as places in the range, into a packet. Returns false if the range lacks some of
    /// them, or the packet has no room.
    pub(super) fn places(&mut self, segments: &[Segment], packet: &mut Packet) -> bool {
        let Some(range) = &mut self.range else {
            return false;
        };
        let mut place = |segment: &Segment| {
            range
                .place(segment)
                .is_some_and(|at| packet.push(at, segment.len))
        };
        let all = segments.iter().all(&mut place);
        self.hits += u64::from(all);
        all
    }

    /// Sends pieces of the range to a socket, which has a number.
    pub(super) fn send(
        &mut self,
        (fd, socket): (BorrowedFd<'_>, u32),
        to: Option<SocketAddr>,
        pieces: &[(*const u8, usize)],
        size: Option<u16>,
    ) -> io::Result<()> {
        let range = self.range.as_mut().expect("pieces of it");
        let (half, marks) = (range.log.half, &mut range.marks);
        let mark = marks.begin(half, socket);
        let mut done = |mark, copied| marks.done(mark, copied);
        // SAFETY: registered; pages that never change again, or the log's, of which no half is written that a send
        // refers to.
        let (sent, follows) = unsafe { range.ring.send(fd, to, pieces, size, mark, &mut done) };
        match (&sent, follows) {
            (_, false) => marks.done(mark, false),
            (Err(_), true) => marks.failed(mark),
            (Ok(()), true) => {}
        }
        sent
    }

    /// Returns whether the kernel has copied data of registered pages to a socket. Reported once.
    pub(super) fn copies(&mut self, socket: u32) -> bool {
        let range = self.range.as_mut();
        range.is_some_and(|range| range.marks.copies(socket))
    }
}

/// Pageblocks of that size that fit into a range.
fn most_blocks(block_bytes: usize) -> u32 {
    u32::try_from((ring::MOST - LOG) / block_bytes).unwrap_or(u32::MAX - 1)
}

/// Mark in place of a place.
const NOWHERE: u32 = u32::MAX;

/// Pages that a ring knows.
#[derive(Debug)]
struct Range {
    ring: Ring,
    /// The file that they are of.
    identity: (u64, u64),
    block_bytes: usize,
    epochs: Arc<Epochs>,
    /// Number of protected pageblocks that had been given back when the range was made.
    renewed: u64,
    /// Place of each pageblock of the arena, or [`NOWHERE`], and its epoch.
    table: Vec<(u32, u32)>,
    blocks: u32,
    /// The address by which the kernel knows the first one.
    base: usize,
    log: Log,
    marks: Marks,
}

impl Range {
    /// Creates a range of all that is protected now.
    fn new(arena: &Inner) -> io::Result<Range> {
        let ring = Ring::new()?;
        let block_bytes = arena.block_bytes();
        let epochs = Arc::clone(arena.epochs());
        let renewed = epochs.renewed();
        let protected = arena.protected(most_blocks(block_bytes));
        let bytes = protected.blocks as usize * block_bytes;
        let area = Area::new(bytes + LOG)?;
        let mut table = Vec::new();
        let mut place = 0;
        for (first, stretch) in &protected.stretches {
            let at = place as usize * block_bytes;
            // SAFETY: inside, and of this stretch alone.
            unsafe { arena.show(*first, stretch.len(), area.at(at))? };
            table.resize(*first as usize, (NOWHERE, 0));
            for epoch in stretch {
                table.push((place, *epoch));
                place += 1;
            }
        }
        if bytes > 0 {
            // SAFETY: our own, of which nothing changes. A refused page comes with the registration, or fails there.
            let _ = unsafe { map::hint(area.at(0), bytes, map::Hint::PopulateRead) };
        }
        // SAFETY: our own.
        unsafe { ring.register(area.at(0), bytes + LOG)? };
        Ok(Range {
            ring,
            identity: arena.file().1,
            block_bytes,
            epochs,
            renewed,
            table,
            blocks: protected.blocks,
            base: area.at(0).addr().get(),
            log: Log {
                area: area.last(LOG)?,
                used: 0,
                half: 0,
            },
            marks: Marks::default(),
        })
    }

    /// Returns whether it holds much that was freed.
    fn is_stale(&self) -> bool {
        let since = self.epochs.renewed() - self.renewed;
        since * TOLERATED > u64::from(self.blocks).max(TOLERATED * TOLERATED)
    }

    /// Returns the place of a segment of the arena whose pages are those that were registered.
    fn find(&self, segment: &Segment) -> Option<usize> {
        let file = segment.file.as_ref()?;
        if !file.is_of(self.identity) {
            return None;
        }
        let offset = usize::try_from(file.offset).ok()?;
        let (first, within) = (self.block_at(offset), offset & (self.block_bytes - 1));
        let last = self.block_at(offset + segment.len - 1);
        let mut place: Option<(u32, u32)> = None;
        for block in first..=last {
            let (at, epoch) = *self.table.get(block)?;
            let follows = place.is_none_or(|(before, count)| before + count == at);
            if at == NOWHERE || self.epochs.of(block) != epoch || !follows {
                return None;
            }
            let (before, count) = place.unwrap_or((at, 0));
            place = Some((before, count + 1));
        }
        let (place, _) = place?;
        Some(self.base + place as usize * self.block_bytes + within)
    }

    /// Returns the number of a pageblock. Its bytes are a power of two, and dividing by them would take long.
    fn block_at(&self, offset: usize) -> usize {
        offset >> self.block_bytes.trailing_zeros()
    }

    /// Prefetches the data that [`Range::find`] will read into the caches.
    fn prefetch(&self, segment: &Segment) {
        if let Some(file) = &segment.file
            && let Ok(offset) = usize::try_from(file.offset)
        {
            let block = self.block_at(offset);
            tranship_sync::prefetch_read(self.table.as_ptr().wrapping_add(block).cast());
            self.epochs.prefetch(block);
        }
    }

    fn has(&self, segment: &Segment) -> bool {
        match segment.file {
            Some(_) => self.find(segment).is_some(),
            None => segment.len <= LONGEST && !segment.shared,
        }
    }

    fn place(&mut self, segment: &Segment) -> Option<*const u8> {
        if segment.file.is_some() {
            return self.find(segment).map(std::ptr::without_provenance);
        }
        if segment.len > LONGEST || segment.shared {
            return None;
        }
        // SAFETY: the piece's own bytes.
        unsafe { self.log.keep(segment.at, segment.len) }
    }

    /// Makes room for the bytes that a call may keep; false if there is none.
    fn begin(&mut self) -> bool {
        let log = &mut self.log;
        if log.used + MESSAGE <= (log.half + 1) * HALF {
            return true;
        }
        let other = 1 - log.half;
        let marks = &mut self.marks;
        if marks.outstanding(other) > 0 {
            let done = &mut |mark, copied| marks.done(mark, copied);
            let _ = self.ring.notified(done);
        }
        if marks.outstanding(other) > 0 {
            return false;
        }
        (log.half, log.used) = (other, other * HALF);
        true
    }
}

/// Copied pieces: a half is written again when the kernel is done with all that refers to it.
#[derive(Debug)]
struct Log {
    area: Area,
    /// Bytes from the start of the log.
    used: usize,
    half: usize,
}

impl Log {
    /// Copies bytes to where they stay, inside one page.
    ///
    /// # Safety
    /// The range is mapped memory.
    unsafe fn keep(&mut self, from: *const u8, len: usize) -> Option<*const u8> {
        let at = if self.used % PAGE + len > PAGE {
            self.used.next_multiple_of(PAGE)
        } else {
            self.used
        };
        if at + len > (self.half + 1) * HALF {
            return None;
        }
        let to = self.area.at(at).as_ptr();
        // SAFETY: inside the log, to which no send refers there; the source is mapped, says the caller, and cannot be
        // the log.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        self.used = at + len;
        Some(to)
    }
}

/// Memory of its own. A user of its pages keeps them when the area is gone.
#[derive(Debug)]
struct Area {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the only handle to a mapping of its own.
unsafe impl Send for Area {}

impl Area {
    fn new(len: usize) -> io::Result<Area> {
        let at = map::reserve_private(len, PAGE)?;
        Ok(Area { at, len })
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: inside.
        unsafe { self.at.add(offset) }
    }

    /// Keeps only its end.
    fn last(mut self, len: usize) -> io::Result<Area> {
        let gone = self.len - len;
        let at = self.at(gone);
        if gone > 0 {
            // SAFETY: ours, and used no more.
            unsafe { map::unmap(self.at, gone)? };
        }
        (self.at, self.len) = (at, len);
        Ok(self)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody else has its address.
        let _ = unsafe { map::unmap(self.at, self.len) };
    }
}
