//! Sending: a check, a count, a line.

use super::{FIRST, Sender, words_of};
use crate::buffer::{Buffer, Handle, Home, Tag};
use crate::error::{Error, SendError};
use crate::link::descriptor::{self, Carries, Reference};
use crate::link::shared::{Gone, LinkShared};
use crate::options::Outcome;
use crate::pool::{OwnPool, Place};
use std::ptr::NonNull;
use tranship_ledger::{FirstSend, SendStep};
use tranship_proto::BufferId;
use tranship_ring::{Lines, Producer, Publish};
use tranship_sync::DeferProducer;
use tranship_sys::crash;

impl Sender {
    /// Sends a buffer by reference. `how`: as for [`publish`](Sender::publish), also below.
    #[inline(always)]
    pub(in crate::link) fn share(
        &mut self,
        buf: Buffer,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, SendError<Buffer>> {
        match self.send_fresh(buf, word, how) {
            None => Ok(Outcome::Sent),
            Some(buf) => self.send_any(buf, word, how).map_err(|e| *e),
        }
    }

    /// Sends in the commonest case, all in line: an own buffer with one handle that was never sent, its pool the last
    /// used, room known, no news. In any other case it does nothing, and gives the buffer back.
    #[inline(always)]
    fn send_fresh(&mut self, buf: Buffer, word: u64, how: Publish) -> Option<Buffer> {
        let handle = buf.handle();
        // A buffer of another domain, a traced or sealed buffer, one larger than a chunk, or a guarded one.
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
            self.publish_placed(home, FIRST, placed, Carries::Buffer, word, how);
        }
        None
    }

    /// Whether the pool was the last used one, and a buffer that passes `is_as_it_should` can be sent at once.
    #[inline(always)]
    pub(super) fn ready_at_once(
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
    pub(super) fn send_any(
        &mut self,
        buf: Buffer,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, Box<SendError<Buffer>>> {
        if self.store.is_some() {
            let ready = self.ready_inside(std::iter::once(buf.handle()));
            return Ok(self.put_inside(ready, buf, word, how)?);
        }
        let ready = self.ready_for(buf.handle());
        let ready = ready.and_then(|()| self.make_room(1));
        if let Err(error) = ready.and_then(|()| self.seal(buf.handle())) {
            return Ok(self.not_sent(error, buf)?);
        }
        self.publish(buf, Carries::Buffer, word, how);
        Ok(Outcome::Sent)
    }

    /// Sends bytes inside the line, which holds them: no buffer, no counting.
    #[inline(always)]
    pub(in crate::link) fn copy_in(
        &mut self,
        bytes: &[u8],
        word: u64,
        how: Publish,
    ) -> Result<Outcome, Error> {
        if let Err(error) = self.alive().and_then(|()| self.make_room(1)) {
            return self.not_sent(error, ()).map_err(|failed| failed.error);
        }
        let is_last = how == Publish::SeqCst;
        let how = match is_last {
            true => self.link.ring.how_to_publish(),
            false => how,
        };
        let mut line = descriptor::inline_line(bytes, word);
        line[0] |= self.skippable;
        let _ = self.producer.push(self.lines, how, line);
        if is_last {
            self.link.notify_of(how);
        }
        Ok(Outcome::Sent)
    }

    /// Assigns the buffer's pool if it is not assigned.
    #[inline(always)]
    pub(super) fn ready_for(&mut self, buf: Handle) -> Result<(), Error> {
        self.alive()?;
        let home = buf.home_key();
        if self.outs.first().is_some_and(|out| out.home == home) {
            return Ok(());
        }
        self.find_or_assign(buf)
    }

    /// Counts, publishes, wakes the receiver unless more messages follow (`Publish::Release`), and drops this end's
    /// reference. Called after `ready_for`.
    #[inline(always)]
    pub(super) fn publish(&mut self, buf: Buffer, carries: Carries, word: u64, how: Publish) {
        let handle = buf.handle();
        let slot = handle.slot();
        self.note(handle, false, word);
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

    /// Publishes a buffer that other domains know, or that the sender keeps. `release` drops this end's reference.
    #[inline(always)]
    pub(super) fn publish_again(
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
            let mut line = descriptor::reference_line(buf.reference(), carries, word);
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
            // `ready_for` has found the pool, whose assignment stays as long as the caller has the buffer.
            None => debug_assert!(false, "a pool that is not assigned"),
        }
    }

    /// Publishes a buffer that no other domain knows, like `publish`, and gives its only handle away.
    ///
    /// # Safety
    /// `home` is the buffer's pool, of which the buffer is private, and `at` its place among `outs`. There is room for
    /// a line. The caller forgets the handle, which this function drops.
    #[inline(always)]
    pub(super) unsafe fn publish_first(
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

    /// Publishes a buffer whose words were found, with the serial that the line names.
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
}

/// The steps of a first send outside of the ledger.
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
    /// Whether the receiver has to be told.
    is_last: bool,
    how: Publish,
    producer: &'a mut Producer,
    lines: Lines<'static>,
    link: &'a LinkShared,
    defer: Option<&'a mut DeferProducer>,
    /// Set to the number of slots that were ever put on the defer queue, this one included, if it has room.
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
pub(super) fn reached_of_piece(step: SendStep) {
    reached(step);
    if step == SendStep::Count {
        crash::point("send.between_pieces");
    }
}
