//! A page that is being put together: records, and the reader whose counters are being read.

use super::super::{counters, look};
use super::ages::Ages;
use super::sight::Sight;
use crate::state::{FdToken, Look, Surveyed};
use std::time::Duration;
use tranship_proto::{ChannelStat, HoldStat, PoolStat, StatRecord, encode_page};
use tranship_region::layout::page;
use tranship_sys::time::monotonic_ns;

/// Slots of a reader that are read at once.
const SLOTS_AT_ONCE: u32 = 16384;

/// A reader that is being looked through.
#[derive(Debug)]
struct Holding {
    table: FdToken,
    refs: FdToken,
    slots: u32,
    next: u32,
    stat: HoldStat,
    oldest: Option<(Duration, u64)>,
    all: Vec<u32>,
}

/// The page so far.
#[derive(Debug, Default)]
pub(super) struct Run {
    words: Vec<u64>,
    left_out: u64,
    holding: Option<Holding>,
}

impl Run {
    /// Returns the page's words, and the number of records without room.
    pub fn words(self) -> (Vec<u64>, u64) {
        (self.words, self.left_out)
    }

    pub fn is_in_hold(&self) -> bool {
        self.holding.is_some()
    }

    fn put(&mut self, record: &StatRecord) {
        let before = self.words.len();
        encode_page(record, &mut self.words);
        if self.words.len() > page::MAX_WORDS as usize {
            self.words.truncate(before);
            self.left_out += 1;
        }
    }

    /// Takes an item, and reads what the state names for it.
    pub fn take(&mut self, ages: &mut Ages, sight: &Sight<'_>, surveyed: Surveyed) {
        let record = match (surveyed.record, surveyed.look) {
            (StatRecord::Manager(mut m), _) => {
                // The state's time is that of its last input.
                m.uptime_s = sight.now.as_secs();
                StatRecord::Manager(m)
            }
            (StatRecord::Domain(d), _) => StatRecord::Domain(d),
            (StatRecord::Heap(h), _) => StatRecord::Heap(h),
            (StatRecord::Pool(stat), look) => StatRecord::Pool(pool(ages, sight, stat, look)),
            (StatRecord::Channel(stat), look) => StatRecord::Channel(channel(sight, stat, look)),
            (StatRecord::Hold(stat), Look::Held { table, refs, slots }) => {
                return self.begin_hold(ages, stat, (table, refs, slots));
            }
            (StatRecord::Hold(_), _) => return,
        };
        self.put(&record);
    }

    fn begin_hold(
        &mut self,
        ages: &mut Ages,
        stat: HoldStat,
        (table, refs, slots): (FdToken, FdToken, u32),
    ) {
        let key = (stat.pool, stat.domain);
        match ages.turn_of(key, slots) {
            Ok(()) => {
                self.holding = Some(Holding {
                    table,
                    refs,
                    slots,
                    next: 0,
                    stat,
                    oldest: None,
                    all: Vec::new(),
                });
            }
            Err(Some(last)) => self.put(&StatRecord::Hold(last)),
            Err(None) => self.left_out += 1,
        }
    }

    /// Looks through the next piece of a reader's counters.
    pub fn go_on(&mut self, ages: &mut Ages, sight: &Sight<'_>) {
        let Some(mut holding) = self.holding.take() else {
            return;
        };
        let key = (holding.stat.pool, holding.stat.domain);
        let now = sight.now;
        let from = holding.next;
        let to = from.saturating_add(SLOTS_AT_ONCE).min(holding.slots);
        // The pool is gone meanwhile: nothing of it is shown.
        let (Some(table), Some(refs)) = ((sight.file)(holding.table), (sight.file)(holding.refs))
        else {
            return;
        };
        let had = look::held(table, refs, &(from..to)).unwrap_or_default();
        let stat = &mut holding.stat;
        let bytes = had.iter().fold(0u64, |sum, h| sum.saturating_add(h.bytes));
        stat.buffers += u32::try_from(had.len()).unwrap_or(u32::MAX);
        stat.bytes = stat.bytes.saturating_add(bytes);
        holding.all.extend(had.iter().map(|h| h.slot));
        let oldest = ages.found(key, &had, now);
        holding.oldest = [holding.oldest, oldest].into_iter().flatten().min();
        holding.next = to;
        if to < holding.slots {
            self.holding = Some(holding);
            return;
        }
        if let Some((since, bytes)) = holding.oldest {
            holding.stat.oldest_ns = ns(now.saturating_sub(since));
            holding.stat.oldest_bytes = bytes;
        }
        ages.seen(key, &holding.all, &holding.stat);
        self.put(&StatRecord::Hold(holding.stat));
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn pool(ages: &mut Ages, sight: &Sight<'_>, mut stat: PoolStat, look: Look) -> PoolStat {
    let figures = match look {
        Look::Figures { table } => (sight.file)(table).and_then(|f| counters::figures(f).ok()),
        _ => None,
    };
    figures.unwrap_or_default().say(&mut stat);
    if stat.waiters > 0 {
        // Never 0: a thread is waiting.
        stat.waiting_ns = ns(ages.waits(stat.pool, sight.now)).max(1);
    }
    stat
}

fn channel(sight: &Sight<'_>, mut stat: ChannelStat, look: Look) -> ChannelStat {
    if let Look::Rings { source, sink } = look {
        let halves = [source, sink].map(|half| (sight.file)(half?));
        look::cursors(halves, stat.lines, monotonic_ns()).say(&mut stat);
    }
    stat
}
