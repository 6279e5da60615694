//! The verdict: which buffers may be reused.

use tranship_sync::atomic::{Ordering, fence};

use crate::generation::{is_published, next_free};
use crate::order::{COLLECTION, CollectStep, PASS_ORDER, Phase};
use crate::roster::Roster;
use crate::words::{Generations, NoWords, Words};

/// The roster is older than the board. Take what the manager has queued, then collect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The roster is of epoch {roster}, the board shows {board}: take the manager's events first"
)]
pub struct StaleRoster {
    /// The roster's epoch.
    pub roster: u64,
    /// The board's.
    pub board: u64,
}

/// What became of the candidates of one batch. Reuse it: [`Roster::collect`] appends.
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

/// Kept between batches, so that collecting does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// `rcvd` of one buffer as the pass saw it, per queue.
    rcvd: Vec<u32>,
    /// Candidates that the pass found dead, with the generation they had.
    pending: Vec<(u32, u32)>,
}

/// Counters on a cache line.
const LINE: u32 = 16;

impl<R: Words, C: Words> Roster<R, C> {
    /// Decides over `candidates`: appends each to `batch.dead` (its generation is now odd) or to `batch.alive`.
    ///
    /// * `candidates`: slots that were sent; each at most once. One that was never sent is not collected: whoever
    ///   has it just reuses it. (If its generation is odd, it is judged, but not bumped.)
    /// * `own`: the writer's private references. They may fall to 0, and rise by a receipt of the writer's own
    ///   buffer, while this runs: they are read in the same phase as everybody's.
    /// * `generations`: the writer's own table.
    /// * `epoch_now`: the board's epoch of this pool. It must be an acquire load.
    ///
    /// Costs per candidate that is dead: two words per queue and one per reader, all that twice, and the generation;
    /// one fence a batch.
    ///
    /// # Errors
    /// [`StaleRoster`]; then `batch` and all generations are as before.
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
    ) -> Result<(), StaleRoster>
    where
        O: Words + ?Sized,
        G: Generations + ?Sized,
        E: FnMut() -> u64,
    {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.pending.clear();
        scratch.rcvd.resize(self.queues.len(), 0);
        let (dead, alive) = (batch.dead.len(), batch.alive.len());
        let mut result = Ok(());
        for step in COLLECTION {
            match step {
                CollectStep::CheckEpoch => {
                    let board = epoch_now();
                    if board != self.epoch {
                        result = Err(StaleRoster {
                            roster: self.epoch,
                            board,
                        });
                        break;
                    }
                }
                CollectStep::Pass => {
                    scratch.pending.reserve(candidates.len());
                    for &slot in candidates {
                        if self.pass(slot, own, &mut scratch.rcvd) {
                            batch.alive.push(slot);
                        } else {
                            scratch.pending.push((slot, generations.load(slot)));
                        }
                    }
                }
                CollectStep::Bump => {
                    for &(slot, generation) in &scratch.pending {
                        debug_assert!(is_published(generation), "slot {slot} was never sent");
                        generations.store(slot, next_free(generation));
                    }
                }
                // Ordering: partner of the fence in `receive_forwarded`. Of a receiver's (ref++, read generation)
                // and our (store generation, read ref) at least one sees the other.
                CollectStep::Fence => fence(Ordering::SeqCst),
                CollectStep::LookAgain => {
                    for &(slot, generation) in &scratch.pending {
                        if self.pass(slot, own, &mut scratch.rcvd) {
                            generations.store(slot, generation);
                            batch.alive.push(slot);
                        } else {
                            batch.dead.push(slot);
                        }
                    }
                }
            }
        }
        if result.is_err() {
            batch.dead.truncate(dead);
            batch.alive.truncate(alive);
            for &(slot, generation) in &scratch.pending {
                generations.store(slot, generation);
            }
        }
        self.scratch = scratch;
        result
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

    /// One pass over a buffer's words: whether it is alive. `rcvd` has a place for each queue.
    #[inline(always)]
    fn pass<O: Words + ?Sized>(&self, slot: u32, own: &O, rcvd: &mut [u32]) -> bool {
        let mut alive = false;
        for phase in PASS_ORDER {
            match phase {
                Phase::Received => {
                    for (queue, seen) in self.queues.iter().zip(&mut *rcvd) {
                        *seen = queue.rcvd.load(slot);
                    }
                }
                Phase::References => alive |= self.is_held(slot, own),
                // Equal queue by queue: a sum would let a queue with more receipts than sends, which a liar can
                // make, hide a message on another.
                Phase::Sent => {
                    for (queue, seen) in self.queues.iter().zip(&*rcvd) {
                        alive |= queue.sent.load(slot) != *seen;
                    }
                }
            }
        }
        alive
    }

    /// Whether anybody has a reference now.
    #[inline]
    fn is_held<O: Words + ?Sized>(&self, slot: u32, own: &O) -> bool {
        self.readers
            .iter()
            .any(|reader| reader.refs.load(slot) != 0)
            || own.load(slot) != 0
    }

    /// Whether somebody holds the buffer or it is on its way: one pass, nothing written. For the manager, about
    /// pools whose writer is dead and whose roster it edits itself.
    #[must_use]
    pub fn is_alive(&self, slot: u32) -> bool {
        self.first_alive([slot]).is_some()
    }

    /// The first of `slots` that is alive, if any: a chunk without one may be unmapped by its readers.
    pub fn first_alive(&self, slots: impl IntoIterator<Item = u32>) -> Option<u32> {
        let mut rcvd = vec![0; self.queues.len()];
        slots
            .into_iter()
            .find(|&slot| self.pass(slot, &NoWords, &mut rcvd))
    }
}

#[cfg(test)]
mod tests;
