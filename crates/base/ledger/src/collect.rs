//! The verdict: which buffers may be reused.

use std::iter::repeat;
use tranship_sync::atomic::{Ordering, fence};

use crate::generation::{is_published, next_free};
use crate::order::{COLLECTION, CollectStep, PASS_ORDER, Phase};
use crate::reader_set::{Queue, Reader, ReaderSet};
use crate::scratch::{Scratch, Seen};
use crate::words::{Generations, NoWords, Words};

/// The reader set is older than the control page. Take what the manager has queued, then collect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The reader set is of epoch {reader_set}, the control page shows {control_page}: take the manager's events first"
)]
pub struct StaleReaderSet {
    /// The reader set's epoch.
    pub reader_set: u64,
    /// The control page's.
    pub control_page: u64,
}

/// Verdicts on the candidates of one batch. Reuse it: [`ReaderSet::collect`] appends.
#[derive(Debug, Default)]
pub struct Batch {
    /// May be handed out again: the generation is odd.
    pub dead: Vec<u32>,
    /// Somebody holds it or it is on its way.
    pub alive: Vec<u32>,
}

impl Batch {
    /// Forgets the slots, keeps the memory.
    pub fn clear(&mut self) {
        self.dead.clear();
        self.alive.clear();
    }
}

/// Counters on a cache line.
const LINE: u32 = 16;

impl<R: Words, C: Words> ReaderSet<R, C> {
    /// Decides over `candidates`: appends each to `batch.dead` (its generation is now odd) or to `batch.alive`.
    ///
    /// * `candidates`: slots that were sent; each at most once. A slot that was never sent is not collected: its holder
    ///   just reuses it. (If its generation is odd, it is judged, but not bumped.)
    /// * `own`: the writer's private references. They may fall to 0, and rise by a receipt of the writer's own buffer,
    ///   while this runs: they are read in the same phase as the readers' references.
    /// * `generations`: the writer's own table.
    /// * `epoch_now`: the control page's epoch of this pool. It must be an acquire load.
    ///
    /// Costs per candidate that is dead: two words per queue and one per reader, all that twice, and the generation;
    /// one fence a batch. Call it with dozens of candidates: some costs are those of a call.
    ///
    /// # Errors
    /// [`StaleReaderSet`]; then `batch` and all generations are as before.
    // Crash: a writer that dies between the bump and the end leaves odd generations on buffers of a pool that
    // nobody will ever fill again. The manager's orphan verdict reads no generations, so nothing is to repair;
    // a forwarded receipt that meets one gives up, which loses a message of a dead writer's pool, no memory.
    pub fn collect<O, G, E>(
        &mut self,
        candidates: &[u32],
        own: &O,
        generations: &G,
        mut epoch_now: E,
        batch: &mut Batch,
    ) -> Result<(), StaleReaderSet>
    where
        O: Words + ?Sized,
        G: Generations + ?Sized,
        E: FnMut() -> u64,
    {
        use CollectStep::{Bump, CheckEpoch, Fence, LookAgain, Pass};
        const {
            let steps = COLLECTION;
            assert!(matches!(
                steps,
                [
                    CheckEpoch, Pass, CheckEpoch, Bump, Fence, LookAgain, CheckEpoch
                ]
            ));
        };
        let known = self.epoch;
        let mut check_epoch = || match epoch_now() {
            control_page if control_page == known => Ok(()),
            control_page => Err(StaleReaderSet {
                reader_set: known,
                control_page,
            }),
        };
        let counted = Counted {
            queues: &self.queues,
            readers: &self.readers,
        };
        let Scratch {
            seen,
            pending,
            were,
        } = &mut self.scratch;
        let (dead, alive) = (batch.dead.len(), batch.alive.len());
        check_epoch()?;
        pending.clear();
        if counted.are_dead(candidates, own, seen) {
            pending.extend_from_slice(candidates);
        } else {
            counted.pass(candidates, own, seen);
            for (&slot, &alive) in candidates.iter().zip(&seen.alive) {
                match alive {
                    true => batch.alive.push(slot),
                    false => pending.push(slot),
                }
            }
        }
        if let Err(stale) = check_epoch() {
            batch.alive.truncate(alive);
            return Err(stale);
        }
        were.clear();
        were.extend(pending.iter().map(|&slot| {
            let was = generations.load(slot);
            debug_assert!(is_published(was), "slot {slot} was never sent");
            generations.store(slot, next_free(was));
            was
        }));
        // Ordering: partner of the fence in `still_names`. Of a receiver's (ref++, read generation)
        // and our (store generation, read ref) at least one sees the other.
        fence(Ordering::SeqCst);
        if counted.are_dead(pending, own, seen) {
            batch.dead.extend_from_slice(pending);
        } else {
            counted.pass(pending, own, seen);
            for ((&slot, &was), &alive) in pending.iter().zip(&*were).zip(&seen.alive) {
                if alive {
                    generations.store(slot, was);
                    batch.alive.push(slot);
                } else {
                    batch.dead.push(slot);
                }
            }
        }
        check_epoch().inspect_err(|_| {
            batch.dead.truncate(dead);
            batch.alive.truncate(alive);
            for (&slot, &was) in pending.iter().zip(&*were) {
                generations.store(slot, was);
            }
        })
    }

