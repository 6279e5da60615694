//! The sending end of a link.

use super::descriptor::{self, INLINE_BYTES, Reference};
use super::message::{Inline, Payload};
use super::shared::{Assigned, Assignment, Gone, LinkShared};
use super::sleep::sleep_on;
use crate::aggregate::Aggregate;
use crate::cbuf::{Cbuf, Home};
use crate::domain::{Asked, millis};
use crate::error::{DomainError, SendError, SendFailure, Violation};
use crate::options::{LinkOptions, Wait, WhenFull};
use crate::pool::Pool;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, DomainId, PoolId, RefusalCode, Request};
use tranship_region::layout::{CountsRw, Way};
use tranship_sync::{Consumer, Lines, Producer, Publish, Waker};
use tranship_sys::{ForkGuard, crash};

/// Sends messages to one receiver. Everything sent before it is dropped can still be received.
///
/// Blocking: only as [`WhenFull`] says; but the first send from a pool waits for the receiver's consent to it, at least
/// a second, whatever that says ([`assign`](Sender::assign) does so ahead of time). Crash-safe: whatever was published before a `kill -9` arrives.
pub struct Sender {
    link: Arc<LinkShared>,
    lines: Lines<'static>,
    control_lines: Lines<'static>,
    producer: Producer,
    control: Consumer,
    fork: ForkGuard,
    /// The assignments, most recently used first.
    outs: Vec<Out>,
    /// Pools whose assignment was asked for and that the receiver has not answered in time.
    unanswered: Vec<(PoolId, Asked)>,
    wait: Wait,
    when_full: WhenFull,
    dropped: u64,
}

/// The least time that a first send from a pool gives the receiver to consent.
const CONSENT: Duration = Duration::from_secs(1);

/// A pool that can be sent from.
struct Out {
    home: *const (),
    /// The first of `counts`.
    sent: NonNull<AtomicU32>,
    counts: Arc<CountsRw>,
    _assignment: Arc<Assignment>,
}

// SAFETY: `home` is only compared, never followed; `sent` points to atomics that `counts` beside it keeps.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

impl Sender {
    pub(super) fn new(link: Arc<LinkShared>, options: &LinkOptions) -> Result<Sender, DomainError> {
        // The lines are in our own half, which `link` keeps mapped as long as this Sender lives.
        let lines = link.own_lines()?;
        let control_lines = link.their_lines()?;
        Ok(Sender {
            lines,
            control_lines,
            producer: Producer::new(),
            control: Consumer::new(),
            fork: link.domain.fork,
            outs: Vec::new(),
            unanswered: Vec::new(),
            wait: options.wait,
            when_full: options.when_full,
            dropped: 0,
            link,
        })
    }

    /// Sends a buffer or an aggregate. On failure what was to be sent comes back.
    #[inline(always)]
    pub fn send(&mut self, payload: impl Into<Payload>) -> Result<(), SendError<Payload>> {
        self.send_with(payload, 0)
    }

    /// The same with a word of the sender's that arrives with it.
    #[inline(always)]
    pub fn send_with(
        &mut self,
        payload: impl Into<Payload>,
        meta: u64,
    ) -> Result<(), SendError<Payload>> {
        match payload.into() {
            Payload::Buf(buf) => self.send_buf(buf, meta).map_err(|e| SendError {
                failure: e.failure,
                unsent: Payload::Buf(e.unsent),
            }),
            Payload::Aggregate(aggregate) => {
                self.send_aggregate(aggregate, meta).map_err(|e| SendError {
                    failure: e.failure,
                    unsent: Payload::Aggregate(e.unsent),
                })
            }
        }
    }

    /// Sends a buffer by reference.
    ///
    /// Cost: one line written, one locked instruction to publish it, one to queue the slot for collection.
    #[inline(always)]
    pub fn send_buf(&mut self, buf: Cbuf, meta: u64) -> Result<(), SendError<Cbuf>> {
        match self.send_fresh(buf, meta) {
            None => Ok(()),
            Some(buf) => self.send_any(buf, meta).map_err(|e| *e),
        }
    }

