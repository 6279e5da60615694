//! Collection: which sent buffers are dead, oldest first, and where the dead go.

use super::gc::{AHEAD, Collector, Gc, LOOK, Standing};
use super::memory::Memory;
use super::order::{self, take_fullest, take_lines};
use super::run::FEW_SLOTS;
use crate::base::lock;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tranship_ledger::{Few, Slots};
use tranship_region::layout::LoadU64;
use tranship_sync::{DeferProducer, Pop};

/// Sent buffers that a caller without free buffers looks at together.
const SOME: usize = 16;
/// The most buffers that one allocation collects so: it must not take long by itself.
const MOST: usize = 32;
/// One collection in this number of collections is timed, because two readings of the clock take as long as several
/// verdicts.
const TIMED: u64 = 16;

/// Use of the buffers in the senders' defer queues. The senders would look at these buffers in time, so a caller takes
/// them only if nothing else is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deferred {
    Left,
    Taken,
}

impl Collector {
    /// Items for a class's zone: dead sent buffers first, then items of slabs, then a new slab.
    pub(super) fn import(&self, memory: &Memory, class: usize, out: &mut Vec<u32>, want: usize) {
        let left = self.collect_for(memory, class, out, want, Deferred::Left);
        // Topped up from the pool's free items: with few buffers in turn every allocation would otherwise be a
        // collection.
        if out.len() < want.min(SOME) && (!left || out.is_empty()) {
            memory.cut_slabs(class, out, want);
        }
        // Last: the senders look at these buffers themselves, a few after each few that they send.
        if out.is_empty() {
            self.collect_for(memory, class, out, want, Deferred::Taken);
        }
        // A zone hands out the last item first, and then the others from the front. So buffers are handed out in the
        // order of the sends: their counters lie side by side, and receivers guess where the next buffer is.
        if !out.is_empty() {
            out.rotate_left(1);
        }
    }

    /// Collects dead buffers of one class. Looks at everything before it gives up. Returns whether some are left.
    fn collect_for(
        &self,
        memory: &Memory,
        class: usize,
        out: &mut Vec<u32>,
        want: usize,
        deferred: Deferred,
    ) -> bool {
        for _ in 0..3 {
            let mut gc = lock(&self.gc);
            let found = gc.ready[class].is_empty()
                && self.collect_some(memory, &mut gc, class, out, want, deferred);
            let outcome = found || self.collect_until(memory, &mut gc, Some(class), deferred);
            // Slabs may have whole lines.
            let waits_for_lines = gc.unordered > 0 && deferred == Deferred::Left;
            let ready = &mut gc.ready[class];
            if out.is_empty() && ready.len() <= order::MOST {
                take_lines(ready, out, want);
                if out.is_empty() && !waits_for_lines {
                    take_fullest(ready, out, want);
                }
            } else {
                let keep = (ready.len() + out.len()).saturating_sub(want);
                // Oldest dead first: they are at the front.
                out.extend(ready.drain(..ready.len() - keep));
            }
            let left = !ready.is_empty();
            drop(gc);
            // Other domains have read a sent buffer: to take its first line back takes as long as everything else
            // together.
            for &slot in &*out {
                tranship_sync::prefetch_write(
                    memory
                        .chunks
                        .at(memory.slots.private(slot).offset())
                        .as_ptr(),
                );
            }
            if outcome || !out.is_empty() {
                return left;
            }
            // The reader set is older than the control page: take the manager's news without the lock, then again.
            memory.domain().turn_quietly();
        }
        false
    }

    /// Looks at the oldest buffers, [`SOME`] together or as many as are wanted, and at as many more if more are wanted: nearly always all are dead, and of the class.
    /// False: some may be `ready`, but here are none.
    ///
    /// Cost: two words a queue and one a reader for each buffer, which were asked for before; a fence for those looked at together. No clock, mostly.
    fn collect_some(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        class: usize,
        out: &mut Vec<u32>,
        want: usize,
        deferred: Deferred,
    ) -> bool {
        match want {
            SOME.. => self.collect_some_of::<SOME>(memory, gc, class, out, want, deferred),
            FEW_SLOTS.. => {
                self.collect_some_of::<FEW_SLOTS>(memory, gc, class, out, want, deferred)
            }
            _ => false,
        }
    }

    fn collect_some_of<const N: usize>(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        class: usize,
        out: &mut Vec<u32>,
        want: usize,
        deferred: Deferred,
    ) -> bool {
        self.look_ahead(gc, deferred, N);
        if gc.ahead.len() < N {
            return false;
        }
        // Relaxed, and no read-modify-write: as in `count_collected`.
        let before = self.counters.collections.load(Ordering::Relaxed);
        let counted = before.wrapping_add(1);
        self.counters.collections.store(counted, Ordering::Relaxed);
        let started = before.is_multiple_of(TIMED).then(Instant::now);
        while self.take_some::<N>(memory, gc, class, out) && out.len() + N <= want.min(MOST) {
            self.look_ahead(gc, deferred, N);
        }
        if let Some(started) = started {
            self.count_time(started, TIMED);
        }
        !out.is_empty()
    }

