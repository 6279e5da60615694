//! All about one domain, pool or channel, as lines; some lead on to the object that they name.

use super::grid::Id;
use super::view::{ChannelRow, PoolRow, View};
use crate::commands::figures;
use crate::commands::words::{count, rate, share, time, waiting};
use crate::output::size;
use tranship_proto::{DomainId, PoolId, Record};

/// Figures on a line.
const ON_A_LINE: usize = 5;

/// A line, and the object that Enter on it shows.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entry {
    pub text: String,
    pub to: Option<Id>,
    pub heading: bool,
}

#[derive(Default)]
struct Page(Vec<Entry>);

impl Page {
    fn heading(&mut self, text: &str) {
        self.0.push(Entry {
            text: text.to_owned(),
            to: None,
            heading: true,
        });
    }
    fn line(&mut self, text: String) {
        self.0.push(Entry {
            text,
            to: None,
            heading: false,
        });
    }
    fn to(&mut self, text: String, id: Id) {
        self.0.push(Entry {
            text,
            to: Some(id),
            heading: false,
        });
    }
    /// All figures of a record that are there, some on a line.
    fn figures(&mut self, record: &dyn Record) {
        for some in figures::lines(record).chunks(ON_A_LINE) {
            self.line(some.join(", "));
        }
    }
    fn section(&mut self, text: &str, lines: Vec<(String, Option<Id>)>) {
        if lines.is_empty() {
            return;
        }
        self.heading(text);
        for (text, to) in lines {
            match to {
                Some(id) => self.to(text, id),
                None => self.line(text),
            }
        }
    }
}

fn channel_id(c: &ChannelRow) -> Id {
    let s = &c.stat;
    Id::Channel(s.channel.0, s.source, s.sink, s.name.clone())
}

fn channel_text(c: &ChannelRow) -> String {
    format!(
        "{}: {} -> {}, {}/s, {} of {} lines, {} stalls/s",
        c.label,
        c.source_label,
        c.sink_label,
        rate(c.taken_per_s),
        c.stat.depth,
        c.stat.lines,
        rate(c.stalls_per_s),
    )
}

fn pool_text(p: &PoolRow) -> String {
    let s = &p.stat;
    format!(
        "{} of {}: {} live, {} granted of {}, {}",
        p.label,
        p.writer_label,
        size(s.live_bytes),
        size(s.granted_bytes),
        size(s.quota_bytes),
        waiting(s.waiters),
    )
}

/// Returns what the page says of an object; nothing, if it is not there any more.
pub(super) fn about(view: &View, id: &Id) -> Vec<Entry> {
    let mut page = Page::default();
    match id {
        Id::Domain(id) => domain(view, *id, &mut page),
        Id::Pool(id) => pool(view, *id, &mut page),
        Id::Heap(id) => heap(view, *id, &mut page),
        Id::Channel(..) => channel(view, id, &mut page),
        Id::Blocked(who, wants) => blocked(view, who, wants, &mut page),
        Id::Holder(domain, pool) => holder(view, *domain, *pool, &mut page),
    }
    page.0
}

fn domain(view: &View, id: DomainId, page: &mut Page) {
    let Some(d) = view.domains.iter().find(|d| d.stat.domain == id) else {
        return;
    };
    page.heading(&format!("domain {}", d.label));
    page.line(format!(
        "holds {} of others', sends {}/s, takes {}/s",
        size(d.held_bytes),
        rate(d.sent_per_s),
        rate(d.taken_per_s)
    ));
    page.figures(&d.stat);
    let waits = view.blocked.iter().filter(|b| b.domain == Some(id));
    page.section("waits for", waits.map(blocked_entry).collect());
    let pools = view.pools.iter().filter(|p| p.stat.writer == id);
    let pools = pools.map(|p| (pool_text(p), Some(Id::Pool(p.stat.pool))));
    page.section("writes pools", pools.collect());
    let heaps = view.heaps.iter().filter(|h| h.owner == id);
    let heaps = heaps.map(|h| {
        let text = format!(
            "{}: {} of {}",
            h.name,
            size(h.admitted_bytes),
            size(h.quota_bytes)
        );
        (text, Some(Id::Heap(h.heap)))
    });
    page.section("heaps", heaps.collect());
    let of = |end: fn(&ChannelRow) -> Option<DomainId>| {
        let own = view.channels.iter().filter(|c| end(c) == Some(id));
        own.map(|c| (channel_text(c), Some(channel_id(c))))
            .collect()
    };
    page.section("sends over", of(|c| c.stat.source));
    page.section("receives over", of(|c| c.stat.sink));
    let holds = view.holders.iter().filter(|h| h.stat.domain == id);
    let holds = holds.map(|h| (held(&h.pool_label, h), Some(Id::Pool(h.stat.pool))));
    page.section("holds", holds.collect());
}

