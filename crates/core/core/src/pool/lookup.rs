//! Own buffers by their ids, as other domains name them.

use super::own::OwnPool;
use super::raw::RawBuf;
use super::tag::Tag;
use crate::base::lock;
use crate::error::{Error, ErrorKind, StaleId, Violation};
use tranship_ledger::{StaleReference, is_named};
use tranship_proto::BufferId;
use tranship_sys::map::Access;

impl OwnPool {
    /// Takes an own buffer that another domain sends back: counts a reference, and checks that the range lies in the
    /// slot's memory. Works under the collector's lock: while it is held, an even generation that matches cannot become
    /// odd.
    pub(crate) fn take_back(
        &self,
        id: BufferId,
        offset: u64,
        length: u64,
    ) -> Result<RawBuf, Violation> {
        let (memory, slot) = (&self.memory, id.slot());
        // The buffer is read soon, or written when it is handed out again, and the other domain may have written it: so
        // the prefetch comes before the checks. Nothing is read at a liar's offset.
        tranship_sync::prefetch_write(memory.chunks.anywhere(offset));
        let slots = memory.slots.count();
        let private = memory.slots.get(slot);
        let private = private.ok_or(Violation::Slot { slot, slots })?;
        let _gc = lock(&self.collector.gc);
        let start = private.offset();
        let stale = |StaleReference { found: now, .. }| Violation::Dead { id, now };
        let check = || {
            let capacity = self.check_range(slot, start, (offset, length))?;
            if memory.registration.is_guarded() && memory.slots.is_away(slot, id.generation()) {
                // The rights were taken away at the move, before another domain had the id.
                memory.chunks.window.open(start, capacity, Access::Read);
            }
            Ok(())
        };
        let generation = memory.slots.generation_word(slot);
        private
            .handles
            .find(generation, id.generation(), stale, check)?;
        Ok(self.found(slot, offset, length))
    }

    /// Makes another handle of an own buffer that a line names, whatever its generation is.
    ///
    /// # Safety
    /// A handle of the slot's frozen buffer lives until this returns.
    pub(crate) unsafe fn hold_again(
        &self,
        id: BufferId,
        offset: u64,
        length: u64,
    ) -> Result<RawBuf, Violation> {
        let (slot, slots) = (id.slot(), self.slot_count());
        let private = self.memory.slots.get(slot);
        let private = private.ok_or(Violation::Slot { slot, slots })?;
        self.check_range(slot, private.offset(), (offset, length))?;
        debug_assert!(private.handles.count() > 0, "{id} is held by nobody");
        private.handles.hold();
        Ok(self.found(slot, offset, length))
    }

    /// Checks that bytes lie in the slot's memory, which begins at `start`. Returns the length of that memory.
    fn check_range(
        &self,
        slot: u32,
        start: u64,
        (offset, length): (u64, u64),
    ) -> Result<u64, Violation> {
        let capacity = self.memory.slots.capacity_of(slot);
        let end = offset
            .checked_sub(start)
            .and_then(|at| at.checked_add(length));
        match end.is_some_and(|end| end <= capacity) {
            true => Ok(capacity),
            false => Err(Violation::Range {
                offset,
                length,
                max_bytes: self.memory.registration.max_bytes,
            }),
        }
    }

    /// Makes a handle of a buffer whose reference the caller has taken.
    fn found(&self, slot: u32, offset: u64, length: u64) -> RawBuf {
        let (memory, class) = (&self.memory, self.memory.slots.private(slot).class());
        #[allow(clippy::cast_possible_truncation)] // 64-bit only
        let len = length as usize;
        RawBuf {
            ptr: memory.chunks.at(offset),
            len,
            place: memory.sizes.place_of_class(class),
            tag: Tag::own(slot, class, memory.flags()),
        }
    }

