//! The five tables: the same on the screen and in text. A cell is a text and a key to sort by.

use super::view::{Blocked, ChannelRow, DomainRow, Holder, PoolRow, View};
use super::words::{rate, share, time};
use crate::args::top::Tab;
use crate::output::size;
use std::cmp::Ordering;
use tranship_proto::{DomainId, PoolId, shown};

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
    pub heading: &'static [&'static str],
    pub lines: Vec<Line>,
}

const DOMAINS: &[&str] = &[
    ">domain",
    "name",
    ">pid",
    ">uid",
    "state",
    ">pools",
    ">granted",
    ">live",
    ">held",
    ">stranded",
    ">out",
    ">sent/s",
    ">in",
    ">taken/s",
    ">waits",
];
const POOLS: &[&str] = &[
    ">pool",
    "name",
    "writer",
    "use",
    ">live",
    ">garbage",
    ">cached",
    ">stranded",
    ">granted",
    ">quota",
    ">allocs/s",
    ">blocked",
    ">waits",
    ">for",
    ">readers",
];
const CHANNELS: &[&str] = &[
    ">channel",
    "name",
    "from",
    "to",
    ">rate/s",
    ">depth",
    ">lines",
    ">full",
    ">stalls/s",
    ">stalled",
    ">waits",
    ">taken",
    "pools",
];
const BLOCKED: &[&str] = &["who", ">callers", "wants", ">for", "on"];
const HOLDERS: &[&str] = &[
    "holder",
    "pool",
    "of",
    ">buffers",
    ">bytes",
    ">oldest",
    ">its bytes",
];

pub(super) fn heading(tab: Tab) -> &'static [&'static str] {
    match tab {
        Tab::Domains => DOMAINS,
        Tab::Pools => POOLS,
        Tab::Channels => CHANNELS,
        Tab::Blocked => BLOCKED,
        Tab::Holders => HOLDERS,
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

fn domain_line(d: &DomainRow) -> Line {
    let s = &d.stat;
    Line {
        id: Id::Domain(s.domain),
        alarming: d.waiting > 0,
        cells: vec![
            count(s.domain.0.into()),
            text(&s.name),
            count(s.pid.into()),
            count(s.uid.into()),
            text(if s.connected { "connected" } else { "away" }),
            count(d.pools as u64),
            bytes(d.granted_bytes),
            bytes(d.live_bytes),
            bytes(d.held_bytes),
            bytes(s.stranded_bytes),
            count(d.sources as u64),
            per_second(d.sent_per_s),
            count(d.sinks as u64),
            per_second(d.taken_per_s),
            count(d.waiting),
        ],
    }
}

fn pool_line(p: &PoolRow) -> Line {
    let (v, s) = (&p.view, &p.view.stat);
    let bar = Bar {
        live: v.live_bytes,
        garbage: v.garbage_bytes,
        cached: v.cached_bytes,
        stranded: s.stranded_bytes,
        granted: s.granted_bytes,
        quota: s.quota_bytes,
    };
    Line {
        id: Id::Pool(s.pool),
        alarming: v.waiters > 0,
        cells: vec![
            count(s.pool.0.into()),
            text(&s.name),
            text(&p.writer_label),
            Cell {
                bar: Some(bar),
                ..text(bar.draw(10))
            },
            bytes(v.live_bytes),
            bytes(v.garbage_bytes),
            bytes(v.cached_bytes),
            bytes(s.stranded_bytes),
            bytes(s.granted_bytes),
            bytes(s.quota_bytes),
            per_second(p.allocs_per_s),
            amount(p.blocked_callers, format!("{:.2}", p.blocked_callers)),
            count(v.waiters),
            number(v.waiting_ns, time(v.waiting_ns)),
            count(s.readers.into()),
        ],
    }
}

/// Returns a heap's line among the pools: private memory, whose use is not known.
fn heap_line(h: &tranship_proto::HeapStat, view: &View) -> Line {
    let owner = view.domains.iter().find(|d| d.stat.domain == h.owner);
    let bar = Bar {
        granted: h.admitted_bytes,
        quota: h.quota_bytes,
        ..Bar::default()
    };
    let none = || text("");
    Line {
        id: Id::Heap(h.heap),
        alarming: false,
        cells: vec![
            count(h.heap.0.into()),
            text(format!("{} (heap)", h.name)),
            text(owner.map_or_else(|| format!("#{}", h.owner.0), |d| d.label.clone())),
            Cell {
                bar: Some(bar),
                ..text(bar.draw(10))
            },
            none(),
            none(),
            none(),
            none(),
            bytes(h.admitted_bytes),
            bytes(h.quota_bytes),
            none(),
            none(),
            none(),
            none(),
            none(),
        ],
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn channel_line(c: &ChannelRow) -> Line {
    let (v, s) = (&c.view, &c.view.stat);
    let full = match s.lines {
        0 => 0.0,
        lines => v.depth as f64 / f64::from(lines),
    };
    let id = Id::Channel(s.channel.0, s.source, s.sink, s.name.clone());
    let pools: Vec<String> = s.pools.iter().map(|p| format!("#{}", p.0)).collect();
    Line {
        id,
        alarming: v.waiting_ns > 0,
        cells: vec![
            match s.channel.0 {
                0 => text("-"),
                id => count(id.into()),
            },
            text(&s.name),
            text(&c.source_label),
            text(&c.sink_label),
            per_second(c.taken_per_s),
            count(v.depth),
            count(s.lines.into()),
            amount(full, share(full)),
            per_second(c.stalls_per_s),
            amount(c.stalled_share, share(c.stalled_share)),
            number(v.waiting_ns, time(v.waiting_ns)),
            count(s.taken),
            text(pools.join(" ")),
        ],
    }
}

fn blocked_line(b: &Blocked) -> Line {
    Line {
        id: Id::Blocked(b.label.clone(), b.wants.clone()),
        alarming: true,
        cells: vec![
            text(&b.label),
            count(b.callers),
            text(&b.wants),
            number(b.waiting_ns, time(b.waiting_ns)),
            text(b.on.join("; ")),
        ],
    }
}

fn holder_line(h: &Holder) -> Line {
    let v = &h.view;
    Line {
        id: Id::Holder(v.stat.domain, v.stat.pool),
        alarming: false,
        cells: vec![
            text(&h.label),
            text(&h.pool_label),
            text(&h.writer_label),
            count(v.stat.buffers.into()),
            bytes(v.stat.bytes),
            number(v.oldest_ns, time(v.oldest_ns)),
            bytes(v.oldest_bytes),
        ],
    }
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
    use tranship_proto::PageRecord;

    fn view() -> View {
        let mut said = sample::snapshot(1);
        let mut other = sample::channel(1, 4, "audio");
        other.stat.taken = 5;
        said.records.push(PageRecord::Channel(other));
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