    /// The commonest case, all in line: an own buffer with one handle that was never sent, its pool the last used, room
    /// known, no news. Gives the buffer back, with nothing done, in any other.
    #[inline(always)]
    fn send_fresh(&mut self, buf: Cbuf, meta: u64) -> Option<Cbuf> {
        let Home::Own(home) = buf.home() else {
            return Some(buf);
        };
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { home.as_ref() };
        let slot = buf.slot();
        let link = &*self.link;
        let ready = self
            .outs
            .first()
            .filter(|out| std::ptr::eq(out.home, home.as_ptr().cast()));
        let Some(out) = ready else {
            return Some(buf);
        };
        let plain = pool.is_private(slot)
            && self.producer.known_room(self.lines) > 0
            && !self.fork.is_child()
            && !link.domain.has_news()
            && link.gone() == Gone::No;
        if !plain {
            return Some(buf);
        }
        pool.make_public(slot); // Crash: as in `count`
        crash::point("send.after_generation");
        let offset = pool.offset_of(buf.ptr());
        let reference = Reference {
            id: pool.id_of(slot),
            offset,
            length: buf.len() as u64,
            serial: pool.serial_of(offset, buf.len() as u64),
        };
        debug_assert!((slot as usize) < out.counts.counts().len());
        // SAFETY: the counters were made for as many slots as the pool has.
        let sent = unsafe { out.sent.add(slot as usize).as_ref() };
        // Ordering, Crash: as in `count`.
        sent.store(
            sent.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Release,
        );
        crash::point("send.after_sent");
        std::mem::forget(buf);
        // Plain stores, before the line: once it is published the buffer may come back to us.
        pool.let_go_fresh(slot);
        let line = descriptor::reference_line(reference, false, meta);
        let _ = self.producer.push(self.lines, Publish::SeqCst, line);
        crash::point("send.after_publish");
        tranship_sync::notify(link.their_asleep(), link.own.wake(), |how| {
            link.wake_peer(how)
        });
        pool.queue_sent(slot);
        None
    }

    #[inline(never)]
    fn send_any(&mut self, buf: Cbuf, meta: u64) -> Result<(), Box<SendError<Cbuf>>> {
        if let Err(failure) = self.ready_for(&buf).and_then(|()| self.make_room(1)) {
            return Ok(self.not_sent(failure, buf)?);
        }
        self.publish(buf, false, meta, Publish::SeqCst);
        self.wake();
        Ok(())
    }

    /// Sends several buffers with one wake-up. Those that could not be sent come back, in order.
    pub fn send_batch(
        &mut self,
        bufs: impl IntoIterator<Item = Cbuf>,
    ) -> Result<(), SendError<Vec<Cbuf>>> {
        let mut bufs = bufs.into_iter();
        let mut published = false;
        while let Some(buf) = bufs.next() {
            let room = self.ready_for(&buf).and_then(|()| {
                if published && self.producer.known_room(self.lines) == 0 {
                    self.fence_and_wake(); // before waiting, the receiver must know what there is
                }
                self.make_room(1)
            });
            if let Err(failure) = room {
                if published {
                    self.fence_and_wake();
                }
                return match self.not_sent(failure, buf) {
                    Ok(()) => continue,
                    Err(e) => Err(SendError {
                        failure: e.failure,
                        unsent: std::iter::once(e.unsent).chain(bufs).collect(),
                    }),
                };
            }
            self.publish(buf, false, 0, Publish::Release);
            published = true;
        }
        if published {
            self.fence_and_wake();
        }
        Ok(())
    }

    /// Sends up to 48 bytes inside the descriptor: no buffer, no counting.
    #[inline(always)]
    pub fn send_inline(&mut self, bytes: &[u8], meta: u64) -> Result<(), SendError<()>> {
        if bytes.len() > INLINE_BYTES {
            return Err(SendError {
                failure: SendFailure::TooLongInline { bytes: bytes.len() },
                unsent: (),
            });
        }
        if let Err(failure) = self.alive().and_then(|()| self.make_room(1)) {
            return self.not_sent(failure, ());
        }
        let _ = self.producer.push(
            self.lines,
            Publish::SeqCst,
            descriptor::inline_line(bytes, meta),
        );
        self.wake();
        Ok(())
    }