    /// Takes the oldest buffers that are ahead, if all are dead and of the class.
    #[inline(always)]
    fn take_some<const N: usize>(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        class: usize,
        out: &mut Vec<u32>,
    ) -> bool {
        let Some(some) = gc.take_ahead::<N>() else {
            return false;
        };
        if !self.are_dead(memory, gc, &some) {
            self.judge_one_by_one(memory, gc, &some, |gc, dead| {
                self.put_back(memory, gc, dead)
            });
            return false;
        }
        self.count_collected(N);
        let differs = |slot: &u32| usize::from(memory.slots.private(*slot).class()) != class;
        if some.iter().any(differs) {
            self.put_back(memory, gc, &some);
            return false;
        }
        self.bury(memory, class, &some);
        out.extend_from_slice(&some);
        true
    }

    /// Prefetches as many of the oldest buffers as possible. From the defer queues it takes at most `want`, because the
    /// senders look at the other ones themselves, a few after each few that they send.
    #[inline]
    fn look_ahead(&self, gc: &mut Gc, deferred: Deferred, want: usize) {
        let known = gc.ahead.len();
        if deferred == Deferred::Taken {
            for queue in &gc.deferred {
                let room = want.saturating_sub(gc.ahead.len());
                queue.take(&mut gc.ahead, room);
            }
        }
        while gc.ahead.len() < AHEAD
            && let Pop::Slot(slot) = self.sent.pop(&mut gc.taker)
        {
            gc.ahead.push(slot);
        }
        gc.reader_set.prefetch(&gc.ahead[known..]);
    }

