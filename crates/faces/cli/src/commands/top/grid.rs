//! The five tables: the same on the screen and in text. A cell is a text and a key to sort by.

use super::view::{Blocked, ChannelRow, DomainRow, Holder, PoolRow, View};
use crate::args::top::Tab;
use crate::commands::words::{rate, share, time};
use crate::output::size;
use std::cmp::Ordering;
use tranship_proto::{ChannelStat, DomainId, HeapStat, PoolId, PoolStat, shown};

/// Object of a line, to find it again in the next page and to show all about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Id {
    Domain(DomainId),
    Pool(PoolId),
    Heap(PoolId),
    /// Number, source, sink and name: processes number their own.
    Channel(u32, Option<DomainId>, Option<DomainId>, String),
    /// A waiting caller, and what it waits for.
    Blocked(String, String),
    Holder(DomainId, PoolId),
}

/// A cell.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
    pub text: String,
    /// Number to sort by; `None`: sorted by its text.
    pub number: Option<f64>,
    pub bar: Option<Bar>,
}

/// Use of memory, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bar {
    pub live: u64,
    pub garbage: u64,
    pub cached: u64,
    pub stranded: u64,
    pub granted: u64,
    pub quota: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Line {
    pub id: Id,
    pub cells: Vec<Cell>,
    /// A caller waits.
    pub alarming: bool,
}

/// A table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Grid {
    /// Beginning with `>`: aligned to the right.
    pub heading: Vec<&'static str>,
    pub lines: Vec<Line>,
}

/// A column: its heading, and its cell in a line.
type Column<R> = (&'static str, fn(&R) -> Cell);

const DOMAINS: &[Column<DomainRow>] = &[
    (">domain", |d| count(d.stat.domain.0.into())),
    ("name", |d| text(&d.stat.name)),
    (">pid", |d| count(d.stat.pid.into())),
    (">uid", |d| count(d.stat.uid.into())),
    ("state", |d| {
        text(if d.stat.connected {
            "connected"
        } else {
            "away"
        })
    }),
    (">pools", |d| count(d.pools as u64)),
    (">granted", |d| bytes(d.granted_bytes)),
    (">live", |d| bytes(d.live_bytes)),
    (">held", |d| bytes(d.held_bytes)),
    (">stranded", |d| bytes(d.stat.stranded_bytes)),
    (">out", |d| count(d.sources as u64)),
    (">sent/s", |d| per_second(d.sent_per_s)),
    (">in", |d| count(d.sinks as u64)),
    (">taken/s", |d| per_second(d.taken_per_s)),
    (">waits", |d| count(d.waiting)),
];
const POOLS: &[Column<PoolRow>] = &[
    (">pool", |p| count(p.stat.pool.0.into())),
    ("name", |p| text(&p.stat.name)),
    ("writer", |p| text(&p.writer_label)),
    ("use", |p| Bar::of(&p.stat).cell()),
    (">live", |p| bytes(p.stat.live_bytes)),
    (">garbage", |p| bytes(p.stat.garbage_bytes)),
    (">cached", |p| bytes(p.stat.cached_bytes)),
    (">stranded", |p| bytes(p.stat.stranded_bytes)),
    (">granted", |p| bytes(p.stat.granted_bytes)),
    (">quota", |p| bytes(p.stat.quota_bytes)),
    (">allocs/s", |p| per_second(p.allocs_per_s)),
    (">blocked", |p| {
        amount(p.blocked_callers, format!("{:.2}", p.blocked_callers))
    }),
    (">waits", |p| count(p.stat.waiters)),
    (">for", |p| lasting(p.stat.waiting_ns)),
    (">readers", |p| count(p.stat.readers.into())),
];
const CHANNELS: &[Column<ChannelRow>] = &[
    (">channel", |c| match c.stat.channel.0 {
        0 => text("-"),
        id => count(id.into()),
    }),
    ("name", |c| text(&c.stat.name)),
    ("from", |c| text(&c.source_label)),
    ("to", |c| text(&c.sink_label)),
    (">rate/s", |c| per_second(c.taken_per_s)),
    (">depth", |c| count(c.stat.depth)),
    (">lines", |c| count(c.stat.lines.into())),
    (">full", |c| {
        let full = full(&c.stat);
        amount(full, share(full))
    }),
    (">stalls/s", |c| per_second(c.stalls_per_s)),
    (">stalled", |c| {
        amount(c.stalled_share, share(c.stalled_share))
    }),
    (">waits", |c| lasting(c.stat.waiting_ns)),
    (">behind", |c| lasting(c.stat.behind_ns)),
    (">taken", |c| count(c.stat.taken)),
    ("pools", |c| {
        let pools = c.stat.pools.iter().map(|p| format!("#{}", p.0));
        text(pools.collect::<Vec<_>>().join(" "))
    }),
];
const BLOCKED: &[Column<Blocked>] = &[
    ("who", |b| text(&b.label)),
    (">callers", |b| count(b.callers)),
    ("wants", |b| text(&b.wants)),
    (">for", |b| lasting(b.waiting_ns)),
    ("on", |b| text(b.on.join("; "))),
];
const HOLDERS: &[Column<Holder>] = &[
    ("holder", |h| text(&h.label)),
    ("pool", |h| text(&h.pool_label)),
    ("of", |h| text(&h.writer_label)),
    (">buffers", |h| count(h.stat.buffers.into())),
    (">bytes", |h| bytes(h.stat.bytes)),
    (">oldest", |h| lasting(h.oldest_ns())),
    (">its bytes", |h| bytes(h.stat.oldest_bytes)),
];

fn titles<R>(columns: &[Column<R>]) -> Vec<&'static str> {
    columns.iter().map(|(title, _)| *title).collect()
}