    /// Sends all pieces of an aggregate as one message. The list goes into a buffer of the first own
    /// pool among the pieces' pools; see [`Aggregate::list_pool`](crate::Aggregate::set_list_pool).
    pub fn send_aggregate(
        &mut self,
        aggregate: Aggregate,
        meta: u64,
    ) -> Result<(), SendError<Aggregate>> {
        let list = match aggregate.make_list(self.when_full) {
            Ok(list) => list,
            Err(error) => {
                return Err(SendError {
                    failure: SendFailure::List(error),
                    unsent: aggregate,
                });
            }
        };
        let ready = aggregate
            .pieces()
            .iter()
            .chain([&list])
            .try_for_each(|piece| self.ready_for(piece))
            .and_then(|()| self.make_room(1));
        if let Err(failure) = ready {
            return self.not_sent(failure, aggregate);
        }
        // Crash: pieces counted as sent in a message that is never published keep `sent` ahead of `rcvd`
        // until the queue leaves the roster with our death.
        for piece in aggregate.pieces() {
            self.count(piece);
            crash::point("send.between_pieces");
        }
        self.publish(list, true, meta, Publish::SeqCst);
        self.wake();
        Ok(())
    }

    /// Assigns a pool to this channel now, instead of at the first send from it. Blocks until the receiver agreed.
    pub fn assign(&mut self, pool: &Pool) -> Result<(), DomainError> {
        self.link.domain.check_fork()?;
        let own = pool.own_arc();
        let home = Arc::as_ptr(&own).cast::<()>();
        if self.outs.iter().any(|out| out.home == home) {
            return Ok(());
        }
        self.assign_side(home, Assigned::Own(own), None)
    }

    /// The receiver's domain.
    pub fn peer(&self) -> DomainId {
        self.link.peer
    }
    /// The receiver's process and user, as the kernel told the manager.
    pub fn peer_pid_uid(&self) -> (u32, u32) {
        (self.link.peer_pid, self.link.peer_uid)
    }
    /// The channel's id.
    pub fn channel(&self) -> ChannelId {
        self.link.channel
    }
    /// Messages dropped by [`WhenFull::DropNew`].
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
    /// How `send` deals with a full ring from now on.
    pub fn set_when_full(&mut self, when_full: WhenFull) {
        self.when_full = when_full;
    }
    /// How this end waits from now on.
    pub fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
    /// Messages that the receiver has not taken yet.
    pub fn queued(&self) -> u64 {
        if self.link.domain.fork.is_child() {
            return 0;
        }
        self.producer.tail().saturating_sub(self.link.their_head())
    }
    /// Whether the receiver is gone.
    pub fn is_peer_gone(&mut self) -> bool {
        if self.link.domain.fork.is_child() {
            return true;
        }
        self.link.domain.catch_up();
        self.link.look_for_death();
        self.link.gone() != Gone::No
    }

    /// A control message from the receiver, if one is there.
    pub fn try_recv_control(&mut self) -> Result<Option<(u64, Inline)>, Violation> {
        if self.link.domain.fork.is_child() {
            return Ok(None);
        }
        let Some(words) = self.control.try_pop(self.control_lines) else {
            return Ok(None);
        };
        // Ordering: Release pairs with the sink's Acquire of our head: it may reuse the line.
        self.link
            .own
            .head()
            .store(self.control.head(), Ordering::Release);
        match descriptor::parse(&words)? {
            descriptor::Descriptor::Inline(inline) => Ok(Some((words[1], inline))),
            _ => Err(Violation::Operation { op: 2 }),
        }
    }

    fn not_sent<T>(&mut self, failure: SendFailure, unsent: T) -> Result<(), SendError<T>> {
        if matches!(failure, SendFailure::Full { .. }) && self.when_full == WhenFull::DropNew {
            self.dropped += 1;
            return Ok(());
        }
        Err(SendError { failure, unsent })
    }