    /// Whether all of these buffers are dead, in one pass: nearly always they are, and the writer is the source of
    /// every queue. False says nothing of any single buffer. Under the lock neither the control page nor the place in
    /// it changes.
    #[inline(always)]
    pub(super) fn are_dead<const N: usize>(
        &self,
        memory: &Memory,
        gc: &Gc,
        slots: impl Few<N>,
    ) -> bool {
        let own = memory.slots.words();
        let are_dead = |epoch: LoadU64<'_>| {
            let epoch_now = || epoch.load(Ordering::Acquire);
            gc.standing == Standing::Managed && gc.reader_set.are_dead(slots, &own, &own, epoch_now)
        };
        memory.registration.epoch_word().is_some_and(are_dead)
    }

    /// Judges each buffer by itself.
    #[cold]
    #[inline(never)]
    pub(super) fn judge_one_by_one(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        slots: impl Slots,
        bury: impl FnOnce(&mut Gc, &mut [u32]),
    ) {
        gc.candidates.clear();
        gc.candidates.extend(slots.each());
        self.verdict(memory, gc, bury);
    }

    /// Makes a defer queue for a sender of this pool's buffers.
    pub(crate) fn new_defer_queue(&self) -> DeferProducer {
        let mut gc = lock(&self.gc);
        // Without a collection no other code removes ended queues.
        gc.deferred.retain(|queue| !queue.is_over());
        DeferProducer::new(&mut gc.deferred)
    }

    #[cfg(test)]
    pub(super) fn defer_queues(&self) -> usize {
        lock(&self.gc).deferred.len()
    }

    /// Collects everything that is dead now. False if the reader set is stale.
    pub(super) fn collect_all(&self, memory: &Memory) -> bool {
        let mut gc = lock(&self.gc);
        self.collect_until(memory, &mut gc, None, Deferred::Taken)
    }

    /// Looks at candidates, oldest first, until some of `class` are dead (`None`: at all of them). False if the
    /// reader set is stale.
    fn collect_until(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        class: Option<usize>,
        deferred: Deferred,
    ) -> bool {
        let enough = |gc: &Gc| class.is_some_and(|class| !gc.ready[class].is_empty());
        if enough(gc) {
            return true;
        }
        let mut started = None;
        // Buffers that were alive before are older than those in the queue, but each is looked at once only.
        let mut old = gc.held.len();
        let mut fresh = true;
        let mut good = true;
        while !enough(gc) && (old > 0 || fresh) {
            gc.candidates.clear();
            let from_held = old.min(if fresh { LOOK / 4 } else { LOOK });
            old -= from_held;
            gc.candidates.extend(gc.held.drain(..from_held));
            gc.candidates.append(&mut gc.ahead);
            if deferred == Deferred::Taken {
                gc.take_deferred();
            }
            while gc.candidates.len() < LOOK {
                match self.sent.pop(&mut gc.taker) {
                    Pop::Slot(slot) => gc.candidates.push(slot),
                    Pop::Empty | Pop::Busy => {
                        fresh = false;
                        break;
                    }
                }
            }
            if gc.candidates.is_empty() {
                break;
            }
            started.get_or_insert_with(Instant::now);
            if !self.judge(memory, gc) {
                good = false;
                break;
            }
        }
        if let Some(started) = started {
            self.count_time(started, 1);
            self.counters.collections.fetch_add(1, Ordering::Relaxed);
        }
        good
    }

    /// Judges `gc.candidates`: the dead go to `ready`, the living to `held`.
    fn judge(&self, memory: &Memory, gc: &mut Gc) -> bool {
        gc.reader_set.prefetch(&gc.candidates);
        self.verdict(memory, gc, |gc, dead| self.put_back(memory, gc, dead))
    }

    /// Gives the verdict, and leaves the dead to the caller. False if the reader set is stale: then none is dead.
    #[inline(always)]
    pub(super) fn verdict(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        bury: impl FnOnce(&mut Gc, &mut [u32]),
    ) -> bool {
        let mut batch = std::mem::take(&mut gc.batch);
        batch.clear();
        let candidates = std::mem::take(&mut gc.candidates);
        let (standing, known) = (gc.standing, gc.reader_set.epoch());
        let own = memory.slots.words();
        let verdict = gc.reader_set.collect(
            &candidates,
            &own,
            &own,
            || match standing {
                Standing::Managed => memory.registration.epoch(),
                Standing::Unlisted if memory.registration.is_listed() => u64::MAX,
                Standing::Alone | Standing::Unlisted => known,
            },
            &mut batch,
        );
        let alive: &[u32] = match verdict {
            Ok(()) => &batch.alive,
            Err(_) => &candidates,
        };
        for &slot in alive {
            // A handle that came back queues it again when it goes.
            if memory.slots.handles(slot).stays_queued() {
                gc.held.push_back(slot);
            }
        }
        self.count_collected(batch.dead.len());
        bury(gc, &mut batch.dead);
        gc.batch = batch;
        gc.candidates = candidates;
        verdict.is_ok()
    }

    #[inline(always)]
    pub(super) fn count_collected(&self, dead: usize) {
        // Relaxed, and no read-modify-write: written under the collector's lock alone.
        let collected = &self.counters.collected;
        let all = collected.load(Ordering::Relaxed) + dead as u64;
        collected.store(all, Ordering::Relaxed);
    }

    /// Counts the time of several collections, each as long as the one since `started`.
    #[cold]
    fn count_time(&self, started: Instant, times: u64) {
        let spent = u64::try_from(started.elapsed().as_nanos()).unwrap_or(0);
        let spent = spent.saturating_mul(times);
        self.counters.collect_ns.fetch_add(spent, Ordering::Relaxed);
    }

    /// Counts dead buffers of one class, which are the backend's again.
    #[inline(always)]
    fn bury(&self, memory: &Memory, class: usize, dead: &[u32]) {
        let count = dead.len() as u64;
        memory.zones[class].took_back(count);
        self.count_bytes(count * memory.slots.capacity_of(dead[0]));
    }

    /// Gives dead buffers back to the backend.
    #[cold]
    #[inline(never)]
    pub(super) fn put_back(&self, memory: &Memory, gc: &mut Gc, dead: &[u32]) {
        // Neighbours are mostly of one class: the zone is told once per run of them.
        for same in dead
            .chunk_by(|a, b| memory.slots.private(*a).class() == memory.slots.private(*b).class())
        {
            let class = usize::from(memory.slots.private(same[0]).class());
            match gc.ready.get_mut(class) {
                Some(ready) => {
                    ready.extend_from_slice(same);
                    self.bury(memory, class, same);
                }
                None => same.iter().for_each(|slot| self.bury_alone(memory, *slot)),
            }
        }
    }

    /// Buries a dead buffer that is larger than a chunk.
    fn bury_alone(&self, memory: &Memory, slot: u32) {
        self.count_bytes(memory.slots.capacity_of(slot));
        memory.free_huge(slot);
    }

    #[inline(always)]
    fn count_bytes(&self, bytes: u64) {
        // Relaxed: as in `count_collected`.
        let collected = &self.counters.collected_bytes;
        collected.store(collected.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// Gives everything that is dead or cached back to the slabs, and empty slabs to the runs.
    pub(super) fn reclaim(&self, memory: &Memory) -> bool {
        memory.drain_caches();
        let good = self.collect_idle(memory);
        memory.reap();
        good
    }

    /// Collects everything that is dead now and gives it to the kegs, so that it counts as free.
    /// False if the reader set is older than the control page: the manager's news come first.
    pub(super) fn collect_idle(&self, memory: &Memory) -> bool {
        let good = self.collect_all(memory);
        let ready: Vec<u32> = lock(&self.gc)
            .ready
            .iter_mut()
            .flat_map(|ready| ready.drain(..))
            .collect();
        memory.to_kegs(&ready);
        good
    }

    /// Collects all that is dead, as `collect_idle` does, and records how much that was.
    pub(super) fn collect_garbage(&self, memory: &Memory) -> bool {
        let (collected, garbage) = (&self.counters.collected_bytes, &self.counters.garbage_bytes);
        let before = collected.load(Ordering::Relaxed);
        let good = self.collect_idle(memory);
        let after = collected.load(Ordering::Relaxed);
        // Relaxed: statistics.
        garbage.store(after.saturating_sub(before), Ordering::Relaxed);
        good
    }
}