    /// Asks for the lines of the candidates' counters, which are other processors': they come while the caller does
    /// something else.
    pub fn prefetch(&self, candidates: &[u32]) {
        let mut before = u32::MAX;
        for &slot in candidates {
            if slot / LINE != before {
                before = slot / LINE;
                self.queues.iter().for_each(|q| q.rcvd.prefetch(slot));
                self.readers.iter().for_each(|r| r.refs.prefetch(slot));
            }
        }
    }

    /// Whether somebody holds the buffer or it is on its way: one pass, nothing written.
    #[must_use]
    pub fn is_alive(&self, slot: u32) -> bool {
        are_alive(&self.queues, &self.readers, &[slot]) == [true]
    }
}

/// The verdict of one pass over many buffers of a pool, nothing written: which of them somebody holds or are on their way. For the manager,
/// which judges an orphan by counters that it read from their owners' objects.
pub fn are_alive<R: Words, C: Words>(
    queues: &[Queue<C>],
    readers: &[Reader<R>],
    slots: &[u32],
) -> Vec<bool> {
    let mut seen = Seen::default();
    Counted { queues, readers }.pass(slots, &NoWords, &mut seen);
    seen.alive
}

/// The counters of a pool's buffers.
struct Counted<'a, R, C> {
    queues: &'a [Queue<C>],
    readers: &'a [Reader<R>],
}

impl<R: Words, C: Words> Counted<'_, R, C> {
    /// A pass over slots that are expected to be dead: whether all are. If not it says nothing of any one of them.
    #[inline(always)]
    fn are_dead<O: Words + ?Sized>(&self, slots: &[u32], own: &O, seen: &mut Seen) -> bool {
        if slots.is_empty() {
            return true;
        }
        let rcvd = &mut seen.rcvd;
        rcvd.resize(slots.len() * self.queues.len(), 0);
        let mut any = 0;
        for phase in PASS_ORDER {
            match phase {
                Phase::Received => {
                    for (queue, seen) in self.queues.iter().zip(rcvd.chunks_mut(slots.len())) {
                        let seen = seen.iter_mut();
                        queue.rcvd.load_each(slots, seen, |seen, now| *seen = now);
                    }
                }
                Phase::References => {
                    for reader in self.readers {
                        reader
                            .refs
                            .load_each(slots, repeat(()), |(), now| any |= now);
                    }
                    own.load_each(slots, repeat(()), |(), now| any |= now);
                }
                Phase::Sent => {
                    for (queue, seen) in self.queues.iter().zip(rcvd.chunks(slots.len())) {
                        let seen = seen.iter();
                        queue
                            .sent
                            .load_each(slots, seen, |seen, now| any |= now ^ *seen);
                    }
                }
                // Among the references.
                Phase::Own => {}
            }
        }
        any == 0
    }

    /// Makes one pass, and says which of `slots` are alive. It reads one kind of word after the other, each for all
    /// slots. So every slot's words are read in the order of the phases, and the view's place is looked up once.
    #[inline(always)]
    fn pass<O: Words + ?Sized>(&self, slots: &[u32], own: &O, seen: &mut Seen) {
        let Seen { rcvd, alive } = seen;
        alive.clear();
        alive.resize(slots.len(), false);
        rcvd.resize(slots.len() * self.queues.len(), 0);
        if slots.is_empty() {
            return;
        }
        for phase in PASS_ORDER {
            match phase {
                Phase::Received => {
                    for (queue, seen) in self.queues.iter().zip(rcvd.chunks_mut(slots.len())) {
                        let seen = seen.iter_mut();
                        queue.rcvd.load_each(slots, seen, |seen, now| *seen = now);
                    }
                }
                Phase::References => {
                    for reader in self.readers {
                        let alive = alive.iter_mut();
                        reader
                            .refs
                            .load_each(slots, alive, |alive, now| *alive |= now != 0);
                    }
                    own.load_each(slots, alive.iter_mut(), |alive, now| *alive |= now != 0);
                }
                // Among the references.
                Phase::Own => {}
                // Equal queue by queue: a sum would let a queue with more receipts than sends, which a liar can
                // make, hide a message on another.
                Phase::Sent => {
                    for (queue, seen) in self.queues.iter().zip(rcvd.chunks(slots.len())) {
                        let both = alive.iter_mut().zip(seen);
                        let unequal =
                            |(alive, seen): (&mut bool, &u32), now| *alive |= now != *seen;
                        queue.sent.load_each(slots, both, unequal);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
