//! The receiving end of a link.

use super::descriptor::{self, Descriptor, Reference};
use super::message::{Body, Inline, Message};
use super::shared::{Assigned, Assignment, Gone, LinkShared};
use super::sleep::sleep_on;
use crate::aggregate::{self, Aggregate};
use crate::cbuf::{Cbuf, Tag};
use crate::domain::{lock, millis};
use crate::error::{DomainError, RecvError, SendError, SendFailure, Violation};
use crate::options::{LinkOptions, Wait};
use crate::pool::{ForeignPool, Missing, OwnPool};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, DomainId, PoolId, RefusalCode, Request};
use tranship_sync::{Consumer, Lines, Producer, Publish, Waker};
use tranship_sys::{ForkGuard, crash};

/// Receives messages from one sender.
///
/// Crash-safe: a sender's death loses nothing that it had sent.
pub struct Receiver {
    pub(super) link: Arc<LinkShared>,
    lines: Lines<'static>,
    control_lines: Lines<'static>,
    pub(super) consumer: Consumer,
    control: Producer,
    ins: Vec<In>,
    /// The first of `ins`, if it is another domain's pool.
    at_hand: Option<AtHand>,
    guess: Guess,
    fork: ForkGuard,
    version: u32,
    /// A line that was taken but whose chunk is not here yet. Its count and the head wait with it.
    pending: Option<[u64; 8]>,
    wait: Wait,
    trusted: bool,
    drained: bool,
}

/// Looks at a line between two looks at anything else.
const SPIN_LOOK: u32 = 256;

/// A pool that can be received from.
struct In {
    pool: PoolId,
    assignment: Arc<Assignment>,
    /// Whether the sender is not the pool's writer: its word about a buffer is checked by generation.
    forwarded: bool,
}

/// Counters on a cache line.
const COUNTERS_AHEAD: u32 = 16;

/// What the fast path needs of a pool, without a way through three structures.
#[derive(Clone, Copy)]
struct AtHand {
    pool: PoolId,
    slots: u32,
    forwarded: bool,
    foreign: NonNull<ForeignPool>,
    rcvd: NonNull<AtomicU32>,
}

// SAFETY: it points into an assignment that `ins` beside it keeps, and that is Send and Sync.
unsafe impl Send for AtHand {}
// SAFETY: as above.
unsafe impl Sync for AtHand {}

impl AtHand {
    fn of(entry: &In) -> Option<AtHand> {
        let Assigned::Foreign(foreign) = &entry.assignment.side else {
            return None;
        };
        let counts = entry.assignment.counts.counts();
        (counts.len() >= foreign.shape.slots as usize).then(|| AtHand {
            pool: entry.pool,
            slots: foreign.shape.slots,
            forwarded: entry.forwarded,
            foreign: NonNull::from(&**foreign),
            rcvd: NonNull::from(counts).cast(),
        })
    }
}

/// Where the next message's buffer will be, if it is as far from the last one's as that was from the one before: the
/// collector hands slots out in their old order.
#[derive(Clone, Copy, Default)]
struct Guess {
    last: usize,
    step: usize,
}

impl Guess {
    #[inline(always)]
    fn next(self) -> *const u8 {
        std::ptr::without_provenance(self.last.wrapping_add(self.step))
    }
    #[inline(always)]
    fn saw(&mut self, ptr: *const u8) {
        self.step = ptr.addr().wrapping_sub(self.last);
        self.last = ptr.addr();
    }
}

/// What the fast path took, in plain words: moving them costs nothing, which moving a handle with a destructor does.
#[derive(Clone, Copy)]
struct Taken {
    meta: u64,
    ptr: NonNull<u8>,
    len: usize,
    pool: NonNull<ForeignPool>,
    tag: Tag,
}

impl Taken {
    /// # Safety
    /// Once per reference counted.
    #[inline(always)]
    unsafe fn into_buf(self) -> Cbuf {
        // SAFETY: the caller counted the reference; the range was checked against the window.
        unsafe { Cbuf::foreign(self.ptr, self.len, self.pool, self.tag) }
    }
}

