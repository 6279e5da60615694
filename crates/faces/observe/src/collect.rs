//! Records become series.
//!
//! A series goes by the names of objects, not by their numbers: programs that come and go under one name are one series
//! over time. The number of series is bounded whatever clients do: of each sort the [`SHOWN`] largest objects are shown
//! by name, all others in one series whose labels say `(others)`.

use crate::families::{
    self, BUILD, CHANNELS, DOMAIN_COUNT, DOMAINS, Family, HEAPS, LOOK, OMITTED, POOL_ORPHANED,
    POOLS, SHARED, UP,
};
use crate::look::Snapshot;
use crate::tally::{Labels, Tally};
use std::collections::{BTreeMap, HashMap, HashSet};
use tranship_proto::{
    ChannelStat, DomainId, DomainStat, HeapStat, HoldStat, Kind, ManagerStat, PoolId, PoolStat,
    Record, StatRecord, Unit, Value, shown,
};

/// Most objects of each sort.
pub(crate) const SHOWN: usize = 500;
/// Label of the sum of the others.
const OTHERS: &str = "(others)";
/// The longest value of a label, bytes; a carried channel's may be 400 long.
const LONGEST: usize = 128;

/// Samples by family and labels.
#[derive(Debug, Default)]
pub(crate) struct Samples(pub BTreeMap<&'static str, BTreeMap<Labels, f64>>);

impl Samples {
    fn add(&mut self, family: &Family, values: &[&str], value: f64) {
        *self.at(family, labels(family, values)) += value;
    }

    fn raise(&mut self, family: &Family, values: &[&str], value: f64) {
        let at = self.at(family, labels(family, values));
        *at = at.max(value);
    }

    fn at(&mut self, family: &Family, labels: Labels) -> &mut f64 {
        let series = self.0.entry(family.name).or_default();
        series.entry(labels).or_insert(0.0)
    }
}

fn labels(family: &Family, values: &[&str]) -> Labels {
    debug_assert_eq!(family.labels.len(), values.len(), "{}", family.name);
    let both = family.labels.iter().zip(values);
    both.map(|(name, value)| (*name, tame(value))).collect()
}

/// Returns a client's name as a label: safe to show, and not too long.
fn tame(value: &str) -> String {
    let mut tamed: String = shown(value).into_owned();
    if tamed.len() > LONGEST {
        tamed.truncate(
            (0..=LONGEST - 3)
                .rev()
                .find(|at| tamed.is_char_boundary(*at))
                .unwrap_or(0),
        );
        tamed.push('…');
    }
    tamed
}

/// Returns the largest of a sort.
fn largest<T, K: std::hash::Hash + Eq + Ord + Copy>(
    all: &[&T],
    rank: impl Fn(&T) -> (u64, K),
) -> HashSet<K> {
    let mut ranked: Vec<_> = all.iter().map(|t| rank(t)).collect();
    ranked.sort_by(|(a, i), (b, j)| b.cmp(a).then(i.cmp(j)));
    ranked.into_iter().take(SHOWN).map(|(_, id)| id).collect()
}

#[allow(clippy::cast_precision_loss)] // above 2^53 bytes, or nanoseconds in 104 days: text has 16 digits
fn float(n: u64) -> f64 {
    n as f64
}

/// Names of domains and pools by number.
struct Names<'a> {
    domains: HashMap<DomainId, &'a str>,
    pools: HashMap<PoolId, &'a str>,
    shown_domains: HashSet<DomainId>,
    shown_pools: HashSet<PoolId>,
}

impl<'a> Names<'a> {
    fn domain(&self, id: DomainId) -> &'a str {
        match self.domains.get(&id) {
            Some(_) if !self.shown_domains.contains(&id) => OTHERS,
            Some(name) => name,
            // Ended, and its objects live on.
            None => "",
        }
    }

    fn end(&self, id: Option<DomainId>) -> &'a str {
        id.map_or("", |id| self.domain(id))
    }
}

#[derive(Default)]
struct Sorted<'a> {
    manager: Option<&'a ManagerStat>,
    domains: Vec<&'a DomainStat>,
    pools: Vec<&'a PoolStat>,
    heaps: Vec<&'a HeapStat>,
    channels: Vec<&'a ChannelStat>,
    holds: Vec<&'a HoldStat>,
}