fn held(what: &str, h: &super::view::Holder) -> String {
    let (n, bytes) = (h.stat.buffers, size(h.stat.bytes));
    let oldest = time(h.oldest_ns());
    format!(
        "{what}: {}, {bytes}; the oldest, {}, for {oldest}",
        count(n.into(), "buffer"),
        size(h.stat.oldest_bytes)
    )
}

fn blocked_entry(b: &super::view::Blocked) -> (String, Option<Id>) {
    let text = format!(
        "{}: {}, for {}; on {}",
        b.wants,
        count(b.callers, "caller"),
        time(b.waiting_ns),
        b.on.join("; ")
    );
    (text, b.pool.map(Id::Pool))
}

fn pool(view: &View, id: PoolId, page: &mut Page) {
    let Some(p) = view.pools.iter().find(|p| p.stat.pool == id) else {
        return;
    };
    let s = &p.stat;
    page.heading(&format!("pool {}", p.label));
    page.to(format!("writer {}", p.writer_label), Id::Domain(s.writer));
    page.line(format!("{} allocs/s", rate(p.allocs_per_s)));
    page.figures(s);
    let waits = view.blocked.iter().filter(|b| b.pool == Some(id));
    let waits = waits.map(|b| {
        let text = format!("{}, for {}", count(b.callers, "caller"), time(b.waiting_ns));
        (format!("{text}; on {}", b.on.join("; ")), None)
    });
    page.section("who waits", waits.collect());
    let mut holders: Vec<_> = view.holders.iter().filter(|h| h.stat.pool == id).collect();
    holders.sort_by_key(|h| std::cmp::Reverse(h.stat.held_ms));
    let holders = holders.into_iter();
    let holders = holders.map(|h| (held(&h.label, h), Some(Id::Domain(h.stat.domain))));
    page.section("who holds buffers", holders.collect());
    let over = view.channels.iter().filter(|c| c.stat.pools.contains(&id));
    let over = over.map(|c| (channel_text(c), Some(channel_id(c))));
    page.section("is sent over", over.collect());
}

fn heap(view: &View, id: PoolId, page: &mut Page) {
    let Some(h) = view.heaps.iter().find(|h| h.heap == id) else {
        return;
    };
    page.heading(&format!("heap {}#{}", h.name, id.0));
    page.to(format!("owner #{}", h.owner.0), Id::Domain(h.owner));
    page.figures(h);
}

fn channel(view: &View, id: &Id, page: &mut Page) {
    let Some(c) = view.channels.iter().find(|c| channel_id(c) == *id) else {
        return;
    };
    let s = &c.stat;
    page.heading(&format!("channel {}", c.label));
    for (what, label, end) in [
        ("from", &c.source_label, s.source),
        ("to", &c.sink_label, s.sink),
    ] {
        match end {
            Some(domain) => page.to(format!("{what} {label}"), Id::Domain(domain)),
            None => page.line(format!("{what} {label}")),
        }
    }
    page.line(format!(
        "taken {}/s; sent {}/s; {} stalls/s; the sender waited {} of its time",
        rate(c.taken_per_s),
        rate(c.sent_per_s),
        rate(c.stalls_per_s),
        share(c.stalled_share),
    ));
    page.figures(s);
    let pools = view.pools.iter();
    let pools = pools.filter(|p| s.pools.contains(&p.stat.pool));
    let pools = pools.map(|p| (pool_text(p), Some(Id::Pool(p.stat.pool))));
    page.section("pools", pools.collect());
}

fn blocked(view: &View, who: &str, wants: &str, page: &mut Page) {
    let found = view.blocked.iter();
    let Some(b) = found
        .into_iter()
        .find(|b| b.label == who && b.wants == wants)
    else {
        return;
    };
    page.heading(&format!("{who} waits for {wants}"));
    page.line(format!(
        "{}, for {}",
        count(b.callers, "caller"),
        time(b.waiting_ns)
    ));
    for on in &b.on {
        page.line(format!("on {on}"));
    }
    if let Some(domain) = b.domain {
        page.to(format!("domain {who}"), Id::Domain(domain));
    }
    if let Some(pool) = b.pool {
        page.to("the pool".to_owned(), Id::Pool(pool));
    }
    let channels = view.channels.iter();
    let same = |c: &&ChannelRow| Some(c.stat.channel.0) == b.channel && c.stat.source == b.domain;
    if let Some(c) = channels.into_iter().find(same) {
        page.to(channel_text(c), channel_id(c));
    }
}

fn holder(view: &View, domain: DomainId, pool: PoolId, page: &mut Page) {
    let same = |h: &&super::view::Holder| h.stat.domain == domain && h.stat.pool == pool;
    let Some(h) = view.holders.iter().find(same) else {
        return;
    };
    page.heading(&format!("{} holds buffers of {}", h.label, h.pool_label));
    page.line(held("in all", h));
    page.to(format!("domain {}", h.label), Id::Domain(domain));
    page.to(format!("pool {}", h.pool_label), Id::Pool(pool));
}
