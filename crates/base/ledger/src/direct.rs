//! The verdict over a few buffers, where the writer is the source of every queue.

use std::iter::repeat;
use tranship_sync::atomic::{Ordering, fence};

use crate::generation::{is_published, next_free, published_before};
use crate::order::{COLLECTION_DIRECT, CollectStep, PASS_DIRECT, Phase};
use crate::reader_set::ReaderSet;
use crate::words::{Few, Generations, Words};

impl<R: Words, C: Words> ReaderSet<R, C> {
    /// Whether all of `few` are dead, as [`collect`](Reader set::collect) decides it, and in one pass. Then their generations are odd. False:
    /// nothing was changed, and nothing is said of any one of them; so it is, too, if the reader set is stale or if another domain is the source of a
    /// queue. The arguments are `collect`'s, and so is what the caller has to see to.
    ///
    /// While it runs none of the writer's threads comes by a handle, which needs the collector's lock.
    ///
    /// Costs per candidate two words per queue and one per reader, the handles and the generation; one fence in all.
    // Crash: as in `collect`.
    #[inline(always)]
    pub fn are_dead<const N: usize, O, G>(
        &self,
        few: impl Few<N>,
        own: &O,
        generations: &G,
        mut epoch_now: impl FnMut() -> u64,
    ) -> bool
    where
        O: Words + ?Sized,
        G: Generations + ?Sized,
    {
        use CollectStep::{Bump, CheckEpoch, Fence, Pass};
        const {
            let steps = COLLECTION_DIRECT;
            assert!(matches!(
                steps,
                [CheckEpoch, Pass, CheckEpoch, Bump, Fence, CheckEpoch]
            ));
        };
        let known = self.epoch;
        if self.others > 0
            || epoch_now() != known
            || !self.pass_direct(few, own)
            || epoch_now() != known
        {
            return false;
        }
        generations.change_each(few, |was| {
            debug_assert!(is_published(was), "one was never sent");
            next_free(was)
        });
        // Ordering: partner of the fence in `still_names`. There are two sequences: (epoch raised, ref++, fence, read
        // generation) by a reader that takes from a new queue, and (store generation, fence, read epoch) here. At least
        // one sees the other.
        fence(Ordering::SeqCst);
        if epoch_now() == known {
            return true;
        }
        std::hint::cold_path();
        generations.change_each(few, published_before);
        false
    }

    /// Makes one pass, and says whether all buffers are dead. The phases are written out, because the compiler does not
    /// unroll a loop over them.
    #[inline(always)]
    fn pass_direct<const N: usize, O: Words + ?Sized>(&self, few: impl Few<N>, own: &O) -> bool {
        use Phase::{Own, Received, References};
        const { assert!(matches!(PASS_DIRECT, [Own, Received, References, Received])) };
        let mut any = 0;
        own.load_each(few, repeat(()), |(), now| any |= now);
        any |= self.differ(few);
        for reader in &self.readers {
            reader.refs.load_each(few, repeat(()), |(), now| any |= now);
        }
        any |= self.differ(few);
        any == 0
    }

    /// Returns the bits in which `rcvd` and `sent` differ.
    #[inline(always)]
    fn differ<const N: usize>(&self, few: impl Few<N>) -> u32 {
        let mut any = 0;
        for queue in &self.queues {
            let mut sent = [0; N];
            let to = sent.iter_mut();
            queue.sent.load_each(few, to, |sent, now| *sent = now);
            let sent = sent.iter();
            queue
                .rcvd
                .load_each(few, sent, |sent, now| any |= now ^ sent);
        }
        any
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
