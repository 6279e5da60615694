//! Since when a state holds, which can only be known by looking again and again. Every age here is therefore "at
//! least", from the first look on.

use super::super::look::Had;
use std::collections::HashMap;
use std::time::Duration;
use tranship_proto::{DomainId, HoldStat, PoolId};

/// Slots of all readers that are read for one page; the remaining readers wait for the next page.
const SLOTS: u64 = 1 << 20;
/// Buffers of one reader, and of all readers, whose ages are known. Further buffers are counted, and are new every
/// time.
const KNOWN_OF_ONE: usize = 1024;
const KNOWN: usize = 1 << 16;

type Key = (PoolId, DomainId);

/// Whether everything was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Complete,
    Behind,
}

#[derive(Debug, Default)]
struct Hold {
    /// Generation, and since when.
    slots: HashMap<u32, (u32, Duration)>,
    /// The result of the last look.
    view: Option<HoldStat>,
    looked: u64,
    round: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ages {
    round: u64,
    holds: HashMap<Key, Hold>,
    waits: HashMap<PoolId, (Duration, u64)>,
    known: usize,
    slots_left: u64,
    /// The most rounds for which a reader has not been looked at, in this round and in the last.
    late: u64,
    was_late: u64,
    behind: bool,
}

impl Ages {
    pub fn begin(&mut self) {
        self.round += 1;
        self.slots_left = SLOTS;
        self.was_late = if self.behind { self.late } else { 0 };
        (self.late, self.behind) = (0, false);
    }

    /// Forgets readers that were not seen in this round.
    pub fn end(&mut self) -> Ended {
        let round = self.round;
        self.holds.retain(|_, hold| hold.round == round);
        self.waits.retain(|_, (_, seen)| *seen == round);
        self.known = self.holds.values().map(|hold| hold.slots.len()).sum();
        match self.behind {
            true => Ended::Behind,
            false => Ended::Complete,
        }
    }

    /// Says whether a reader is to be looked at now; if not, the error is the last view of it.
    pub fn turn_of(&mut self, key: Key, slots: u32) -> Result<(), Option<HoldStat>> {
        let hold = self.holds.entry(key).or_default();
        hold.round = self.round;
        let late = self.round - hold.looked;
        self.late = self.late.max(late);
        // If there is not time for all, the readers that have waited longest come first; the first one always fits.
        let first = self.slots_left == SLOTS;
        let fits = self.slots_left >= u64::from(slots) || first;
        if late < self.was_late || !fits {
            self.behind = true;
            return Err(hold.view.clone());
        }
        self.slots_left = self.slots_left.saturating_sub(slots.into());
        hold.looked = self.round;
        Ok(())
    }

    /// Records some of a reader's held slots. Returns the oldest: since when it is held, and its bytes.
    pub fn found(&mut self, key: Key, had: &[Had], now: Duration) -> Option<(Duration, u64)> {
        let hold = self.holds.entry(key).or_default();
        let mut oldest: Option<(Duration, u64)> = None;
        for h in had {
            let since = match hold.slots.get(&h.slot) {
                Some((generation, since)) if *generation == h.generation => *since,
                known => {
                    let room = hold.slots.len() < KNOWN_OF_ONE && self.known < KNOWN;
                    if known.is_some() || room {
                        self.known += usize::from(known.is_none());
                        hold.slots.insert(h.slot, (h.generation, now));
                    }
                    now
                }
            };
            if oldest.is_none_or(|(first, _)| since < first) {
                oldest = Some((since, h.bytes));
            }
        }
        oldest
    }

    /// Ends the look at a reader: slots that are no longer held are forgotten.
    pub fn seen(&mut self, key: Key, all: &[u32], view: &HoldStat) {
        let hold = self.holds.entry(key).or_default();
        hold.slots.retain(|slot, _| all.binary_search(slot).is_ok());
        hold.view = Some(view.clone());
    }

    /// Returns how long a thread has waited for memory of a pool.
    pub fn waits(&mut self, pool: PoolId, now: Duration) -> Duration {
        let wait = self.waits.entry(pool).or_insert((now, 0));
        wait.1 = self.round;
        now.saturating_sub(wait.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn had(slot: u32, generation: u32) -> Had {
        Had {
            slot,
            generation,
            bytes: u64::from(slot),
        }
    }

    const KEY: Key = (PoolId(1), DomainId(2));

    fn view() -> HoldStat {
        HoldStat {
            domain: KEY.1,
            pool: KEY.0,
            buffers: 1,
            bytes: 1,
            ..HoldStat::default()
        }
    }

    #[test]
    fn a_buffer_is_as_old_as_its_generation() {
        let mut ages = Ages::default();
        let at = Duration::from_secs;
        let mut look = |now, held: &[Had]| {
            ages.begin();
            assert_eq!(ages.turn_of(KEY, 10), Ok(()));
            let oldest = ages.found(KEY, held, at(now));
            let all: Vec<u32> = held.iter().map(|h| h.slot).collect();
            ages.seen(KEY, &all, &view());
            assert_eq!(ages.end(), Ended::Complete);
            oldest
        };
        assert_eq!(look(1, &[had(1, 2), had(3, 2)]), Some((at(1), 1)));
        assert_eq!(look(2, &[had(3, 2)]), Some((at(1), 3)));
        assert_eq!(look(3, &[had(1, 2), had(3, 2)]), Some((at(1), 3)));
        // Slot 3 is another buffer now; 1 was away meanwhile.
        assert_eq!(look(4, &[had(1, 2), had(3, 4)]), Some((at(3), 1)));
        assert_eq!(look(5, &[]), None);
        assert_eq!(look(6, &[had(1, 2)]), Some((at(6), 1)));
    }

    #[test]
    fn where_there_is_too_much_everybody_has_its_turn() {
        let mut ages = Ages::default();
        let keys: Vec<Key> = (0..10).map(|i| (PoolId(i), DomainId(0))).collect();
        let slots = u32::try_from(SLOTS / 3).expect("small");
        let mut looked = [0; 10];
        for _ in 0..60 {
            ages.begin();
            for (key, n) in keys.iter().zip(&mut looked) {
                *n += u32::from(ages.turn_of(*key, slots).is_ok());
            }
            ages.end();
        }
        assert!(looked.iter().all(|n| *n >= 6), "{looked:?}");
        // A reader larger than the bound of a page.
        ages.begin();
        let mut alone = Ages::default();
        alone.begin();
        assert!(alone.turn_of(KEY, u32::MAX).is_ok());
    }

    #[test]
    fn who_waits_has_waited_since_it_was_first_seen() {
        let mut ages = Ages::default();
        let at = Duration::from_secs;
        for (now, for_so_long) in [(1, 0), (3, 2), (4, 3)] {
            ages.begin();
            assert_eq!(ages.waits(PoolId(1), at(now)), at(for_so_long));
            ages.end();
        }
        ages.begin();
        ages.end();
        ages.begin();
        assert_eq!(ages.waits(PoolId(1), at(9)), at(0));
    }
}