    #[inline(always)]
    fn alive(&self) -> Result<(), SendFailure> {
        if self.link.domain.fork.is_child() {
            return Err(SendFailure::Forked);
        }
        self.link.domain.catch_up();
        match self.link.gone() {
            Gone::No => Ok(()),
            _ => Err(SendFailure::PeerGone(self.link.channel)),
        }
    }

    /// Whether the buffer's pool is assigned; assigns it if not.
    #[inline(always)]
    fn ready_for(&mut self, buf: &Cbuf) -> Result<(), SendFailure> {
        self.alive()?;
        let home = home_key(buf);
        if self.outs.first().is_some_and(|out| out.home == home) {
            return Ok(());
        }
        self.find_or_assign(buf, home)
    }

    #[cold]
    fn find_or_assign(&mut self, buf: &Cbuf, home: *const ()) -> Result<(), SendFailure> {
        if let Some(at) = self.outs.iter().position(|out| out.home == home) {
            self.outs.swap(0, at);
            return Ok(());
        }
        let side = match buf.home() {
            // SAFETY: pools outlive their outstanding slots, and `buf` is one.
            Home::Own(pool) => unsafe { pool.as_ref() }.arc().map(Assigned::Own),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.arc().map(Assigned::Foreign),
        };
        let Some(side) = side.filter(|side| side.domain_is(self.link.domain)) else {
            return Err(SendFailure::OtherDomain);
        };
        let deadline = self.consent_by(side.shape().0);
        self.assign_side(home, side, deadline)
            .map_err(SendFailure::Assign)
    }

    /// Assigns a pool, waiting as long as the receiver takes, or until the deadline. What was not answered by then goes
    /// on: the next call waits for that answer.
    // Crash: on record before the manager knows, so that `QueueJoined` finds our counters; what is not confirmed is not
    // shown to the next manager.
    fn assign_side(
        &mut self,
        home: *const (),
        side: Assigned,
        deadline: Option<Instant>,
    ) -> Result<(), DomainError> {
        let (pool, slots) = side.shape();
        let mut asked = self.take_unanswered(pool);
        let assignment = match self.link.find(pool).filter(|_| asked.is_some()) {
            Some(assignment) => assignment,
            None => {
                let (fd, counts) = CountsRw::create(Way::Sent, slots)?;
                self.link.add(Assignment {
                    pool,
                    side,
                    counts: Arc::new(counts),
                    counts_fd: fd,
                    open: std::sync::atomic::AtomicBool::new(false),
                });
                self.link.find(pool).ok_or(DomainError::ManagerAway)?
            }
        };
        crash::point("assign.before_request");
        let started = Instant::now();
        let domain = self.link.domain;
        // The same counters again, should the manager go away meanwhile: they are zero.
        let answer = domain.patiently(deadline, || {
            self.ask_to_assign(&assignment, &mut asked, deadline)
        });
        match answer {
            Ok(true) => {}
            Ok(false) => {
                self.unanswered.extend(asked.map(|asked| (pool, asked)));
                return Err(DomainError::TimedOut {
                    waited_ms: millis(started.elapsed()),
                });
            }
            Err(error) => {
                self.link.remove(pool);
                return Err(error);
            }
        }
        crash::point("assign.after_answer");
        self.outs.insert(
            0,
            Out {
                home,
                sent: NonNull::from(assignment.counts.counts()).cast(),
                counts: assignment.counts.clone(),
                _assignment: assignment,
            },
        );
        Ok(())
    }

