//! A page that is being put together: records, and the reader whose counters are being read.

use super::super::counters;
use super::ages::Ages;
use super::look::{self, Cursors};
use super::sight::Sight;
use crate::state::{FdToken, Look, Surveyed};
use std::time::Duration;
use tranship_proto::{
    ChannelStat, ChannelView, HoldStat, HoldView, PageRecord, PoolStat, PoolView, StatRecord,
    encode_page,
};
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
    view: HoldView,
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

    fn put(&mut self, record: &PageRecord) {
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
                PageRecord::Manager(m)
            }
            (StatRecord::Domain(d), _) => PageRecord::Domain(d),
            (StatRecord::Heap(h), _) => PageRecord::Heap(h),
            (StatRecord::Pool(stat), look) => PageRecord::Pool(pool(ages, sight, stat, look)),
            (StatRecord::Channel(stat), look) => PageRecord::Channel(channel(sight, stat, look)),
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
                    view: HoldView {
                        stat,
                        oldest_ns: 0,
                        oldest_bytes: 0,
                    },
                    oldest: None,
                    all: Vec::new(),
                });
            }
            Err(Some(last)) => self.put(&PageRecord::Hold(last)),
            Err(None) => self.left_out += 1,
        }
    }

    /// Looks through the next piece of a reader's counters.
    pub fn go_on(&mut self, ages: &mut Ages, sight: &Sight<'_>) {
        let Some(mut holding) = self.holding.take() else {
            return;
        };
        let key = (holding.view.stat.pool, holding.view.stat.domain);
        let now = sight.now;
        let from = holding.next;
        let to = from.saturating_add(SLOTS_AT_ONCE).min(holding.slots);
        // The pool is gone meanwhile: nothing of it is shown.
        let (Some(table), Some(refs)) = ((sight.file)(holding.table), (sight.file)(holding.refs))
        else {
            return;
        };
        let had = look::held(table, refs, &(from..to)).unwrap_or_default();
        let stat = &mut holding.view.stat;
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
            holding.view.oldest_ns = ns(now.saturating_sub(since));
            holding.view.oldest_bytes = bytes;
        }
        ages.seen(key, &holding.all, &holding.view);
        self.put(&PageRecord::Hold(holding.view));
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn pool(ages: &mut Ages, sight: &Sight<'_>, stat: PoolStat, look: Look) -> PoolView {
    let figures = match look {
        Look::Figures { table } => (sight.file)(table).and_then(|f| counters::figures(f).ok()),
        _ => None,
    };
    let f = figures.unwrap_or_default();
    let waiting = match f.waiters {
        0 => Duration::ZERO,
        // Never 0: a thread is waiting.
        _ => ages
            .waits(stat.pool, sight.now)
            .max(Duration::from_nanos(1)),
    };
    // Trust: a writer's word about memory that it was granted.
    let most = stat.granted_bytes;
    PoolView {
        blocked_ns: f.blocked_ns,
        collect_ns: f.collect_ns,
        allocs: f.allocs,
        live_bytes: f.live_bytes.min(most),
        peak_bytes: f.peak_bytes.min(most),
        live_buffers: f.live_buffers,
        cached_buffers: f.cached,
        garbage_bytes: f.garbage_bytes.min(most),
        cached_bytes: f.cached_bytes.min(most),
        waiters: f.waiters,
        waiting_ns: ns(waiting),
        stat: PoolStat {
            live_bytes: f.live_bytes.min(most),
            garbage_bytes: f.garbage_bytes.min(most),
            cached_bytes: f.cached_bytes.min(most),
            padding_bytes: f.padding_bytes.min(most),
            ..stat
        },
    }
}

fn channel(sight: &Sight<'_>, mut stat: ChannelStat, look: Look) -> ChannelView {
    let c = match look {
        Look::Rings { source, sink } => {
            let [source, sink] = [source, sink].map(|t| t.and_then(|t| (sight.file)(t)));
            look::cursors(source, sink, stat.lines)
        }
        _ => Cursors::default(),
    };
    stat.taken = c.taken;
    let waiting = match c.waits_since_ns {
        0 => 0,
        since => monotonic_ns().saturating_sub(since).max(1),
    };
    ChannelView {
        stat,
        depth: c.depth,
        stalls: c.stalls,
        stalled_ns: c.stalled_ns,
        waiting_ns: waiting,
        sink_asleep: c.sink_asleep,
    }
}