/// Why a reference could not be taken.
enum Untaken {
    Violation(Violation),
    Missing(PoolId, Missing),
    /// The pool is assigned, but the manager has not said yet that our counters are on its writer's roster.
    NotOpen(PoolId),
}

impl From<Violation> for Untaken {
    fn from(violation: Violation) -> Untaken {
        Untaken::Violation(violation)
    }
}

impl Receiver {
    pub(super) fn new(
        link: Arc<LinkShared>,
        options: &LinkOptions,
    ) -> Result<Receiver, DomainError> {
        let lines = link.their_lines()?;
        let control_lines = link.own_lines()?;
        Ok(Receiver {
            lines,
            control_lines,
            consumer: Consumer::new(),
            control: Producer::new(),
            ins: Vec::new(),
            at_hand: None,
            guess: Guess::default(),
            fork: link.domain.fork,
            version: 0,
            pending: None,
            wait: options.wait,
            trusted: false,
            drained: false,
            link,
        })
    }

    /// Lets buffers received from now on be read as plain slices.
    ///
    /// # Safety
    /// The writer of every pool assigned to this channel must not change a buffer after it was sent. Isolation
    /// does not enforce that against the writer itself: as with a memory-mapped file, a writer that
    /// does it makes a slice change under the reader's feet.
    pub unsafe fn trust_writer(&mut self) {
        self.trusted = true;
    }

    /// The next message, if one is there. Never blocks for long. `None` also while the manager has not yet confirmed
    /// the pool of the message that is next; it comes as soon as the confirmation does.
    ///
    /// Cost of a direct receipt: the line's cache miss, one locked instruction, no system call.
    #[inline(always)]
    pub fn try_recv(&mut self) -> Result<Option<Message>, RecvError> {
        if self.looks_at_lines() {
            if let Some(taken) = self.take_direct() {
                // SAFETY: `take_direct` counted a reference for exactly one handle.
                let body = Body::Buf(unsafe { taken.into_buf() });
                return Ok(Some(Message {
                    meta: taken.meta,
                    body,
                }));
            }
            if let Some((meta, inline)) = self.take_inline() {
                return Ok(Some(Message {
                    meta,
                    body: Body::Inline(inline),
                }));
            }
        }
        self.try_recv_slow()
            .map(|message| message.map(|m| *m))
            .map_err(|e| *e)
    }

    /// Boxed, so that the fast path's results stay in registers where the two meet.
    #[inline(never)]
    fn try_recv_slow(&mut self) -> Result<Option<Box<Message>>, Box<RecvError>> {
        if self.pending.is_some() || self.link.domain.fork.is_child() {
            return Ok(self.try_recv_pending()?.map(Box::new));
        }
        match self.consumer.try_pop(self.lines) {
            Some(words) => Ok(self.take(words)?.map(Box::new)),
            None => Ok(self.nothing()?.map(Box::new)),
        }
    }

    #[cold]
    fn try_recv_pending(&mut self) -> Result<Option<Message>, RecvError> {
        if self.link.domain.fork.is_child() {
            return Err(RecvError::Forked);
        }
        match self.pending.take() {
            Some(words) => self.take(words),
            None => Ok(None),
        }
    }

    /// The next message, waiting as the link's [`Wait`] says, for ever.
    #[inline(always)]
    pub fn recv(&mut self) -> Result<Message, RecvError> {
        loop {
            if self.looks_at_lines() {
                if self.wait != Wait::Sleep {
                    self.spin_a_little();
                }
                if let Some(taken) = self.take_direct() {
                    // SAFETY: `take_direct` counted a reference for exactly one handle.
                    let body = Body::Buf(unsafe { taken.into_buf() });
                    return Ok(Message {
                        meta: taken.meta,
                        body,
                    });
                }
                if let Some((meta, inline)) = self.take_inline() {
                    return Ok(Message {
                        meta,
                        body: Body::Inline(inline),
                    });
                }
            }
            std::hint::cold_path();
            if let Some(message) = self.recv_slow(None).map_err(|e| *e)? {
                return Ok(*message);
            }
        }
    }

