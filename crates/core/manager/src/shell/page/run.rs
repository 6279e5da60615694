//! A page that is being put together, and since when callers wait for memory.

use super::super::look;
use super::sight::Sight;
use crate::state::Surveyed;
use std::collections::HashMap;
use std::time::Duration;
use tranship_proto::{PoolId, StatRecord, encode_page};
use tranship_region::layout::page;

/// The page so far.
#[derive(Debug, Default)]
pub(super) struct Run {
    words: Vec<u64>,
    left_out: u64,
}

impl Run {
    /// Returns the page's words, and the number of records without room.
    pub fn words(self) -> (Vec<u64>, u64) {
        (self.words, self.left_out)
    }

    /// Takes an item, and reads what the state names for it.
    pub fn take(&mut self, waits: &mut Waits, sight: &Sight<'_>, (mut record, look): Surveyed) {
        if let Some(look) = look {
            look::complete(&mut record, look, sight.file);
        }
        match &mut record {
            // The state's time is that of its last input.
            StatRecord::Manager(stat) => stat.uptime_s = sight.now.as_secs(),
            StatRecord::Pool(stat) if stat.waiters > 0 => {
                let waits = waits.of(stat.pool, sight.now).as_nanos();
                // Never 0: a thread is waiting.
                stat.waiting_ns = u64::try_from(waits).unwrap_or(u64::MAX).max(1);
            }
            _ => {}
        }
        let before = self.words.len();
        encode_page(&record, &mut self.words);
        if self.words.len() > page::MAX_WORDS as usize {
            self.words.truncate(before);
            self.left_out += 1;
        }
    }
}

/// For each pool, since when some thread waits for its memory. Only repeated looks show a wait, so each time is a lower
/// bound, from the first look on.
#[derive(Debug, Default)]
pub(super) struct Waits {
    last: HashMap<PoolId, Duration>,
    now: HashMap<PoolId, Duration>,
}

impl Waits {
    /// Begins a page: pools that the last page did not ask for are forgotten.
    pub fn begin(&mut self) {
        self.last = std::mem::take(&mut self.now);
    }

    /// Returns how long a thread has waited for memory of a pool.
    fn of(&mut self, pool: PoolId, now: Duration) -> Duration {
        let since = self.last.get(&pool).copied().unwrap_or(now);
        self.now.insert(pool, since);
        now.saturating_sub(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_has_waited_since_it_was_first_seen() {
        let (mut waits, at) = (Waits::default(), Duration::from_secs);
        for (now, for_so_long) in [(1, 0), (3, 2), (4, 3)] {
            waits.begin();
            assert_eq!(waits.of(PoolId(1), at(now)), at(for_so_long));
        }
        waits.begin();
        waits.begin();
        assert_eq!(waits.of(PoolId(1), at(9)), at(0));
    }
}