    /// Asks the manager, if that was not done, and waits; false if no answer has come by the deadline.
    fn ask_to_assign(
        &self,
        assignment: &Assignment,
        asked: &mut Option<Asked>,
        deadline: Option<Instant>,
    ) -> Result<bool, DomainError> {
        let (domain, channel, pool) = (self.link.domain, self.link.channel, assignment.pool);
        let now = match *asked {
            Some(now) => now,
            None => domain.ask(
                |req| Request::Assign { req, channel, pool },
                &[assignment.counts_fd.as_fd()],
            )?,
        };
        *asked = Some(now);
        let answer = domain.answer(now, deadline);
        if matches!(answer, Ok(None)) {
            return Ok(false);
        }
        *asked = None;
        match answer {
            // A manager that came back may not know the channel, or its sink, yet.
            Err(DomainError::Refused(refusal))
                if domain.is_just_back()
                    && self.link.gone() == Gone::No
                    && matches!(refusal.code, RefusalCode::NoSuchId | RefusalCode::PeerGone) =>
            {
                self.link.look_for_death();
                return Err(DomainError::ManagerAway);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.link.open_pool(pool);
        // Confirmed by a manager that is gone: the next one was perhaps not told.
        if domain.era() != now.era {
            self.link.shut_pool(pool);
            return Err(DomainError::ManagerAway);
        }
        Ok(true)
    }

    fn take_unanswered(&mut self, pool: PoolId) -> Option<Asked> {
        let at = self.unanswered.iter().position(|(of, _)| *of == pool)?;
        Some(self.unanswered.swap_remove(at).1)
    }

    /// How long a send waits for the receiver's consent to a new pool, which comes when its process runs. Who does not
    /// want to wait waits once; while that answer is still to come, later sends only look.
    fn consent_by(&self, pool: PoolId) -> Option<Instant> {
        let again = self.unanswered.iter().any(|(of, _)| *of == pool);
        let patience = match self.when_full {
            WhenFull::Block => return None,
            WhenFull::BlockFor(time) if again => time,
            WhenFull::BlockFor(time) => time.max(CONSENT),
            WhenFull::Error | WhenFull::DropNew if again => Duration::ZERO,
            WhenFull::Error | WhenFull::DropNew => CONSENT,
        };
        Instant::now().checked_add(patience)
    }

    /// Room for that many lines, waiting as chosen.
    #[inline(always)]
    fn make_room(&mut self, want: u32) -> Result<(), SendFailure> {
        if self.producer.known_room(self.lines) >= want {
            return Ok(());
        }
        self.wait_for_room(want)
    }

    fn look_for_room(&mut self, want: u32) -> Result<bool, SendFailure> {
        // Ordering: Acquire pairs with the receiver's Release of its head: it has read the lines.
        let link = &self.link;
        match self.producer.room(self.lines, want, || link.their_head()) {
            Ok(room) => Ok(room >= want),
            Err(lie) => {
                let violation = Violation::Head {
                    head: lie.head,
                    min: lie.before,
                    max: lie.tail,
                };
                self.link.peer_gone(Gone::Violated);
                let _ = self.link.domain.tell(
                    &Request::CloseChannel {
                        channel: self.link.channel,
                    },
                    &[],
                );
                Err(SendFailure::Violation(violation))
            }
        }
    }

    #[cold]
    fn wait_for_room(&mut self, want: u32) -> Result<(), SendFailure> {
        if self.look_for_room(want)? {
            return Ok(());
        }
        let started = Instant::now();
        let deadline = match self.when_full {
            WhenFull::Block => None,
            WhenFull::BlockFor(time) => started.checked_add(time),
            WhenFull::Error | WhenFull::DropNew => Some(started),
        };
        let mut polls = 0u32;
        loop {
            if self.look_for_room(want)? {
                return Ok(());
            }
            self.alive()?;
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(SendFailure::Full {
                    lines: self.lines.count(),
                    waited_ms: millis(started.elapsed()),
                });
            }
            polls = polls.wrapping_add(1);
            match self.wait {
                Wait::Spin => {
                    std::hint::spin_loop();
                    if polls.is_multiple_of(1 << 22) {
                        self.link.look_for_death();
                        self.link.domain.turn_quietly();
                    }
                }
                Wait::SpinThenSleep(spins) if polls < spins => std::hint::spin_loop(),
                _ => {
                    let head = self.producer.known_head();
                    let link = &self.link;
                    // The receiver gives lines back by plain stores: it is a lazy waker.
                    sleep_on(link, Waker::Lazy, deadline, false, || {
                        link.their_head() != head
                    });
                }
            }
        }
    }

    /// Counts a buffer as sent and makes its generation even: from here on others may name it.
    #[inline(always)]
    fn count(&self, buf: &Cbuf) -> Reference {
        let key = home_key(buf);
        let slot = buf.slot();
        if let Home::Own(pool) = buf.home() {
            // SAFETY: pools outlive their outstanding slots.
            // Crash: a generation made even in a buffer that is never published only means that it
            // takes the long way through the collector; our death frees it anyway.
            unsafe { pool.as_ref() }.make_public(slot);
            crash::point("send.after_generation");
        }
        let (offset, serial) = buf.place();
        if let Some(out) = self.outs.iter().find(|out| out.home == key) {
            let sent = &out.counts.counts()[slot as usize];
            // Ordering: the only writer of this counter is this Sender; Release pairs with the collector's
            // Acquire. Published by the line's own Release or SeqCst store that follows.
            // Crash: counted but not published: `sent` stays ahead until the queue leaves the roster with our
            // death, when the sink has reported that it took the last message.
            sent.store(
                sent.load(Ordering::Relaxed).wrapping_add(1),
                Ordering::Release,
            );
        }
        crash::point("send.after_sent");
        Reference {
            id: buf.wire_id(),
            offset,
            length: buf.len() as u64,
            serial,
        }
    }

    /// Counts, publishes, and only then lets our own reference go.
    #[inline(always)]
    fn publish(&mut self, buf: Cbuf, aggregate: bool, meta: u64, how: Publish) {
        let fresh = match buf.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) if unsafe { pool.as_ref() }.is_private(buf.slot()) => Some(pool),
            _ => None,
        };
        let reference = self.count(&buf);
        let line = descriptor::reference_line(reference, aggregate, meta);
        match fresh {
            Some(pool) => {
                let slot = buf.slot();
                std::mem::forget(buf);
                // SAFETY: pools outlive their outstanding slots; this one stays outstanding until collected.
                let pool = unsafe { pool.as_ref() };
                // The only handle, and nobody else knew the buffer until now: plain stores, before the
                // line, for once it is published the buffer may come back to us.
                pool.let_go_fresh(slot);
                let _ = self.producer.push(self.lines, how, line);
                crash::point("send.after_publish");
                pool.queue_sent(slot);
            }
            None => {
                let _ = self.producer.push(self.lines, how, line);
                crash::point("send.after_publish");
                drop(buf);
            }
        }
    }

    #[inline(always)]
    fn wake(&self) {
        let link = &*self.link;
        tranship_sync::notify(link.their_asleep(), link.own.wake(), |how| {
            link.wake_peer(how)
        });
    }

    fn fence_and_wake(&self) {
        let link = &*self.link;
        tranship_sync::fence_then_notify(link.their_asleep(), link.own.wake(), |how| {
            link.wake_peer(how)
        });
    }
}

#[inline(always)]
fn home_key(buf: &Cbuf) -> *const () {
    match buf.home() {
        Home::Own(pool) => pool.as_ptr().cast_const().cast(),
        Home::Foreign(pool) => pool.as_ptr().cast_const().cast(),
    }
}

impl Drop for Sender {
    /// Closes in order: what was sent can still be received.
    fn drop(&mut self) {
        if self.link.domain.fork.is_child() {
            return;
        }
        // Ordering: Release: a sink that sees `closed` sees all lines before it (its Acquire).
        // Crash: after `closed` and before the request the manager learns of it by our death or the sink's report.
        self.link.own.closed().store(1, Ordering::Release);
        crash::point("close.after_flag");
        self.fence_and_wake();
        for (_, asked) in self.unanswered.drain(..) {
            self.link.domain.forget(asked);
        }
        self.link.domain.leave_link(self.link.channel);
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("link", &self.link)
            .field("sent", &self.producer.tail())
            .finish_non_exhaustive()
    }
}
