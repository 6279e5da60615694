//! The sending end of a channel.

mod alloc;
mod assign;
mod close;
mod collect;
mod facts;
mod forms;
mod inside;
mod many;
mod moves;
mod pace;
mod replies;
mod room;
mod seal;

use super::descriptor::{self, Carries, Reference};
use super::message::{Body, Message};
use super::shared::{Assignment, Gone, LinkShared};
use super::store::Store;
use crate::buffer::{Buffer, Handle, Home, Tag};
use crate::domain::Asked;
use crate::error::{Error, ErrorKind, SendError};
use crate::options::{ChannelOptions, Outcome, Patience, PoolOptions, Wait};
use crate::pool::{FEW, OwnPool, Place, Pool};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;
use tranship_ledger::{FirstSend, SendStep, Sent};
use tranship_proto::{BufferId, PoolId};
use tranship_region::layout::CountsRw;
use tranship_ring::{Lines, Producer, Publish};
use tranship_sync::DeferProducer;
use tranship_sys::{ForkGuard, crash};

/// Sends messages to one receiver. Everything sent before it is dropped can still be received: if the manager was killed meanwhile,
/// dropping it waits until another one, or the receiver, has all of it (at most 5 s; [`wait_taken`](Sender::wait_taken) as long as you like).
///
/// Blocking: only as [`WhenFull`] says, also for the first send from a pool, to which the receiver has to agree:
/// [`assign`](Sender::assign) and [`try_assign`](Sender::try_assign) ask it ahead of time. Crash-safe: whatever was published
/// before a `kill -9` arrives.
///
/// ```
/// # use tranship_core::{Domain, PoolOptions, Receiver, Sender};
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:video")?;
/// # let mut sender = domain.open::<Sender>("local:video")?;
/// # let mut receiver = listener.accept()?;
/// let frame = pool.copy(b"a frame")?.freeze();
/// sender.send(frame.clone())?; // shared: both ends have it
/// sender.send((frame, 60))?; // with a number of the program's own
/// sender.send(b"a few bytes")?; // inside the line itself
/// sender.send(pool.copy(b"yours")?)?; // given away
/// # for what in [&b"a frame"[..], b"a frame", b"a few bytes", b"yours"] {
/// #     assert_eq!(receiver.recv()?.to_vec(), what);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sender {
    pub(super) link: Arc<LinkShared>,
    lines: Lines<'static>,
    producer: Producer,
    fork: ForkGuard,
    /// The assignments, most recently used first.
    outs: Vec<Out>,
    /// Pools whose assignment was asked for and that the receiver has not answered in time.
    unanswered: Vec<(PoolId, Asked)>,
    /// Since when the receiver has no manager, as far as is known: it dies, or comes back.
    away_since: Option<Instant>,
    wait: Wait,
    patience: Patience,
    /// What a line says of whether its message may be skipped, however it is sent: as long as the channel is to drop the oldest.
    skippable: u64,
    pub(in crate::link) dropped: u64,
    /// What goes over to a receiver of this process.
    store: Option<Arc<Store>>,
    /// The longest message that such a one takes.
    most_bytes: u64,
    /// Whether its end waits until a carrier has brought everything to where it goes.
    lingers: bool,
    /// How many messages the receiver had taken when that was looked at last.
    taken: u32,
    /// Looks for dead buffers at each send whose number among those sent first has none of these bits.
    look_mask: u32,
    pace: pace::Pace,
    /// The channel's own pool, made when a buffer is first allocated from it.
    pool: Option<Pool>,
    /// The shape of that pool, if it is not the usual one.
    pool_options: Option<Box<PoolOptions>>,
    /// What a future that was dropped had still to send.
    pub(super) unsent: Option<Box<Message>>,
}

/// The place of the pool that was used last.
const FIRST: usize = 0;

/// A pool that can be sent from.
struct Out {
    home: *const (),
    /// The first of `counts`.
    sent: NonNull<AtomicU32>,
    counts: Arc<CountsRw>,
    assignment: Arc<Assignment>,
    /// What was sent first of one's own pool.
    defer: Option<DeferProducer>,
}

// SAFETY: `home` is only compared, never followed; `sent` points to atomics that `counts` beside it keeps.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

impl Sender {
    pub(crate) fn link(&self) -> &LinkShared {
        &self.link
    }