pub(super) fn heading(tab: Tab) -> Vec<&'static str> {
    match tab {
        Tab::Domains => titles(DOMAINS),
        Tab::Pools => titles(POOLS),
        Tab::Channels => titles(CHANNELS),
        Tab::Blocked => titles(BLOCKED),
        Tab::Holders => titles(HOLDERS),
    }
}

/// Titles as they are shown.
pub(super) fn title(heading: &str) -> &str {
    heading.strip_prefix('>').unwrap_or(heading)
}

/// Column to sort by, and whether the largest come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sort {
    pub column: usize,
    pub down: bool,
}

impl Sort {
    /// Returns the usual order of a tab: the most interesting lines first.
    pub fn usual(tab: Tab) -> Sort {
        let by = match tab {
            Tab::Domains => "granted",
            Tab::Pools => "granted",
            Tab::Channels => "rate/s",
            Tab::Blocked => "for",
            Tab::Holders => "oldest",
        };
        Sort::by(tab, by).unwrap_or(Sort {
            column: 0,
            down: true,
        })
    }

    /// Returns the order by a title; with a dash before it the other way round. Numbers come largest first.
    pub fn by(tab: Tab, name: &str) -> Option<Sort> {
        let (name, other) = match name.strip_prefix('-') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let found = heading(tab)
            .iter()
            .position(|h| title(h).eq_ignore_ascii_case(name));
        found.map(|column| Sort::of(tab, column, other))
    }

    pub fn of(tab: Tab, column: usize, other: bool) -> Sort {
        let number = heading(tab).get(column).is_some_and(|h| h.starts_with('>'));
        Sort {
            column,
            down: number != other,
        }
    }
}

fn text(text: impl AsRef<str>) -> Cell {
    Cell {
        text: shown(text.as_ref()).into_owned(),
        number: None,
        bar: None,
    }
}

#[allow(clippy::cast_precision_loss)] // to sort by, and for people
fn number(value: u64, text: String) -> Cell {
    Cell {
        text,
        number: Some(value as f64),
        bar: None,
    }
}

fn count(value: u64) -> Cell {
    number(value, value.to_string())
}

fn bytes(value: u64) -> Cell {
    let text = if value == 0 {
        "-".to_owned()
    } else {
        size(value)
    };
    number(value, text)
}

fn amount(value: f64, text: String) -> Cell {
    Cell {
        text,
        number: Some(value),
        bar: None,
    }
}

fn per_second(value: f64) -> Cell {
    amount(value, rate(value))
}

fn lasting(ns: u64) -> Cell {
    number(ns, time(ns))
}

