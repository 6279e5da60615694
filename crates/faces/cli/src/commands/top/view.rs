//! Meaning of a page: rates between two of them, sums by domain, and which caller waits on which domain.

use super::source::{State, state};
use crate::commands::names::Names;
use crate::commands::words::{count, time, waiting};
use crate::output::size;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use tranship_manager::page::Snapshot;
use tranship_proto::{
    ChannelStat, DomainId, DomainStat, HeapStat, HoldStat, ManagerStat, PoolId, PoolStat,
    StatRecord, shown,
};

/// Time without an answer after which a manager is shown as silent.
const SILENT: Duration = Duration::from_secs(1);
/// Most names that are shown of the domains that somebody waits on.
const NAMED: usize = 3;

/// Everything, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct View {
    /// Time of the page, ns of the monotonic clock.
    pub at_ns: u64,
    /// Age of the snapshot, ns.
    pub age_ns: u64,
    /// Time for which the manager has not answered, ns.
    pub silent_ns: u64,
    /// Process of the manager.
    pub manager_pid: u32,
    pub manager_state: State,
    /// Records that are not on the page for lack of room or time.
    pub left_out: u64,
    /// Time span of the rates, ns; 0: there are no rates.
    pub span_ns: u64,
    pub manager: Option<ManagerStat>,
    pub domains: Vec<DomainRow>,
    pub pools: Vec<PoolRow>,
    pub heaps: Vec<HeapStat>,
    pub channels: Vec<ChannelRow>,
    pub blocked: Vec<Blocked>,
    pub holders: Vec<Holder>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct DomainRow {
    #[serde(flatten)]
    pub stat: DomainStat,
    /// Name and number.
    pub label: String,
    pub pools: usize,
    /// Bytes granted to its pools, and admitted to its heaps.
    pub granted_bytes: u64,
    pub live_bytes: u64,
    /// Bytes that it holds of others.
    pub held_bytes: u64,
    pub sources: usize,
    pub sinks: usize,
    pub sent_per_s: f64,
    pub taken_per_s: f64,
    /// Number of its callers that wait.
    pub waiting: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct PoolRow {
    #[serde(flatten)]
    pub stat: PoolStat,
    pub label: String,
    pub writer_label: String,
    pub allocs_per_s: f64,
    /// Mean number of callers that waited.
    pub blocked_callers: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ChannelRow {
    #[serde(flatten)]
    pub stat: ChannelStat,
    pub label: String,
    pub source_label: String,
    pub sink_label: String,
    pub sent_per_s: f64,
    pub taken_per_s: f64,
    pub stalls_per_s: f64,
    /// The share of the time in which the source waited for room.
    pub stalled_share: f64,
}

/// A waiting caller.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Blocked {
    pub domain: Option<DomainId>,
    pub label: String,
    /// Number of callers.
    pub callers: u64,
    /// Memory of a pool, or room in a channel.
    pub wants: String,
    pub pool: Option<PoolId>,
    pub channel: Option<u32>,
    /// Shortest time that they have waited, ns.
    pub waiting_ns: u64,
    /// Domains that they wait on.
    pub on: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Holder {
    #[serde(flatten)]
    pub stat: HoldStat,
    pub label: String,
    pub pool_label: String,
    pub writer_label: String,
}

impl Holder {
    /// Returns how long the manager has seen the oldest buffer held.
    pub fn oldest_ns(&self) -> u64 {
        self.stat.held_ms.unwrap_or(0).saturating_mul(1_000_000)
    }
}

/// Identity of a channel: channels of different processes have numbers of their own.
type ChannelKey = (u32, Option<DomainId>, Option<DomainId>, String);

fn channel_key(c: &ChannelStat) -> ChannelKey {
    (c.channel.0, c.source, c.sink, c.name.clone())
}

fn label(name: &str, id: u32) -> String {
    match name.is_empty() {
        true => format!("#{id}"),
        false => format!("{}#{id}", shown(name)),
    }
}

/// Returns the rise of a counter each second.
#[allow(clippy::cast_precision_loss)] // for people
fn per_second(now: u64, before: u64, span_ns: u64) -> f64 {
    match span_ns {
        0 => 0.0,
        ns => now.saturating_sub(before) as f64 * 1e9 / ns as f64,
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The last page but one, from which rates are computed.
#[derive(Debug, Default)]
pub(super) struct Before {
    instance: u64,
    at_ns: u64,
    pools: HashMap<PoolId, PoolStat>,
    channels: HashMap<ChannelKey, ChannelStat>,
    /// Time span of the last rates: a page without news has the same rates.
    span_ns: u64,
    older: Option<Box<Before>>,
}

impl Before {
    fn of(said: &Snapshot) -> Before {
        let mut before = Before {
            instance: said.instance,
            at_ns: said.at_ns,
            ..Before::default()
        };
        for record in &said.records {
            match record {
                StatRecord::Pool(p) => drop(before.pools.insert(p.pool, p.clone())),
                StatRecord::Channel(c) => drop(before.channels.insert(channel_key(c), c.clone())),
                _ => {}
            }
        }
        before
    }

    /// Computes a view. The next view's rates start from this snapshot.
    pub fn view(&mut self, said: &Snapshot) -> View {
        let same = said.instance == self.instance && said.at_ns == self.at_ns;
        if !same {
            let known = self.instance == said.instance && self.at_ns < said.at_ns;
            let mut new = Before::of(said);
            if known {
                let mut older = std::mem::take(self);
                older.older = None;
                new.span_ns = said.at_ns - older.at_ns;
                new.older = Some(Box::new(older));
            }
            *self = new;
        }
        let none = Before::default();
        let before = self.older.as_deref().unwrap_or(&none);
        build(said, before, self.span_ns)
    }
}

fn build(said: &Snapshot, before: &Before, span_ns: u64) -> View {
    let names = Names::of(&said.records);
    let silent = said.silent.filter(|for_so_long| *for_so_long >= SILENT);
    let mut view = View {
        at_ns: said.at_ns,
        age_ns: ns(said.age),
        silent_ns: silent.map_or(0, ns),
        manager_pid: said.pid,
        manager_state: silent.map_or(State::Runs, |_| state(said.pid)),
        left_out: said.left_out,
        span_ns,
        manager: None,
        domains: Vec::new(),
        pools: Vec::new(),
        heaps: Vec::new(),
        channels: Vec::new(),
        blocked: Vec::new(),
        holders: Vec::new(),
    };
    for record in &said.records {
        match record {
            StatRecord::Manager(m) => view.manager = Some(m.clone()),
            StatRecord::Domain(d) => view.domains.push(domain_row(d)),
            StatRecord::Pool(p) => {
                let old = before.pools.get(&p.pool);
                view.pools.push(pool_row(p, old, span_ns, &names));
            }
            StatRecord::Heap(h) => view.heaps.push(h.clone()),
            StatRecord::Channel(c) => {
                let old = before.channels.get(&channel_key(c));
                view.channels.push(channel_row(c, old, span_ns, &names));
            }
            // A domain that reads a pool without holding anything is counted with the pool's readers.
            StatRecord::Hold(h) if h.buffers == 0 => {}
            StatRecord::Hold(h) => view.holders.push(Holder {
                stat: h.clone(),
                label: names.domain(h.domain),
                pool_label: names.pool(h.pool),
                writer_label: names.writer(h.pool),
            }),
        }
    }
    view.blocked = blocked(&view);
    sum_up(&mut view);
    view
}

fn domain_row(d: &DomainStat) -> DomainRow {
    DomainRow {
        label: label(&d.name, d.domain.0),
        stat: d.clone(),
        ..DomainRow::default()
    }
}

fn pool_row(p: &PoolStat, old: Option<&PoolStat>, span_ns: u64, names: &Names) -> PoolRow {
    let span_ns = if old.is_some() { span_ns } else { 0 };
    let old = old.unwrap_or(p);
    PoolRow {
        label: names.pool(p.pool),
        writer_label: names.domain(p.writer) + if p.writer_alive { "" } else { " (dead)" },
        allocs_per_s: per_second(p.allocs, old.allocs, span_ns),
        blocked_callers: per_second(p.blocked_ns, old.blocked_ns, span_ns) / 1e9,
        stat: p.clone(),
    }
}

fn channel_row(
    c: &ChannelStat,
    old: Option<&ChannelStat>,
    span_ns: u64,
    names: &Names,
) -> ChannelRow {
    let span_ns = if old.is_some() { span_ns } else { 0 };
    let old = old.unwrap_or(c);
    let sent = |c: &ChannelStat| c.taken.saturating_add(c.depth);
    // A wait that is not over counts, too.
    let stalled = |c: &ChannelStat| c.stalled_ns.saturating_add(c.waiting_ns);
    let share = per_second(stalled(c), stalled(old), span_ns) / 1e9;
    let missing = || match &c.place {
        Some(place) => shown(place).into_owned(),
        None if c.waiting_as.is_some() => "(not exported yet)".to_owned(),
        None => "(nobody)".to_owned(),
    };
    let end = |d: Option<DomainId>| d.map_or_else(missing, |d| names.domain(d));
    ChannelRow {
        label: match c.channel.0 {
            0 => shown(&c.name).into_owned(),
            id => label(&c.name, id),
        },
        source_label: end(c.source),
        sink_label: end(c.sink),
        sent_per_s: per_second(sent(c), sent(old), span_ns),
        taken_per_s: per_second(c.taken, old.taken, span_ns),
        stalls_per_s: per_second(c.stalls, old.stalls, span_ns),
        stalled_share: share.clamp(0.0, 1.0),
        stat: c.clone(),
    }
}

/// Returns which callers wait on which domains. A caller that waits for memory waits on the holders of the pool's
/// buffers, oldest first, or on the pool's quota. A caller that waits for room waits on the receiver that takes nothing
/// out of the channel.
fn blocked(view: &View) -> Vec<Blocked> {
    let mut all = Vec::new();
    for p in view.pools.iter().filter(|p| p.stat.waiters > 0) {
        let s = &p.stat;
        let mut holders: Vec<&Holder> = view
            .holders
            .iter()
            .filter(|h| h.stat.pool == s.pool)
            .collect();
        holders.sort_by_key(|h| std::cmp::Reverse(h.stat.held_ms));
        let named = holders.iter().take(NAMED).map(|h| {
            let had = &h.stat;
            let (n, bytes) = (had.buffers, size(had.bytes));
            format!(
                "{} has {}, {bytes}, for {}",
                h.label,
                count(n.into(), "buffer"),
                time(h.oldest_ns())
            )
        });
        let mut on: Vec<String> = named.collect();
        if holders.len() > NAMED {
            on.push(format!("{} more", holders.len() - NAMED));
        }
        on.extend(underway(view, s.pool));
        if s.granted_bytes.saturating_add(s.chunk_bytes) > s.quota_bytes {
            on.push(format!("its quota, {}", size(s.quota_bytes)));
        } else if on.is_empty() {
            on.push("memory in all".to_owned());
        }
        all.push(Blocked {
            domain: Some(s.writer),
            label: p.writer_label.clone(),
            callers: s.waiters,
            wants: format!("memory of {}", p.label),
            pool: Some(s.pool),
            channel: None,
            waiting_ns: s.waiting_ns,
            on,
        });
    }
    for c in view.channels.iter().filter(|c| c.stat.waiting_ns > 0) {
        let s = &c.stat;
        let how = match c.stat.sink_asleep {
            true => " (asleep)",
            false => "",
        };
        let sink = view.domains.iter().find(|d| Some(d.stat.domain) == s.sink);
        let process = sink.map_or(String::new(), |d| format!(" (process {})", d.stat.pid));
        let behind = match s.behind_ns {
            0 => String::new(),
            ns => format!(", none for {}", time(ns)),
        };
        all.push(Blocked {
            domain: s.source,
            label: c.source_label.clone(),
            callers: 1,
            wants: format!("room in {}", c.label),
            pool: None,
            channel: Some(s.channel.0),
            waiting_ns: c.stat.waiting_ns,
            on: vec![format!(
                "{}{process}{how} has {} to take{behind}",
                c.sink_label, c.stat.depth
            )],
        });
    }
    all
}

/// Returns the receivers that have not taken what was sent over channels of a pool, the one with the most first.
fn underway(view: &View, pool: PoolId) -> Vec<String> {
    let of = |c: &&ChannelRow| c.stat.depth > 0 && c.stat.pools.contains(&pool);
    let mut channels: Vec<&ChannelRow> = view.channels.iter().filter(of).collect();
    channels.sort_by_key(|c| std::cmp::Reverse(c.stat.depth));
    let named = channels.iter().take(NAMED);
    let named = named.map(|c| {
        format!(
            "{} has {} to take from {}",
            c.sink_label, c.stat.depth, c.label
        )
    });
    named.collect()
}

/// Adds up what domains have, from their pools, channels and holdings.
fn sum_up(view: &mut View) {
    let mut index: HashMap<DomainId, DomainRow> = HashMap::new();
    let order: Vec<DomainId> = view.domains.iter().map(|d| d.stat.domain).collect();
    for row in view.domains.drain(..) {
        index.insert(row.stat.domain, row);
    }
    for p in &view.pools {
        if let Some(d) = index.get_mut(&p.stat.writer) {
            d.pools += 1;
            d.granted_bytes += p.stat.granted_bytes;
            d.live_bytes += p.stat.live_bytes;
        }
    }
    for h in &view.heaps {
        if let Some(d) = index.get_mut(&h.owner) {
            d.granted_bytes += h.admitted_bytes;
        }
    }
    for c in view
        .channels
        .iter()
        .filter(|c| c.stat.exported_as.is_none())
    {
        let s = &c.stat;
        if let Some(d) = s.source.and_then(|id| index.get_mut(&id)) {
            d.sources += 1;
            d.sent_per_s += c.sent_per_s;
        }
        if let Some(d) = s.sink.and_then(|id| index.get_mut(&id)) {
            d.sinks += 1;
            d.taken_per_s += c.taken_per_s;
        }
    }
    for h in &view.holders {
        if let Some(d) = index.get_mut(&h.stat.domain) {
            d.held_bytes += h.stat.bytes;
        }
    }
    for b in &view.blocked {
        if let Some(d) = b.domain.and_then(|id| index.get_mut(&id)) {
            d.waiting += b.callers;
        }
    }
    view.domains = order.iter().filter_map(|id| index.remove(id)).collect();
}

impl View {
    /// Returns the open channels: not names that are offered or waited for, which have rows of their own.
    pub fn open_channels(&self) -> usize {
        let open = self.channels.iter().filter(|c| c.stat.channel.0 != 0);
        open.count()
    }

    /// Returns one line about the manager; `true`: it is silent.
    pub fn headline(&self) -> (String, bool) {
        let pid = self.manager_pid;
        if self.silent_ns > 0 {
            let how = match self.manager_state {
                State::Runs => "",
                State::Stopped => " (its process is stopped)",
                State::Ended => " (its process has ended)",
            };
            let (silent, age) = (time(self.silent_ns), time(self.age_ns));
            let text = format!(
                "the manager, process {pid}, has been silent for {silent}{how}; this is what was last true, {age} ago"
            );
            return (text, true);
        }
        let Some(m) = &self.manager else {
            return (format!("manager, process {pid}"), false);
        };
        let channels = self.open_channels();
        let of = |list: usize, what: &str| count(list as u64, what);
        let mut text = format!(
            "manager {pid}, up {}: granted {} of {}, stranded {}; {}, {}, {}, {}, {}",
            time(m.uptime_s.saturating_mul(1_000_000_000)),
            size(m.granted_bytes),
            size(m.total_bytes),
            size(m.stranded_bytes),
            of(self.domains.len(), "domain"),
            of(self.pools.len(), "pool"),
            of(channels, "channel"),
            of(self.channels.len() - channels, "name"),
            waiting(self.blocked.iter().map(|b| b.callers).sum()),
        );
        if self.left_out > 0 {
            text += &format!("; {} entries are left out", self.left_out);
        }
        (text, false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_two_pages() {
        let mut before = Before::default();
        let first = before.view(&sample::snapshot(1));
        assert_eq!((first.span_ns, first.channels[0].sent_per_s), (0, 0.0));
        let second = before.view(&sample::snapshot(3));
        assert_eq!(second.span_ns, 2_000_000_000);
        let c = &second.channels[0];
        assert_eq!(
            (c.taken_per_s, c.sent_per_s, c.stalls_per_s),
            (100.0, 100.0, 1.0)
        );
        assert!((c.stalled_share - 0.25).abs() < 1e-9);
        assert_eq!(second.pools[0].allocs_per_s, 50.0);
        // The same page once more, as of a manager that hangs.
        let third = before.view(&sample::snapshot(3));
        assert_eq!(third.channels[0].taken_per_s, 100.0);
        // Another manager's numbers are not compared with this one's.
        let mut other = sample::snapshot(4);
        other.instance += 1;
        assert_eq!(before.view(&other).span_ns, 0);
    }

    #[test]
    fn who_waits_waits_on_somebody() {
        let view = Before::default().view(&sample::snapshot(1));
        let [memory, room] = &view.blocked[..] else {
            panic!("{:?}", view.blocked);
        };
        assert_eq!((memory.label.as_str(), memory.callers), ("camera#1", 2));
        assert_eq!(memory.wants, "memory of frames#7");
        assert!(
            memory.on[0].starts_with("viewer#2 has 3 buffers"),
            "{:?}",
            memory.on
        );
        assert_eq!(memory.on[1], "viewer#2 has 16 to take from video#3");
        assert_eq!(memory.on[2], "its quota, 4.0 MiB");
        assert_eq!(room.wants, "room in video#3");
        assert_eq!(room.on, ["viewer#2 (process 102) has 16 to take"]);
        let camera = &view.domains[0];
        assert_eq!((camera.pools, camera.waiting, camera.sources), (1, 3, 1));
        assert_eq!(view.domains[1].held_bytes, 3 << 20);
    }

    #[test]
    fn a_subscriber_that_holds_a_publisher_back_is_named_with_its_time() {
        let mut said = sample::snapshot(1);
        for record in &mut said.records {
            if let StatRecord::Channel(c) = record {
                c.behind_ns = 2_500_000_000;
            }
        }
        let view = Before::default().view(&said);
        assert_eq!(
            view.blocked[1].on,
            ["viewer#2 (process 102) has 16 to take, none for 2.5 s"]
        );
    }

    #[test]
    fn one_is_no_plural_and_a_name_is_no_channel() {
        let mut said = sample::snapshot(1);
        let text = Before::default().view(&said).headline().0;
        let words = "2 domains, 1 pool, 1 channel, 0 names, 3 callers wait";
        assert!(text.contains(words), "{text}");
        for record in &mut said.records {
            if let StatRecord::Channel(c) = record {
                c.channel.0 = 0;
            }
        }
        let view = Before::default().view(&said);
        let text = view.headline().0;
        assert!(text.contains("0 channels, 1 name, "), "{text}");
        // The tab has the same number, and so does the page of `tranship metrics`.
        assert_eq!((view.open_channels(), view.channels.len()), (0, 1));
    }

    #[test]
    fn who_is_silent_is_said_to_be() {
        let mut said = sample::snapshot(1);
        said.silent = Some(Duration::from_millis(3200));
        said.pid = std::process::id();
        let (text, silent) = Before::default().view(&said).headline();
        assert!(
            silent && text.contains("has been silent for 3.2 s"),
            "{text}"
        );
        said.silent = Some(Duration::from_millis(200));
        assert!(!Before::default().view(&said).headline().1);
    }
}