fn sort(records: &[StatRecord]) -> Sorted<'_> {
    let mut s = Sorted::default();
    for record in records {
        #[allow(clippy::match_wildcard_for_single_variants)]
        match record {
            StatRecord::Manager(m) => s.manager = Some(m),
            StatRecord::Domain(d) => s.domains.push(d),
            StatRecord::Pool(p) => s.pools.push(p),
            StatRecord::Heap(h) => s.heaps.push(h),
            StatRecord::Channel(c) => s.channels.push(c),
            // A domain that reads and holds nothing is in the pool's readers.
            StatRecord::Hold(h) if h.buffers > 0 => s.holds.push(h),
            StatRecord::Hold(_) => {}
        }
    }
    s
}

/// Returns all samples of a look; of a failed look hardly any.
pub(crate) fn collect(looked: Result<&Snapshot, &str>, tally: &mut Tally) -> Samples {
    let mut out = Samples::default();
    out.add(&BUILD, &[env!("CARGO_PKG_VERSION")], 1.0);
    out.add(&UP, &[], f64::from(u8::from(looked.is_ok())));
    let Ok(snapshot) = looked else {
        return out;
    };
    out.add(&LOOK, &[], snapshot.took.as_secs_f64());
    let s = sort(&snapshot.records);
    let made = |d: &DomainStat| d.data_bytes + d.table_bytes + d.ring_bytes + d.stranded_bytes;
    let names = Names {
        domains: s
            .domains
            .iter()
            .map(|d| (d.domain, d.name.as_str()))
            .collect(),
        pools: s.pools.iter().map(|p| (p.pool, p.name.as_str())).collect(),
        shown_domains: largest(&s.domains, |d| (made(d), d.domain)),
        shown_pools: largest(&s.pools, |p| (p.granted_bytes.max(p.data_bytes), p.pool)),
    };
    tally.begin(s.manager.map_or(0, |m| m.instance));
    if let Some(m) = s.manager {
        add(&mut out, tally, ("manager", 0), m, &[]);
        shared(&mut out, m);
    }
    counts(&mut out, &s);
    for d in &s.domains {
        of_domain(&mut out, tally, d, &names);
    }
    for p in &s.pools {
        of_pool(&mut out, tally, p, &names);
    }
    of_heaps(&mut out, tally, &s.heaps, &names);
    of_channels(&mut out, tally, &s.channels, &names);
    of_holds(&mut out, tally, &s.holds, &names);
    for ((metric, labels), value) in tally.end() {
        out.0
            .entry(metric)
            .or_default()
            .insert(labels.clone(), *value);
    }
    out
}

/// Adds a record's figures, as far as they are metrics, to the series of these labels.
fn add(
    out: &mut Samples,
    tally: &mut Tally,
    (name, object): (&str, u64),
    record: &dyn Record,
    values: &[&str],
) {
    for ((figure, value), family) in record.each().zip(families::of(name)) {
        let Some(family) = family else {
            continue;
        };
        let number = match value {
            Value::Number(number) => float(number),
            Value::Flag(flag) => f64::from(u8::from(flag)),
            _ => continue,
        };
        let value = match figure.unit() {
            Unit::Time(second) => number / float(second),
            Unit::Ppm => number / 1e6,
            Unit::Bytes | Unit::Count => number,
        };
        match figure.kind {
            Kind::Counter => tally.add(family.name, object, &labels(family, values), value),
            Kind::Most => out.raise(family, values, value),
            Kind::Gauge | Kind::Fact => out.add(family, values, value),
        }
    }
}

/// Adds all shared memory by kind.
fn shared(out: &mut Samples, m: &ManagerStat) {
    for (kind, bytes) in [
        ("data", m.data_bytes),
        ("stranded", m.stranded_bytes),
        ("tables", m.table_bytes),
        ("rings", m.ring_bytes),
        ("control_pages", m.control_page_bytes),
    ] {
        out.add(&SHARED, &[kind], float(bytes));
    }
}