/// Returns the share of a channel's lines that are full.
#[allow(clippy::cast_precision_loss)] // for people
fn full(c: &ChannelStat) -> f64 {
    match c.lines {
        0 => 0.0,
        lines => c.depth as f64 / f64::from(lines),
    }
}

fn line<R>(id: Id, alarming: bool, columns: &[Column<R>], row: &R) -> Line {
    Line {
        id,
        alarming,
        cells: columns.iter().map(|(_, cell)| cell(row)).collect(),
    }
}

fn domain_line(d: &DomainRow) -> Line {
    line(Id::Domain(d.stat.domain), d.waiting > 0, DOMAINS, d)
}

fn pool_line(p: &PoolRow) -> Line {
    line(Id::Pool(p.stat.pool), p.stat.waiters > 0, POOLS, p)
}

/// Returns a heap's line among the pools: private memory, whose use is not known.
fn heap_line(h: &HeapStat, view: &View) -> Line {
    let owner = view.domains.iter().find(|d| d.stat.domain == h.owner);
    let bar = Bar {
        granted: h.admitted_bytes,
        quota: h.quota_bytes,
        ..Bar::default()
    };
    let cell = |(title, _): &Column<PoolRow>| match *title {
        ">pool" => count(h.heap.0.into()),
        "name" => text(format!("{} (heap)", h.name)),
        "writer" => text(owner.map_or_else(|| format!("#{}", h.owner.0), |d| d.label.clone())),
        "use" => bar.cell(),
        ">granted" => bytes(h.admitted_bytes),
        ">quota" => bytes(h.quota_bytes),
        _ => text(""),
    };
    Line {
        id: Id::Heap(h.heap),
        alarming: false,
        cells: POOLS.iter().map(cell).collect(),
    }
}

fn channel_line(c: &ChannelRow) -> Line {
    let s = &c.stat;
    let id = Id::Channel(s.channel.0, s.source, s.sink, s.name.clone());
    line(id, s.waiting_ns > 0, CHANNELS, c)
}

fn blocked_line(b: &Blocked) -> Line {
    let id = Id::Blocked(b.label.clone(), b.wants.clone());
    line(id, true, BLOCKED, b)
}

fn holder_line(h: &Holder) -> Line {
    line(Id::Holder(h.stat.domain, h.stat.pool), false, HOLDERS, h)
}

fn order(a: Option<&Cell>, b: Option<&Cell>) -> Ordering {
    let (Some(a), Some(b)) = (a, b) else {
        return a.is_some().cmp(&b.is_some());
    };
    match (a.number, b.number) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a_number, b_number) => a_number
            .is_some()
            .cmp(&b_number.is_some())
            .then_with(|| a.text.cmp(&b.text)),
    }
}

impl Grid {
    /// Returns a table of the lines that contain the filter's text, sorted; equal lines stay in the order of the page.
    pub fn of(view: &View, tab: Tab, filter: &str, sort: Sort) -> Grid {
        let mut lines: Vec<Line> = match tab {
            Tab::Domains => view.domains.iter().map(domain_line).collect(),
            Tab::Pools => {
                let heaps = view.heaps.iter().map(|h| heap_line(h, view));
                view.pools.iter().map(pool_line).chain(heaps).collect()
            }
            Tab::Channels => view.channels.iter().map(channel_line).collect(),
            Tab::Blocked => view.blocked.iter().map(blocked_line).collect(),
            Tab::Holders => view.holders.iter().map(holder_line).collect(),
        };
        let filter = filter.to_lowercase();
        if !filter.is_empty() {
            let has = |cell: &Cell| cell.text.to_lowercase().contains(&filter);
            lines.retain(|line| line.cells.iter().any(has));
        }
        lines.sort_by(|a, b| {
            let (a, b) = (a.cells.get(sort.column), b.cells.get(sort.column));
            match sort.down {
                true => order(b, a),
                false => order(a, b),
            }
        });
        Grid {
            heading: heading(tab),
            lines,
        }
    }
}