    /// The next message, waiting at most that long.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message, RecvError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(message) = self.recv_slow(deadline).map_err(|e| *e)? {
                return Ok(*message);
            }
        }
    }

    /// The next message the long way, or else a wait, after which the short way may do.
    #[inline(never)]
    fn recv_slow(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Box<Message>>, Box<RecvError>> {
        let message = self.try_recv_slow()?;
        if message.is_none() {
            self.wait_ready(deadline)?;
        }
        Ok(message)
    }

    /// Whether the next message is the next line's, and ours to take.
    #[inline(always)]
    fn looks_at_lines(&self) -> bool {
        self.pending.is_none() && !self.fork.is_child()
    }

    /// The next line's bytes, if it is an inline message. After `looks_at_lines`, as `take_direct`.
    #[inline(always)]
    fn take_inline(&mut self) -> Option<(u64, Inline)> {
        let (first, line) = self.consumer.peek(self.lines)?;
        let taken = descriptor::inline(first, line)?;
        self.consumer.advance();
        self.give_back_line();
        Some(taken)
    }

    /// The flags of received handles.
    #[inline(always)]
    fn flags(&self) -> u64 {
        if self.trusted { Tag::TRUSTED } else { 0 }
    }

    /// A wait so short that nothing but the line is looked at.
    #[inline(always)]
    fn spin_a_little(&self) {
        for _ in 0..SPIN_LOOK {
            if self.consumer.ready(self.lines) {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until a line is there, or something else has to be looked at.
    #[inline(never)]
    fn wait_ready(&mut self, deadline: Option<Instant>) -> Result<(), RecvError> {
        let started = deadline.map(|_| Instant::now());
        let mut polls = 0u32;
        loop {
            let spin = match self.wait {
                Wait::Spin => true,
                Wait::SpinThenSleep(spins) => polls < spins,
                Wait::Sleep => false,
            };
            if spin {
                for _ in 0..SPIN_LOOK {
                    if self.consumer.ready(self.lines) {
                        return Ok(());
                    }
                    std::hint::spin_loop();
                }
                polls = polls.wrapping_add(SPIN_LOOK);
                if polls.is_multiple_of(1 << 22) {
                    self.link.look_for_death();
                    self.link.domain.turn_quietly();
                }
            } else {
                let (consumer, lines, link) = (&self.consumer, self.lines, &self.link);
                sleep_on(link, Waker::Fences, deadline, consumer.head() > 0, || {
                    consumer.ready(lines) || link.their_closed() || link.gone() != Gone::No
                });
            }
            if self.may_have_news() || self.link.domain.has_news() {
                return Ok(());
            }
            if let (Some(deadline), Some(started)) = (deadline, started)
                && Instant::now() >= deadline
            {
                let waited_ms = millis(started.elapsed());
                return Err(RecvError::TimedOut { waited_ms });
            }
        }
    }

    /// A plain buffer of the pool that was assigned first, if the next line is one: no call, no lock, nothing but the
    /// checks. `None` leaves the line for the long way, which believes nothing of what was seen here.
    #[inline(always)]
    fn take_direct(&mut self) -> Option<Taken> {
        let (first, line) = self.consumer.peek(self.lines)?;
        // Needs nothing of the line, so it is under way before the line is here.
        tranship_sync::prefetch_read(self.guess.next());
        let (meta, reference) = descriptor::buffer(first, line)?;
        let at_hand = self
            .at_hand
            .as_ref()
            .filter(|at_hand| at_hand.pool == reference.id.pool())?;
        let slot = reference.id.slot();
        // SAFETY: `ins` keeps the assignment, which keeps the pool.
        let foreign = unsafe { at_hand.foreign.as_ref() };
        if slot >= at_hand.slots
            || !foreign.is_here(reference.offset, reference.length, reference.serial)
        {
            return None;
        }
        let ptr = foreign.at(reference.offset);
        // Its miss begins now; the locked instruction below would hold it up.
        tranship_sync::prefetch_read(ptr.as_ptr());
        self.guess.saw(ptr.as_ptr());
        foreign.retain(slot);
        let generation = reference.id.generation();
        // The generation after the reference, as in `reference`.
        if at_hand.forwarded
            && !(foreign.is_alive(slot, generation).is_ok()
                && foreign.owns(slot, reference.offset, reference.length))
        {
            foreign.release(slot);
            return None;
        }
        crash::point("recv.after_ref");
        // SAFETY: `ins` keeps the counters, of which there are as many as slots.
        let rcvd = unsafe { at_hand.rcvd.add(slot as usize).as_ref() };
        // Ordering, Crash: as in `count`.
        rcvd.store(
            rcvd.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Release,
        );
        crash::point("recv.after_rcvd");
        // The collector has read the counters since they were last written here: the next line of each is asked back
        // before a locked instruction has to wait for it.
        let ahead = slot.wrapping_add(COUNTERS_AHEAD) as usize;
        tranship_sync::prefetch_write(at_hand.rcvd.as_ptr().wrapping_add(ahead).cast());
        foreign.prefetch_count(ahead);
        #[allow(clippy::cast_possible_truncation)] // below the window's length, a usize
        let len = reference.length as usize;
        let pool = at_hand.foreign;
        self.consumer.advance();
        self.give_back_line();
        Some(Taken {
            meta,
            ptr,
            len,
            pool,
            tag: Tag::foreign(slot, generation, self.flags()),
        })
    }

    /// The line is the source's again.
    #[inline(always)]
    fn give_back_line(&self) {
        // Ordering: Release pairs with the source's Acquire: the line was read, `rcvd` was counted.
        // Crash: a death between `rcvd` and the head only takes the queue off the roster.
        self.link
            .own
            .head()
            .store(self.consumer.head(), Ordering::Release);
        crash::point("recv.after_head");
        let link = &*self.link;
        // A source that sleeps on a full ring knows that we do not fence here (Waker::Lazy).
        tranship_sync::notify(link.their_asleep(), link.own.wake(), |how| {
            link.wake_peer(how)
        });
    }

    /// The ring is empty: take the manager's news, and see whether anything can still come.
    #[inline(never)]
    fn nothing(&mut self) -> Result<Option<Message>, RecvError> {
        self.link.domain.catch_up();
        // Ordering: Acquire: after `closed` (or the news of a death) everything sent before is visible, so one
        // more look at the ring decides.
        if !self.link.their_closed() && self.link.gone() == Gone::No {
            return Ok(None);
        }
        self.ending()
    }

    #[cold]
    fn ending(&mut self) -> Result<Option<Message>, RecvError> {
        if self.link.gone() != Gone::Violated
            && let Some(words) = self.consumer.try_pop(self.lines)
        {
            return self.take(words);
        }
        self.say_drained()
    }

    fn say_drained(&mut self) -> Result<Option<Message>, RecvError> {
        if !self.drained {
            self.drained = true;
            crash::point("recv.before_drained");
            let _ = self.link.domain.tell(
                &Request::Drained {
                    channel: self.link.channel,
                },
                &[],
            );
        }
        Err(RecvError::PeerGone(self.link.channel))
    }

    /// Turns a line into a message, the long way: references first, then `rcvd`, then the head.
    #[inline(never)]
    fn take(&mut self, words: [u64; 8]) -> Result<Option<Message>, RecvError> {
        let meta = words[1];
        let outcome = match descriptor::parse(&words) {
            Ok(Descriptor::Inline(inline)) => Ok(Body::Inline(inline)),
            Ok(Descriptor::Buffer(reference)) => self.take_buffer(reference).map(Body::Buf),
            Ok(Descriptor::Aggregate(reference)) => {
                self.take_aggregate(reference).map(Body::Aggregate)
            }
            Err(violation) => Err(violation.into()),
        };
        match outcome {
            Ok(body) => {
                self.give_back_line();
                Ok(Some(Message { meta, body }))
            }
            Err(Untaken::Violation(violation)) => Err(self.violated(violation)),
            Err(Untaken::Missing(pool, missing)) => self.fetch_chunk(words, pool, missing),
            Err(Untaken::NotOpen(pool)) => self.await_open(words, pool),
        }
    }

    #[inline]
    fn take_buffer(&mut self, reference: Reference) -> Result<Cbuf, Untaken> {
        let at = self.find(reference.id.pool())?;
        let buf = self.reference(at, reference)?;
        crash::point("recv.after_ref");
        self.count(at, reference);
        Ok(buf)
    }

    /// The list is copied once and bounded; every piece is counted on its own.
    #[cold]
    fn take_aggregate(&mut self, reference: Reference) -> Result<Aggregate, Untaken> {
        let list_at = self.find(reference.id.pool())?;
        let list = self.reference(list_at, reference)?;
        let pieces = aggregate::parse_list(&list)?;
        let mut taken = Vec::with_capacity(pieces.len());
        let mut counts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let at = self.find(piece.id.pool())?;
            taken.push(self.reference(at, piece)?); // on failure all taken so far are released by drop
            counts.push((at, piece));
            crash::point("recv.between_pieces");
        }
        for (at, piece) in counts {
            self.count(at, piece);
        }
        self.count(list_at, reference);
        Ok(Aggregate::from_pieces(taken))
    }

    /// The assignment of a pool, as an index into `ins`.
    #[inline]
    fn find(&mut self, pool: PoolId) -> Result<usize, Untaken> {
        match self.ins.iter().position(|i| i.pool == pool) {
            Some(at) => Ok(at),
            None => self.refresh(pool),
        }
    }

    #[cold]
    fn refresh(&mut self, pool: PoolId) -> Result<usize, Untaken> {
        let version = self.link.assigned_version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            // Only appended: indices stay good while one message is taken.
            for assignment in lock(&self.link.assigned).iter() {
                let pool = assignment.pool;
                if !assignment.open.load(Ordering::Acquire)
                    || self.ins.iter().any(|i| i.pool == pool)
                {
                    continue;
                }
                let forwarded = match &assignment.side {
                    Assigned::Own(_) => true,
                    Assigned::Foreign(foreign) => foreign.shape.writer != self.link.peer,
                };
                self.ins.push(In {
                    pool,
                    forwarded,
                    assignment: assignment.clone(),
                });
            }
            self.at_hand = self.ins.first().and_then(AtHand::of);
        }
        match self.ins.iter().position(|i| i.pool == pool) {
            Some(at) => Ok(at),
            None if self.link.find(pool).is_some() => Err(Untaken::NotOpen(pool)),
            None => Err(Violation::NotAssigned { pool }.into()),
        }
    }

    /// Counts a reference and checks it. Ordering: `ref` first, then the generation, then (by the caller) `rcvd`.
    #[inline]
    fn reference(&self, at: usize, reference: Reference) -> Result<Cbuf, Untaken> {
        let Some(entry) = self.ins.get(at) else {
            return Err(Violation::NotAssigned {
                pool: reference.id.pool(),
            }
            .into());
        };
        let Reference {
            id,
            offset,
            length,
            serial,
        } = reference;
        let foreign = match &entry.assignment.side {
            Assigned::Foreign(foreign) => foreign,
            Assigned::Own(own) => return Ok(take_back(own, reference)?),
        };
        let slot = foreign.check_slot(id)?;
        if let Some(missing) = foreign.check(offset, length, serial)? {
            return Err(Untaken::Missing(id.pool(), missing));
        }
        foreign.retain(slot);
        #[allow(clippy::cast_possible_truncation)] // below the window's length, a usize
        let len = length as usize;
        // SAFETY: the reference was just counted; `check` put the range inside the window.
        let buf = unsafe {
            Cbuf::foreign(
                foreign.at(offset),
                len,
                NonNull::from(&**foreign),
                Tag::foreign(slot, id.generation(), self.flags()),
            )
        };
        if entry.forwarded {
            // The generation after the reference: the collector bumps it, fences, and looks at references
            // again, so one of the two sees the other. `buf` gives the reference back on the way out.
            if let Err(now) = foreign.is_alive(slot, id.generation()) {
                return Err(Violation::Dead { id, now }.into());
            }
            // It lives and stays so now, so its place is fixed: the reference must be what the bytes belong to.
            if !foreign.owns(slot, offset, length) {
                return Err(Violation::Elsewhere { id, offset, length }.into());
            }
        }
        Ok(buf)
    }

    #[inline]
    fn count(&self, at: usize, reference: Reference) {
        if let Some(entry) = self.ins.get(at) {
            let rcvd = &entry.assignment.counts.counts()[reference.id.slot() as usize];
            // Ordering: the only writer is this Receiver; Release after the reference was counted, paired with the
            // collector's Acquire, which reads all `rcvd` before all `ref`.
            // Crash: dead between `ref` and here: both leave the roster with us.
            rcvd.store(
                rcvd.load(Ordering::Relaxed).wrapping_add(1),
                Ordering::Release,
            );
        }
        crash::point("recv.after_rcvd");
    }

    #[cold]
    fn violated(&mut self, violation: Violation) -> RecvError {
        tracing::warn!(channel = %self.link.channel, peer = %self.link.peer, %violation, "the sender broke a rule");
        self.hang_up();
        RecvError::Violation(violation)
    }

    /// Nothing more is taken, whatever comes.
    fn hang_up(&mut self) {
        self.link.peer_gone(Gone::Violated);
        self.drained = true;
        let _ = self.link.domain.tell(
            &Request::CloseChannel {
                channel: self.link.channel,
            },
            &[],
        );
    }

    /// The source sent before the manager told us that it may: honest ones do only when our news is on its way.
    #[cold]
    fn await_open(&mut self, words: [u64; 8], pool: PoolId) -> Result<Option<Message>, RecvError> {
        let turned = self.link.domain.turn();
        if self
            .link
            .find(pool)
            .is_some_and(|a| a.open.load(Ordering::Acquire))
        {
            return self.take(words);
        }
        self.pending = Some(words);
        match turned {
            Ok(()) => Ok(None),
            Err(_) => Err(RecvError::ChunkPending { pool, index: 0 }),
        }
    }

    /// A chunk that we were not shown yet: take the manager's news, else ask it for what we missed.
    #[cold]
    fn fetch_chunk(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
        missing: Missing,
    ) -> Result<Option<Message>, RecvError> {
        let domain = self.link.domain;
        let away = |_| RecvError::ChunkPending {
            pool,
            index: missing.index,
        };
        for attempt in 0..2 {
            let asked = if attempt == 0 {
                domain.turn()
            } else {
                domain
                    .call_if_prompt(|req| Request::Resync { req, pool }, &[], None)
                    .map(|_| ())
            };
            match asked {
                Ok(()) => {}
                Err(DomainError::Refused(refusal)) if self.never_comes(pool, refusal.code) => {
                    return self.lost();
                }
                Err(error) => {
                    self.pending = Some(words);
                    return Err(away(error));
                }
            }
            let here = self.ins.iter().find(|i| i.pool == pool).is_some_and(|i| {
                match &i.assignment.side {
                    Assigned::Foreign(foreign) => foreign.has(missing),
                    Assigned::Own(_) => true,
                }
            });
            if here {
                return self.take(words);
            }
        }
        // The manager has shown us all that the pool's writer has shown it, which is all that an honest one uses.
        Err(self.violated(Violation::Chunk {
            index: missing.index,
            serial: missing.serial,
        }))
    }

    fn source_is_gone(&self) -> bool {
        self.link.look_for_death();
        matches!(self.link.gone(), Gone::Closed | Gone::Died)
    }

    /// The manager refuses to show us a pool. Its writer may be on its way back to a manager that was restarted, however
    /// long that takes; only if it is dead nobody has the chunk any more, and nobody lied.
    fn never_comes(&self, pool: PoolId, why: RefusalCode) -> bool {
        let foreign = |i: &In| match &i.assignment.side {
            Assigned::Foreign(foreign) => foreign.writer_is_dead(),
            Assigned::Own(_) => false,
        };
        match why {
            RefusalCode::NoSuchId | RefusalCode::NotYours
                if self.ins.iter().any(|i| i.pool == pool && foreign(i)) =>
            {
                true
            }
            // It knows the pool, and there is nobody left who would make us a reader of it.
            RefusalCode::NotYours => !self.link.domain.is_just_back() && self.source_is_gone(),
            _ => false,
        }
    }

    /// Memory of what comes next went with the domain that wrote it: the link ends, as it does after the last message.
    #[cold]
    fn lost(&mut self) -> Result<Option<Message>, RecvError> {
        if !self.source_is_gone() {
            self.hang_up();
            return Err(RecvError::PeerGone(self.link.channel));
        }
        for _ in 0..self.lines.count() {
            let _ = self.consumer.try_pop(self.lines);
        }
        self.say_drained()
    }

    /// Sends up to 48 bytes back to the sender over the control ring. Fails when that is full.
    pub fn send_control(&mut self, bytes: &[u8], meta: u64) -> Result<(), SendError<()>> {
        let fail = |failure| {
            Err(SendError {
                failure,
                unsent: (),
            })
        };
        if bytes.len() > descriptor::INLINE_BYTES {
            return fail(SendFailure::TooLongInline { bytes: bytes.len() });
        }
        let link = &*self.link;
        if link.domain.fork.is_child() {
            return fail(SendFailure::Forked);
        }
        let lines = self.control_lines;
        let pushed = self.control.try_push(
            lines,
            Publish::SeqCst,
            descriptor::inline_line(bytes, meta),
            || link.their_head(),
        );
        match pushed {
            Ok(tranship_sync::Push::Done) => {
                tranship_sync::notify(link.their_asleep(), link.own.wake(), |how| {
                    link.wake_peer(how)
                });
                Ok(())
            }
            Ok(tranship_sync::Push::Full) => fail(SendFailure::Full {
                lines: lines.count(),
                waited_ms: 0,
            }),
            Err(lie) => fail(SendFailure::Violation(Violation::Head {
                head: lie.head,
                min: lie.before,
                max: lie.tail,
            })),
        }
    }

    /// The sender's domain.
    pub fn peer(&self) -> DomainId {
        self.link.peer
    }
    /// The sender's process and user, as the kernel told the manager.
    pub fn peer_pid_uid(&self) -> (u32, u32) {
        (self.link.peer_pid, self.link.peer_uid)
    }
    /// The channel's id.
    pub fn channel(&self) -> ChannelId {
        self.link.channel
    }
    /// How this end waits from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
    /// Whether a message waits (or a pending one is held).
    pub fn is_ready(&self) -> bool {
        !self.link.domain.fork.is_child()
            && (self.pending.is_some() || self.consumer.ready(self.lines))
    }
    pub(super) fn may_have_news(&self) -> bool {
        // A forked child has an error to be told.
        self.link.domain.fork.is_child()
            || self.is_ready()
            || self.link.their_closed()
            || self.link.gone() != Gone::No
    }
}

/// A buffer of our own pool that another domain sends back to us.
#[cold]
fn take_back(own: &Arc<OwnPool>, reference: Reference) -> Result<Cbuf, Violation> {
    own.take_back(reference.id, reference.offset, reference.length)
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if self.link.domain.fork.is_child() {
            return;
        }
        // For a source that waits while no manager is there to tell it. Ordering: nothing of ours hangs on it.
        self.link.own.closed().store(1, Ordering::Release);
        // Crash: the manager takes the queue off the rosters at this request, or at our death.
        self.link.domain.leave_link(self.link.channel);
    }
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("link", &self.link)
            .field("taken", &self.consumer.head())
            .finish_non_exhaustive()
    }
}