    pub(super) fn new(link: Arc<LinkShared>, options: &ChannelOptions) -> Result<Sender, Error> {
        // The lines are in our own half, which `link` keeps mapped as long as this Sender lives.
        let lines = link.own_lines();
        Ok(Sender {
            lines,
            producer: Producer::new(),
            fork: link.domain.fork,
            outs: Vec::new(),
            unanswered: Vec::new(),
            away_since: None,
            wait: options.wait,
            patience: Patience::Channel(options.when_full),
            skippable: descriptor::skippable(options.when_full),
            dropped: 0,
            store: None,
            most_bytes: u64::MAX,
            lingers: false,
            taken: 0,
            look_mask: FEW - 1,
            pace: pace::Pace::default(),
            pool: None,
            pool_options: options.pool.clone(),
            unsent: None,
            link,
        })
    }

    /// Sends a buffer by reference.
    #[inline(always)]
    pub(in crate::link) fn share(
        &mut self,
        buf: Buffer,
        word: u64,
    ) -> Result<Outcome, SendError<Buffer>> {
        match self.send_fresh(buf, word) {
            None => Ok(Outcome::Sent),
            Some(buf) => self.send_any(buf, word).map_err(|e| *e),
        }
    }

    /// The commonest case, all in line: an own buffer with one handle that was never sent, its pool the last used, room
    /// known, no news. Gives the buffer back, with nothing done, in any other.
    #[inline(always)]
    fn send_fresh(&mut self, buf: Buffer, word: u64) -> Option<Buffer> {
        let handle = buf.handle();
        // One of another domain's, one of which is recorded what is done with it, one that is sealed first, larger than a chunk, or guarded.
        if handle
            .tag
            .has(Tag::FOREIGN | Tag::TRACED | Tag::SEALED | Tag::LONG)
        {
            return Some(buf);
        }
        let Home::Own(home) = handle.home() else {
            return Some(buf);
        };
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { home.as_ref() };
        let place = pool.place_of(handle.slot());
        if !self.ready_at_once(home, || place.is_private()) {
            return Some(buf);
        }
        std::mem::forget(buf);
        let serial = pool.serial_of_one(place, pool.offset_of(handle.ptr), handle.len);
        let placed = (handle, place, serial);
        // SAFETY: assigned, fresh and with room, as was just found; its handle is given away.
        unsafe {
            self.publish_placed(home, FIRST, placed, Carries::Buffer, word, Publish::SeqCst);
        }
        None
    }

    /// Whether the pool was the last used, and a buffer that is as it should be can be sent without looking any further.
    #[inline(always)]
    fn ready_at_once(
        &self,
        home: NonNull<OwnPool>,
        is_as_it_should: impl FnOnce() -> bool,
    ) -> bool {
        let link = &*self.link;
        self.outs
            .get(FIRST)
            .is_some_and(|out| std::ptr::eq(out.home, home.as_ptr().cast()))
            && is_as_it_should()
            && self.producer.known_room(self.lines) > 0
            && !self.fork.is_child()
            && !link.domain.has_news()
            && link.gone() == Gone::No
    }

    #[inline(never)]
    fn send_any(&mut self, buf: Buffer, word: u64) -> Result<Outcome, Box<SendError<Buffer>>> {
        if self.store.is_some() {
            return match self.ready_inside(std::iter::once(buf.handle())) {
                Ok(()) => {
                    self.put_inside(Body::Buffer(buf), word);
                    Ok(Outcome::Sent)
                }
                Err(error) => Ok(self.not_sent(error, buf)?),
            };
        }
        let ready = self.ready_for(buf.handle());
        let ready = ready.and_then(|()| self.make_room(1));
        if let Err(error) = ready.and_then(|()| self.seal(buf.handle())) {
            return Ok(self.not_sent(error, buf)?);
        }
        self.publish(buf, Carries::Buffer, word, Publish::SeqCst);
        Ok(Outcome::Sent)
    }

    /// Sends bytes inside the line, which holds them: no buffer, no counting.
    #[inline(always)]
    pub(in crate::link) fn copy_in(&mut self, bytes: &[u8], word: u64) -> Result<Outcome, Error> {
        if let Err(error) = self.alive().and_then(|()| self.make_room(1)) {
            return self.not_sent(error, ()).map_err(|failed| failed.error);
        }
        let how = self.link.ring.how_to_publish();
        let mut line = descriptor::inline_line(bytes, word);
        line[0] |= self.skippable;
        let _ = self.producer.push(self.lines, how, line);
        self.link.notify_of(how);
        Ok(Outcome::Sent)
    }

    fn not_sent<T>(&mut self, error: Error, unsent: T) -> Result<Outcome, SendError<T>> {
        match self.drops(&error) {
            true => Ok(Outcome::Dropped),
            false => Err(SendError::new(error, unsent)),
        }
    }

    /// Whether a message that was not sent for this reason is dropped and counted, as the channel says: the receiver is behind, or no manager is there
    /// to bring the two together.
    pub(super) fn drops(&mut self, error: &Error) -> bool {
        let behind = matches!(error.kind(), ErrorKind::Full | ErrorKind::ManagerAway);
        let drops = behind && self.patience.drops();
        self.dropped += u64::from(drops);
        drops
    }