impl Bar {
    fn of(p: &PoolStat) -> Bar {
        Bar {
            live: p.live_bytes,
            garbage: p.garbage_bytes,
            cached: p.cached_bytes,
            stranded: p.stranded_bytes,
            granted: p.granted_bytes,
            quota: p.quota_bytes,
        }
    }

    fn cell(self) -> Cell {
        Cell {
            bar: Some(self),
            ..text(self.draw(10))
        }
    }

    /// Returns the parts of the bar. The whole is the quota, or the memory that is there if that is more: `#` live, `g`
    /// garbage, `c` cached, `+` granted for nothing of these, `s` stranded.
    pub fn parts(self) -> ([(char, u64); 5], u64) {
        let used = self
            .live
            .saturating_add(self.garbage)
            .saturating_add(self.cached);
        let rest = self.granted.saturating_sub(used);
        let parts = [
            ('#', self.live),
            ('g', self.garbage),
            ('c', self.cached),
            ('+', rest),
            ('s', self.stranded),
        ];
        let sum = parts
            .iter()
            .fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
        (parts, sum.max(self.quota))
    }

    /// Draws it as text of a width.
    pub fn draw(self, width: usize) -> String {
        let mut text = String::new();
        for (letter, cells) in self.cells(width) {
            text.extend(std::iter::repeat_n(letter, cells));
        }
        text
    }

    /// Returns how many cells each part has; the rest is `.`.
    pub fn cells(self, width: usize) -> Vec<(char, usize)> {
        let (parts, whole) = self.parts();
        let whole = u128::from(whole.max(1));
        let (mut sum, mut drawn, mut cells) = (0u128, 0, Vec::new());
        for (letter, bytes) in parts {
            sum += u128::from(bytes);
            let to = usize::try_from((sum * width as u128).div_ceil(whole)).unwrap_or(width);
            let to = to.min(width);
            cells.push((letter, to - drawn));
            drawn = to;
        }
        cells.push(('.', width - drawn));
        cells.retain(|(_, n)| *n > 0);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::super::view::Before;
    use super::*;
    use tranship_proto::StatRecord;

    fn view() -> View {
        let mut said = sample::snapshot(1);
        let mut other = sample::channel(1, 4, "audio");
        other.taken = 5;
        said.records.push(StatRecord::Channel(other));
        Before::default().view(&said)
    }

    #[test]
    fn every_line_has_a_cell_for_each_heading() {
        for tab in Tab::ALL {
            let grid = Grid::of(&view(), tab, "", Sort::usual(tab));
            assert!(!grid.lines.is_empty(), "{tab:?}");
            let counts = grid.lines.iter().map(|l| l.cells.len());
            assert!(
                counts.into_iter().all(|n| n == grid.heading.len()),
                "{tab:?}"
            );
        }
    }

    #[test]
    fn lines_are_sorted_and_filtered() {
        let names = |filter: &str, sort: &str| {
            let sort = Sort::by(Tab::Channels, sort).expect("a column");
            let grid = Grid::of(&view(), Tab::Channels, filter, sort);
            let names = grid.lines.iter().map(|l| l.cells[1].text.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names("", "taken"), ["video", "audio"]);
        assert_eq!(names("", "-taken"), ["audio", "video"]);
        assert_eq!(names("", "name"), ["audio", "video"]);
        assert_eq!(names("", "-NAME"), ["video", "audio"]);
        assert_eq!(names("VID", "name"), ["video"]);
        assert_eq!(names("nothing", "name"), [""; 0]);
        assert_eq!(Sort::by(Tab::Channels, "price"), None);
    }

    #[test]
    fn a_bar_shows_every_part_and_never_more_than_its_width() {
        let mib = 1 << 20;
        let bar = Bar {
            live: 4 * mib,
            garbage: mib,
            cached: mib,
            stranded: 2 * mib,
            granted: 7 * mib,
            quota: 16 * mib,
        };
        assert_eq!(bar.draw(16), "####gc+ss.......");
        assert_eq!(Bar::default().draw(4), "....");
        let full = Bar {
            live: u64::MAX,
            stranded: u64::MAX,
            ..bar
        };
        for width in 0..20 {
            assert_eq!(full.draw(width).chars().count(), width);
            assert_eq!(bar.draw(width).chars().count(), width);
        }
    }
}