/// Adds the numbers of objects; also where a number is zero.
fn counts(out: &mut Samples, s: &Sorted<'_>) {
    for d in &s.domains {
        out.add(
            &DOMAINS,
            &[if d.connected { "connected" } else { "away" }],
            1.0,
        );
    }
    for p in &s.pools {
        out.add(
            &POOLS,
            &[if p.writer_alive { "live" } else { "orphaned" }],
            1.0,
        );
    }
    for c in &s.channels {
        let state = match c {
            ChannelStat {
                waiting_as: Some(_),
                ..
            } => "waiting",
            ChannelStat {
                exported_as: Some(_),
                ..
            } => "exported",
            c if c.channel.0 == 0 => "exported",
            _ => "open",
        };
        out.add(&CHANNELS, &[state], 1.0);
    }
    for (family, states) in [
        (&DOMAINS, &["connected", "away"][..]),
        (&POOLS, &["live", "orphaned"]),
        (&CHANNELS, &["open", "exported", "waiting"]),
    ] {
        for state in states {
            out.add(family, &[state], 0.0);
        }
    }
    out.add(&HEAPS, &[], float(s.heaps.len() as u64));
    for (kind, n) in [
        ("domain", s.domains.len()),
        ("pool", s.pools.len()),
        ("heap", s.heaps.len()),
        ("channel", s.channels.len()),
        ("hold", s.holds.len()),
    ] {
        out.add(&OMITTED, &[kind], float(n.saturating_sub(SHOWN) as u64));
    }
}

fn of_domain(out: &mut Samples, tally: &mut Tally, d: &DomainStat, names: &Names<'_>) {
    let shown = names.shown_domains.contains(&d.domain);
    let uid = d.uid.to_string();
    let l = if shown {
        [d.name.as_str(), uid.as_str()]
    } else {
        [OTHERS; 2]
    };
    out.add(&DOMAIN_COUNT, &l, 1.0);
    add(out, tally, ("domain", d.domain.0.into()), d, &l);
}

fn of_pool(out: &mut Samples, tally: &mut Tally, p: &PoolStat, names: &Names<'_>) {
    let shown = names.shown_pools.contains(&p.pool);
    let l = if shown {
        [p.name.as_str(), names.domain(p.writer)]
    } else {
        [OTHERS; 2]
    };
    out.add(&POOL_ORPHANED, &l, f64::from(u8::from(!p.writer_alive)));
    add(out, tally, ("pool", p.pool.0.into()), p, &l);
}

fn of_heaps(out: &mut Samples, tally: &mut Tally, heaps: &[&HeapStat], names: &Names<'_>) {
    let shown = largest(heaps, |h| (h.admitted_bytes, h.heap));
    for &h in heaps {
        let l = match shown.contains(&h.heap) {
            true => [h.name.as_str(), names.domain(h.owner)],
            false => [OTHERS; 2],
        };
        add(out, tally, ("heap", h.heap.0.into()), h, &l);
    }
}

/// Returns a number for a channel. It is unique in its domain only if no manager brought its ends together. The sink is
/// there to the end.
fn number(c: &ChannelStat) -> u64 {
    let domain = c.sink.or(c.source).map_or(0, |d| d.0);
    u64::from(domain) << 32 | u64::from(c.channel.0)
}

fn of_channels(out: &mut Samples, tally: &mut Tally, channels: &[&ChannelStat], names: &Names<'_>) {
    let open: Vec<_> = channels
        .iter()
        .copied()
        .filter(|c| c.channel.0 != 0)
        .collect();
    let shown = largest(&open, |c| (c.taken, number(c)));
    for c in open {
        let place = c.place.as_deref().unwrap_or("");
        let end = |id: Option<DomainId>| if id.is_none() { place } else { names.end(id) };
        let l = match shown.contains(&number(c)) {
            true => [c.name.as_str(), end(c.source), end(c.sink)],
            false => [OTHERS; 3],
        };
        add(out, tally, ("channel", number(c)), c, &l);
    }
}

fn of_holds(out: &mut Samples, tally: &mut Tally, holds: &[&HoldStat], names: &Names<'_>) {
    let shown = largest(holds, |h| (h.bytes, (h.domain, h.pool)));
    for &h in holds {
        let pool = names.pools.get(&h.pool).copied().unwrap_or("");
        let l = match shown.contains(&(h.domain, h.pool)) {
            true => [names.domain(h.domain), pool],
            false => [OTHERS; 2],
        };
        let number = u64::from(h.domain.0) << 32 | u64::from(h.pool.0);
        add(out, tally, ("hold", number), h, &l);
    }
}
