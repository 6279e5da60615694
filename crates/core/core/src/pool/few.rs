//! Collection by a sender after it has sent: the few oldest buffers of its own defer queue in one pass, or, of large
//! ones that it sends at leisure, the oldest as soon as it is dead.

use super::gc::{Collector, Gc};
use super::memory::Memory;
use super::order;
use super::run::{FEW, FEW_SLOTS, Run};
use super::slots::Slot;
use std::sync::{MutexGuard, TryLockError};
use tranship_ledger::{Few, Slots};
use tranship_sync::{DeferProducer, DeferQueue};

/// The most buffers that become free after one send where they are looked at one by one: more than are sent.
const WARM: usize = 2;

impl Collector {
    /// Looks at the oldest [`FEW`] buffers of a sender's defer queue. The dead go to the thread's cache. Nothing is waited for.
    ///
    /// Cost: one lock that is mostly free; no clock, no other locked instruction but the fence of the verdict.
    #[inline]
    pub(super) fn collect_few(&self, memory: &Memory, defer: &DeferProducer) {
        let Some(gc) = &mut self.at_once() else {
            return;
        };
        let Some(few) = defer.queue().few::<FEW_SLOTS>() else {
            return;
        };
        match Run::of(&few) {
            Some(run) => {
                defer.queue().take_oldest(FEW);
                gc.unordered = (gc.unordered + order::ORDERED).min(order::UNORDERED);
                self.look_at_few(memory, gc, run, few);
            }
            None => self.look_at_any_few(memory, gc, defer.queue(), few),
        }
        // Asked for long before they are looked at.
        gc.reader_set.prefetch(&[defer.queue().ahead(FEW)]);
    }

    /// Looks at the oldest [`FEW`] buffers of a sender's defer queue, of which there are more than go round: in a pool with few buffers, or while they come back
    /// in no order. The dead are kept for callers without buffers.
    #[cold]
    pub(super) fn collect_more(&self, memory: &Memory, defer: &DeferProducer, are_few: bool) {
        if let Some(gc) = &mut self.at_once()
            && (are_few || gc.unordered < order::UNORDERED)
            && let Some(few) = defer.queue().few::<FEW_SLOTS>()
        {
            defer.queue().take_oldest(FEW);
            self.judge_one_by_one(memory, gc, &few, |gc, dead| self.put_back(memory, gc, dead));
        }
    }

    /// Looks at the oldest buffers of a sender's defer queue one by one, as long as they are dead. They go to the
    /// thread's cache, the last one in first one out. A buffer that is held stays where it is. Nothing is waited for.
    ///
    /// Cost: the lock, a look at each queue's counters, of which the receiver has just written one; a fence for each that is dead.
    pub(super) fn collect_warm(&self, memory: &Memory, defer: &DeferProducer) {
        let Some(gc) = &mut self.at_once() else {
            return;
        };
        gc.unordered = order::UNORDERED;
        for _ in 0..WARM {
            match defer.queue().oldest() {
                Some(slot) if self.are_dead(memory, gc, &[slot]) => {
                    defer.queue().take_oldest(1);
                    self.count_collected(1);
                    self.hand_back(memory, gc, &mut [slot]);
                }
                _ => return,
            }
        }
    }

    /// Returns the collector's state, if no thread has it.
    #[inline(always)]
    fn at_once(&self) -> Option<MutexGuard<'_, Gc>> {
        match self.gc.try_lock() {
            Ok(gc) => Some(gc),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Looks at slots that do not follow each other. They are put in order with others, or at least handed out again by
    /// their numbers.
    #[cold]
    #[inline(never)]
    fn look_at_any_few(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        queue: &DeferQueue,
        few: [u32; FEW_SLOTS],
    ) {
        if gc.unordered > 0 {
            gc.unordered -= 1;
            // If the slots are the end of one line and the beginning of another, the next few are lines again.
            let (few, _) = few.split_at(order::end_of_line(&few));
            #[allow(clippy::cast_possible_truncation)] // a few
            queue.take_oldest(few.len() as u32);
            return self
                .judge_one_by_one(memory, gc, few, |gc, dead| self.put_back(memory, gc, dead));
        }
        queue.take_oldest(FEW);
        let mut again = few;
        again.sort_unstable();
        self.look_at_few(memory, gc, &few, again);
    }

    /// Looks at these slots. `again`: the slots in the order in which they are handed out again.
    #[inline(always)]
    fn look_at_few(
        &self,
        memory: &Memory,
        gc: &mut Gc,
        few: impl Few<FEW_SLOTS>,
        mut again: [u32; FEW_SLOTS],
    ) {
        if self.are_dead(memory, gc, few) {
            self.count_collected(FEW_SLOTS);
            let class = self.ask_for(memory, few);
            self.hand_back_of(memory, gc, class, &mut again);
        } else {
            self.judge_one_by_one(memory, gc, few, |gc, dead| self.hand_back(memory, gc, dead));
        }
    }

    /// Gives dead buffers to the thread's cache, as far as there is room.
    fn hand_back(&self, memory: &Memory, gc: &mut Gc, dead: &mut [u32]) {
        let class = self.ask_for(memory, &*dead);
        self.hand_back_of(memory, gc, class, dead);
    }

    /// Prefetches the first lines of these buffers for writing: other domains have read them, and to take a line back
    /// takes as long as everything else together. Returns the buffers' class, if they have one in common.
    #[inline(always)]
    fn ask_for(&self, memory: &Memory, dead: impl Slots) -> Option<u8> {
        let (mut first, mut differ) = (None, 0);
        memory.slots.each_private(dead, |private: &Slot| {
            let class = private.class();
            differ |= class ^ *first.get_or_insert(class);
            tranship_sync::prefetch_write(memory.chunks.at(private.offset()).as_ptr());
        });
        first.filter(|_| differ == 0)
    }

    /// Hands the dead back to the cache of the class that they have in common, if there is one.
    #[inline(always)]
    fn hand_back_of(&self, memory: &Memory, gc: &mut Gc, class: Option<u8>, dead: &mut [u32]) {
        // The last one is handed out first: this gives the order of the sends.
        dead.reverse();
        let zone = class.and_then(|class| memory.zones.get(usize::from(class)));
        if !zone.is_some_and(|zone| zone.free_cached_all(dead)) {
            self.put_back(memory, gc, dead);
        }
    }
}