    /// At level `half`: takes the rights to the pages of a buffer that had come back and is on its way again. If a
    /// handle is left, because a liar moved the buffer back twice, the rights stay.
    pub(crate) fn leave_again(&self, id: BufferId) {
        let (memory, slot) = (&self.memory, id.slot());
        if !memory.registration.is_guarded() {
            return;
        }
        // Under this lock no thread gets a handle, and no slot gets another buffer.
        let _gc = lock(&self.collector.gc);
        let is_it = is_named(memory.slots.generation_word(slot), id.generation()).is_ok();
        if is_it
            && memory.slots.is_away(slot, id.generation())
            && memory.slots.handles(slot).count() == 0
        {
            memory.close_slot(slot, Access::None);
        }
    }

    /// Finds a whole own buffer by its id, if it was sent to be shared and is not collected yet. Works under the
    /// collector's lock, like `take_back`.
    pub(crate) fn lookup(&self, id: BufferId) -> Result<RawBuf, Error> {
        let (memory, slot) = (&self.memory, id.slot());
        let pool = memory.registration.id;
        let stale = StaleId { id, pool };
        let is_ours = id.pool() == pool && slot < memory.slots.count();
        if memory.registration.fork.is_child() || !is_ours {
            return Err(stale.into());
        }
        let _gc = lock(&self.collector.gc);
        let private = memory.slots.private(slot);
        let check = || {
            if memory.slots.is_away(slot, id.generation()) {
                let text = format!(
                    "buffer {id} was given away to be written: the domain that has it may share it"
                );
                return Err(Error::new(ErrorKind::BufferInvalid, text));
            }
            Ok(memory.slots.capacity_of(slot))
        };
        let (generation, stale) = (memory.slots.generation_word(slot), |_| stale.into());
        let length = private
            .handles
            .find(generation, id.generation(), stale, check)?;
        Ok(self.found(slot, private.offset(), length))
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Violation;
    use crate::{Buffer, BufferId, ChannelOptions, Domain, Pool, PoolOptions, Receiver, Sender};
    use std::cell::Cell;
    use std::rc::Rc;
    use tranship_sys::crash;

    const CHUNK: usize = 64 << 10;

    /// A pool of one buffer, and a link to another domain.
    fn pool_and_link() -> (Pool, Sender, Receiver) {
        let (pool, sender, receiver, _) = pool_and_link_to();
        (pool, sender, receiver)
    }

    /// And that domain.
    fn pool_and_link_to() -> (Pool, Sender, Receiver, Domain) {
        let domain = |name| Domain::builder().name(name).helper_thread(true);
        let a = domain("a").embedded().expect("a domain");
        let path = a.socket_path().expect("a socket");
        let b = domain("b").socket(path).connect().expect("a domain");
        let options = PoolOptions::new(CHUNK as u64).chunk_bytes(CHUNK as u64);
        let pool = a.create_pool(options).expect("a pool");
        let listener = a.listen_with::<Sender>("x", ChannelOptions::new());
        let listener = listener.expect("a listener");
        std::thread::scope(|s| {
            let receiver = s.spawn(|| b.open::<Receiver>("x").expect("a receiver"));
            let sender = listener.accept().expect("a sender");
            (pool, sender, receiver.join().expect("no panic"), b.clone())
        })
    }

    /// Channels come and go; nobody asks the pool for memory any more.
    #[test]
    fn senders_that_end_leave_no_defer_queues_behind() {
        let _dog = tranship_testkit::Watchdog::new();
        let (pool, _sender, _receiver) = pool_and_link();
        let own = pool.own_arc();
        let producers: Vec<_> = (0..50).map(|_| own.new_defer_queue()).collect();
        assert_eq!(own.collector.defer_queues(), 50);
        drop(producers);
        for _ in 0..50 {
            drop(own.new_defer_queue());
            assert!(
                own.collector.defer_queues() <= 1,
                "{} queues of nobody",
                own.collector.defer_queues()
            );
        }
    }

    /// Lengths are their writer's word.
    #[test]
    fn lengths_without_bounds_end_no_report() {
        let _dog = tranship_testkit::Watchdog::new();
        let (pool, mut sender, mut receiver, to) = pool_and_link_to();
        let bufs = [1, 2].map(|_| pool.alloc(CHUNK / 4).expect("a buffer").freeze());
        let own = pool.own_arc();
        let slots = bufs.each_ref().map(|buf| buf.handle().slot());
        for buf in bufs {
            sender.send(buf).expect("send");
        }
        let got = [1, 2].map(|_| receiver.recv().expect("recv"));
        let lengths = slots.map(|slot| &own.memory.slots.entry(slot).length);
        for length in lengths {
            length.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
        }
        let report = to.admin().leaks();
        let bytes: Vec<u64> = report.held.iter().map(|held| held.bytes).collect();
        assert_eq!(
            bytes, [CHUNK as u64; 2],
            "no more than there is of the pool"
        );
        let all = format!("2 buffers of others ({} bytes)", 2 * CHUNK);
        assert!(report.to_string().contains(&all), "{report}");
        for length in lengths {
            length.store(CHUNK as u64 / 4, std::sync::atomic::Ordering::Relaxed);
        }
        drop(got);
    }

    /// The returned buffer is a part of the sent one, whatever its sender says.
    #[test]
    fn what_comes_back_lies_inside_of_what_was_sent() {
        let _dog = tranship_testkit::Watchdog::new();
        let (pool, mut sender, mut receiver) = pool_and_link();
        // Something of the pool lies on each side of it.
        let _before = pool.alloc(CHUNK / 4).expect("a buffer");
        let buf = pool.alloc(CHUNK / 4).expect("a buffer").freeze();
        let (id, slot, len) = (buf.id(), buf.handle().slot(), buf.len() as u64);
        sender.send(buf).expect("send");
        let _held = receiver.recv().expect("recv");
        let own = pool.own_arc();
        let start = own.memory.slots.private(slot).offset();
        let part = |offset, length| Buffer::taken_back(&own, id, offset, length);
        for (offset, length) in [(start, len), (start + 1, len - 1), (start + len, 0)] {
            assert_eq!(part(offset, length).expect("a part").len() as u64, length);
        }
        let outside = [
            (start, len + 1),
            (start + 1, len),
            (start + len, 1),
            (start - 1, 1),
            (start + 1, u64::MAX),
            (u64::MAX, len),
        ];
        for (offset, length) in outside {
            let refused = part(offset, length);
            assert!(
                matches!(refused, Err(Violation::Range { .. })),
                "{length} bytes at {offset}, where {len} at {start} were sent: {refused:?}"
            );
        }
    }

    /// A peer that guesses the id of a buffer that is being sent for the first time may have it arrive here before the
    /// send is over.
    #[test]
    fn what_comes_back_in_the_middle_of_its_first_send_is_held() {
        let _dog = tranship_testkit::Watchdog::new();
        let (pool, mut sender, mut receiver) = pool_and_link();
        // The first send goes the long way, the others the short one.
        for point in [
            "send.after_generation",
            "send.after_generation",
            "send.after_sent",
            "send.after_publish",
        ] {
            let mut buf = pool.alloc(CHUNK).expect("a buffer");
            buf.fill(7);
            let buf = buf.freeze();
            let guessed = BufferId::new(pool.id(), buf.handle().slot(), buf.id().generation());
            let (found, own) = (Rc::new(Cell::new(None)), pool.own_arc());
            let (put, start) = (
                Rc::clone(&found),
                own.memory.slots.private(buf.handle().slot()).offset(),
            );
            crash::insert(point, move || {
                put.set(Buffer::taken_back(&own, guessed, start, CHUNK as u64).ok());
            });
            sender.send(buf).expect("send");
            drop(receiver.recv().expect("recv"));
            let found = found.take().expect("its generation is even");
            assert!(pool.try_alloc(1).is_err(), "{point}: it is held");
            assert!(found.to_vec() == [7; CHUNK], "{point}");
            drop(found);
            pool.try_alloc(1).expect("it is free");
        }
    }
}