    #[cold]
    pub(super) fn peer_gone(&self) -> Error {
        if let Some(why) = self.link.why() {
            return why;
        }
        let channel = self.link.channel;
        let text = format!("the receiver of channel {channel} is gone");
        Error::new(ErrorKind::PeerGone, text)
    }

    #[inline(always)]
    fn alive(&self) -> Result<(), Error> {
        if self.link.domain.fork.is_child() {
            return Err(ErrorKind::Forked.into());
        }
        self.link.domain.catch_up();
        match self.link.gone() {
            Gone::No => Ok(()),
            _ => Err(self.peer_gone()),
        }
    }

    /// Whether the buffer's pool is assigned; assigns it if not.
    #[inline(always)]
    fn ready_for(&mut self, buf: Handle) -> Result<(), Error> {
        self.alive()?;
        let home = buf.home_key();
        if self.outs.first().is_some_and(|out| out.home == home) {
            return Ok(());
        }
        self.find_or_assign(buf)
    }

    /// Where an assigned pool is among `outs`.
    fn place_of(&self, home: *const ()) -> Option<usize> {
        self.outs.iter().position(|out| out.home == home)
    }

    /// The words that say that a buffer is sent, if its pool is assigned.
    fn words_of(&self, buf: Handle) -> Option<Sent<'_>> {
        words_of(&self.outs, buf)
    }

    /// Counts, publishes, wakes the receiver unless more is to follow (`Publish::Release`), and lets our own reference go. After `ready_for`.
    #[inline(always)]
    fn publish(&mut self, buf: Buffer, carries: Carries, word: u64, how: Publish) {
        let handle = buf.handle();
        let slot = handle.slot();
        self.note(handle, false);
        if let Home::Own(home) = handle.home()
            // SAFETY: pools outlive their outstanding slots.
            && unsafe { home.as_ref() }.is_private(slot)
            && let Some(at) = self.place_of(handle.home_key())
        {
            std::mem::forget(buf);
            // SAFETY: assigned, fresh and with room; its handle is given away.
            return unsafe { self.publish_first(home, at, handle, carries, word, how) };
        }
        self.publish_again(handle, carries, word, how, || drop(buf));
    }

    /// The same of a buffer that others know, or keep. `release` lets our own reference go.
    #[inline(always)]
    fn publish_again(
        &mut self,
        buf: Handle,
        carries: Carries,
        word: u64,
        how: Publish,
        release: impl FnOnce(),
    ) {
        let is_last = how == Publish::SeqCst;
        let how = match is_last {
            true => self.link.ring.how_to_publish(),
            false => how,
        };
        let skippable = self.skippable;
        let publish = || {
            let (offset, serial) = buf.place();
            let reference = Reference {
                id: buf.wire_id(),
                offset,
                length: buf.len as u64,
                serial,
            };
            let mut line = descriptor::reference_line(reference, carries, word);
            line[0] |= skippable;
            let _ = self.producer.push(self.lines, how, line);
        };
        let release = || {
            if is_last {
                self.link.notify_of(how);
            }
            release();
        };
        match words_of(&self.outs, buf) {
            Some(words) => tranship_ledger::send_again(words, publish, release, reached),
            // `ready_for` has found it, and none of them is ever taken away.
            None => debug_assert!(false, "a pool that is not assigned"),
        }
    }

    /// Publishes a buffer that nobody else knows, as `publish`, and gives its only handle away.
    ///
    /// # Safety
    /// `home` is the buffer's pool, of which the buffer is private, and `at` its place among `outs`. There is room for a line. The caller
    /// forgets the handle, which is this function's to let go.
    #[inline(always)]
    unsafe fn publish_first(
        &mut self,
        home: NonNull<OwnPool>,
        at: usize,
        buf: Handle,
        carries: Carries,
        word: u64,
        how: Publish,
    ) {
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { home.as_ref() };
        let (slot, class) = (buf.slot(), buf.tag.class());
        let serial = pool.serial_in(slot, class, pool.offset_of(buf.ptr), buf.len as u64);
        let placed = (buf, pool.place_of(slot), serial);
        // SAFETY: as the caller says.
        unsafe { self.publish_placed(home, at, placed, carries, word, how) };
    }

    /// The same of one of which it is known where its words are, and what a line says of its chunks.
    ///
    /// # Safety
    /// As for `publish_first`.
    // Crash: counted but not published: as in `count`.
    #[inline(always)]
    unsafe fn publish_placed(
        &mut self,
        home: NonNull<OwnPool>,
        at: usize,
        (buf, place, serial): (Handle, Place<'_>, u32),
        carries: Carries,
        word: u64,
        how: Publish,
    ) {
        let (slot, length) = (buf.slot(), buf.len as u64);
        let skippable = self.skippable;
        // SAFETY: as the caller says.
        let out = unsafe { self.outs.get_unchecked_mut(at) };
        debug_assert!((slot as usize) < out.counts.counts().len());
        // SAFETY: pools outlive their outstanding slots, and this one is outstanding until it is queued at the end; the counters, of which
        // there are as many as slots, live as long as the assignment.
        let (pool, sent) = unsafe { (home.as_ref(), out.sent.add(slot as usize).as_ref()) };
        #[allow(clippy::cast_possible_truncation)] // compared with others nearby
        let message = self.producer.tail() as u32;
        let is_last = how == Publish::SeqCst;
        let mut number = message;
        let first = First {
            pool,
            slot,
            offset: pool.offset_of(buf.ptr),
            length,
            serial,
            carries,
            skippable,
            word,
            message,
            is_last,
            how: match is_last {
                true => self.link.ring.how_to_publish(),
                false => how,
            },
            producer: &mut self.producer,
            lines: self.lines,
            link: &self.link,
            defer: out.defer.as_mut(),
            number: &mut number,
        };
        tranship_ledger::send_first(place.handles(), place.generation(), sent, first);
        self.producer.prefetch_ahead(self.lines);
        if number & self.look_mask == 0 {
            self.look_at_sent(at, number, length);
        }
    }

    #[inline(always)]
    fn wake(&self) {
        self.link.notify();
    }

    fn fence_and_wake(&self) {
        self.link.fence_then_notify();
    }
}

