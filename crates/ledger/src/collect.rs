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
    /// `rcvd` as the pass saw it: queue-major, [`BLOCK`] per queue.
    rcvd: Vec<u32>,
    /// Candidates that the pass found dead, with the generation they had.
    pending: Vec<(u32, u32)>,
}

/// Candidates whose words are read together: one mask of the living.
const BLOCK: usize = 64;

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
                    for block in candidates.chunks(BLOCK) {
                        let living = self.pass(block.iter().copied(), own, &mut scratch.rcvd);
                        for (i, &slot) in block.iter().enumerate() {
                            if living & (1 << i) == 0 {
                                scratch.pending.push((slot, generations.load(slot)));
                            } else {
                                batch.alive.push(slot);
                            }
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
                    for block in scratch.pending.chunks(BLOCK) {
                        let living =
                            self.pass(block.iter().map(|&(slot, _)| slot), own, &mut scratch.rcvd);
                        for (i, &(slot, generation)) in block.iter().enumerate() {
                            if living & (1 << i) == 0 {
                                batch.dead.push(slot);
                            } else {
                                generations.store(slot, generation);
                                batch.alive.push(slot);
                            }
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

    /// One pass over at most [`BLOCK`] slots; bit i is set if slot i is alive.
    #[inline]
    fn pass<O, I>(&self, slots: I, own: &O, rcvd: &mut Vec<u32>) -> u64
    where
        O: Words + ?Sized,
        I: Iterator<Item = u32> + Clone,
    {
        rcvd.resize(self.queues.len() * BLOCK, 0);
        let mut living = 0;
        for phase in PASS_ORDER {
            match phase {
                Phase::Received => {
                    for (queue, seen) in self.queues.iter().zip(rcvd.chunks_exact_mut(BLOCK)) {
                        for (seen, slot) in seen.iter_mut().zip(slots.clone()) {
                            *seen = queue.rcvd.load(slot);
                        }
                    }
                }
                Phase::References => {
                    for (i, slot) in slots.clone().enumerate() {
                        living |= u64::from(self.is_held(slot, own)) << i;
                    }
                }
                // Equal queue by queue: a sum would let a queue with more receipts than sends, which a liar can
                // make, hide a message on another.
                Phase::Sent => {
                    for (queue, seen) in self.queues.iter().zip(rcvd.chunks_exact(BLOCK)) {
                        for (i, (&seen, slot)) in seen.iter().zip(slots.clone()).enumerate() {
                            living |= u64::from(queue.sent.load(slot) != seen) << i;
                        }
                    }
                }
            }
        }
        living
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
        self.pass(std::iter::once(slot), &NoWords, &mut Vec::new()) != 0
    }

    /// The first of `slots` that is alive, if any: a chunk without one may be unmapped by its readers.
    pub fn first_alive(&self, slots: impl IntoIterator<Item = u32>) -> Option<u32> {
        let mut rcvd = Vec::new();
        slots
            .into_iter()
            .find(|&slot| self.pass(std::iter::once(slot), &NoWords, &mut rcvd) != 0)
    }
}

#[cfg(test)]
mod tests;