/// The words that say that a buffer is sent, if its pool is among these.
#[inline(always)]
fn words_of(outs: &[Out], buf: Handle) -> Option<Sent<'_>> {
    let key = buf.home_key();
    let out = outs.iter().find(|out| out.home == key)?;
    let generation = match buf.home() {
        // SAFETY: pools outlive their outstanding slots, and the assignment keeps this one.
        Home::Own(pool) => Some(unsafe { pool.as_ref() }.generation_word(buf.slot())),
        Home::Foreign(_) => None,
    };
    // The only writer of this counter is the Sender.
    let sent = &out.counts.counts()[buf.slot() as usize];
    Some(Sent { generation, sent })
}

#[cold]
fn others_buffer() -> Error {
    let text =
        "the buffer belongs to another domain of this process, and only that one may send it";
    Error::new(ErrorKind::BufferNotOwned, text)
}

/// A first send, as far as it is not the ledger's.
struct First<'a> {
    pool: &'a OwnPool,
    slot: u32,
    offset: u64,
    length: u64,
    serial: u32,
    carries: Carries,
    /// As in [`Sender`].
    skippable: u64,
    word: u64,
    message: u32,
    /// Whether the receiver is to be told.
    is_last: bool,
    how: Publish,
    producer: &'a mut Producer,
    lines: Lines<'static>,
    link: &'a LinkShared,
    defer: Option<&'a mut DeferProducer>,
    /// Becomes how many are, and were, in the defer queue with this one, if there is room for it.
    number: &'a mut u32,
}

impl FirstSend for First<'_> {
    #[inline(always)]
    fn publish(&mut self, generation: u32) {
        let reference = Reference {
            id: BufferId::new(self.pool.id(), self.slot, generation),
            offset: self.offset,
            length: self.length,
            serial: self.serial,
        };
        let mut line = descriptor::reference_line(reference, self.carries, self.word);
        line[0] |= self.skippable;
        self.producer.push_known(self.lines, self.how, line);
    }

    #[inline(always)]
    fn queue(&mut self) {
        if self.is_last {
            self.link.notify_of(self.how);
        }
        let (message, slot) = (self.message, self.slot);
        let defer = self.defer.as_mut();
        match defer.and_then(|defer| defer.push(message, slot)) {
            Some(number) => *self.number = number,
            None => self.pool.queue_sent(slot),
        }
    }

    #[inline(always)]
    fn reached(&mut self, step: SendStep) {
        reached(step);
    }
}

#[inline(always)]
fn reached(step: SendStep) {
    match step {
        SendStep::LetGo => crash::point("send.after_let_go"),
        SendStep::Open => crash::point("send.after_generation"),
        SendStep::Count => crash::point("send.after_sent"),
        SendStep::Publish => crash::point("send.after_publish"),
        SendStep::Queue => {}
    }
}

#[inline(always)]
fn reached_of_piece(step: SendStep) {
    reached(step);
    if step == SendStep::Count {
        crash::point("send.between_pieces");
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
