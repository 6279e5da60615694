//! The names of one kind, with the domains at each, out of the manager's figures.

use super::names::Names;
use super::view::SCHEMA;
use super::words::time;
use crate::args::topic::NamesArgs;
use crate::exit::Answer;
use crate::output::{self, Table, size};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use tranship::{Error, ErrorKind};
use tranship_proto::{ChannelStat, DomainId, DomainStat, HoldStat, NameKind, PoolId, StatRecord};

/// A domain at a name.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct Member {
    pub domain: DomainId,
    /// The domain's name and number, for people.
    pub label: String,
    pub pid: u32,
    pub uid: u32,
}

/// A domain that reads.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct Reader {
    #[serde(flatten)]
    pub member: Member,
    /// Buffers of the name's pools that it keeps, as the manager last saw it.
    pub kept_buffers: u32,
    pub kept_bytes: u64,
    /// How long it has kept the oldest.
    pub held_ms: Option<u64>,
    /// Messages that it has still to take.
    pub behind: u64,
    /// How long it has taken none of these; 0: it has none to take.
    pub behind_ns: u64,
    /// How long a writer has waited for it; 0: none does.
    pub waiting_ns: u64,
}

/// A name, and who is at it.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub(super) struct Named {
    pub name: String,
    /// Domains that offer it.
    pub offered_by: Vec<Member>,
    pub readers: Vec<Reader>,
    /// Domains that ask for it, and have no writer yet.
    pub waiting: Vec<Member>,
}

/// Finds members and holds by their numbers.
struct Index<'a> {
    names: Names,
    domains: BTreeMap<DomainId, &'a DomainStat>,
    holds: BTreeMap<(DomainId, PoolId), &'a HoldStat>,
}

impl<'a> Index<'a> {
    fn of(records: &'a [StatRecord]) -> Index<'a> {
        let (mut domains, mut holds) = (BTreeMap::new(), BTreeMap::new());
        for record in records {
            match record {
                StatRecord::Domain(domain) => drop(domains.insert(domain.domain, domain)),
                StatRecord::Hold(hold) => drop(holds.insert((hold.domain, hold.pool), hold)),
                _ => {}
            }
        }
        let names = Names::of(records);
        Index {
            names,
            domains,
            holds,
        }
    }

    fn member(&self, domain: DomainId) -> Member {
        let known = self.domains.get(&domain);
        Member {
            domain,
            label: self.names.domain(domain),
            pid: known.map_or(0, |known| known.pid),
            uid: known.map_or(0, |known| known.uid),
        }
    }

    fn reader(&self, domain: DomainId, channel: &ChannelStat) -> Reader {
        let pools = channel.pools.iter();
        let holds = pools.filter_map(|pool| self.holds.get(&(domain, *pool)));
        let mut reader = Reader {
            member: self.member(domain),
            kept_buffers: 0,
            kept_bytes: 0,
            held_ms: None,
            behind: channel.depth,
            behind_ns: channel.behind_ns,
            waiting_ns: channel.waiting_ns,
        };
        for hold in holds {
            reader.kept_buffers = reader.kept_buffers.saturating_add(hold.buffers);
            reader.kept_bytes = reader.kept_bytes.saturating_add(hold.bytes);
            reader.held_ms = reader.held_ms.max(hold.held_ms);
        }
        reader
    }
}

/// Returns the names of a kind, in their order.
pub(super) fn named(records: &[StatRecord], kind: NameKind) -> Vec<Named> {
    let index = Index::of(records);
    let mut all: BTreeMap<&str, Named> = BTreeMap::new();
    for record in records {
        let StatRecord::Channel(channel) = record else {
            continue;
        };
        if channel.kind != kind {
            continue;
        }
        let at = all.entry(&channel.name).or_default();
        match channel {
            c if c.exported_as.is_some() => {
                at.offered_by
                    .extend(c.source.or(c.sink).map(|id| index.member(id)));
            }
            c if c.waiting_as.is_some() => {
                at.waiting.extend(c.sink.map(|id| index.member(id)));
            }
            c => at.readers.extend(c.sink.map(|id| index.reader(id, c))),
        }
    }
    let named = all.into_iter().map(|(name, mut named)| {
        named.name = name.to_owned();
        named
    });
    named.collect()
}

/// Returns the table of names; the columns say how writers and readers of the kind are called.
pub(super) fn table(all: &[Named], [name, writers, readers]: [&str; 3]) -> Table {
    let heading = [
        name.to_owned(),
        format!(">{writers}"),
        format!(">{readers}"),
        ">waiting".to_owned(),
    ];
    let mut table = Table::new(&heading.each_ref().map(String::as_str));
    for one in all {
        table.row(vec![
            one.name.clone(),
            one.offered_by.len().to_string(),
            one.readers.len().to_string(),
            one.waiting.len().to_string(),
        ]);
    }
    table
}

/// Returns the table of the domains at a name; the words say how writers and readers of the kind are called.
pub(super) fn members(one: &Named, [writer, reader]: [&str; 2]) -> Table {
    let heading = [
        "role",
        "domain",
        ">process",
        ">user",
        ">behind",
        ">takes none for",
        ">keeps",
        ">bytes",
        ">for",
        ">waited for",
    ];
    let mut table = Table::new(&heading);
    for member in &one.offered_by {
        table.row(cells(writer, member));
    }
    for read in &one.readers {
        let mut row = cells(reader, &read.member);
        let held_ns = read.held_ms.map_or(0, |ms| ms.saturating_mul(1_000_000));
        row.extend([read.behind.to_string(), time(read.behind_ns)]);
        row.push(read.kept_buffers.to_string());
        row.extend([size(read.kept_bytes), time(held_ns), time(read.waiting_ns)]);
        table.row(row);
    }
    for member in &one.waiting {
        table.row(cells("waiting", member));
    }
    table
}

fn cells(role: &str, member: &Member) -> Vec<String> {
    let Member {
        label, pid, uid, ..
    } = member;
    let (pid, uid) = (pid.to_string(), uid.to_string());
    vec![role.to_owned(), label.clone(), pid, uid]
}

/// Prints a list of names: as JSON, as names alone, or as a table.
pub(super) fn list<'a>(
    args: &NamesArgs,
    (word, all): (&str, &serde_json::Value),
    names: impl Iterator<Item = &'a str>,
    table: &Table,
) -> Result<Answer> {
    if args.json {
        output::json(&json!({ "schema": SCHEMA, word: all }))?;
        return Ok(Answer::Yes);
    }
    let mut out = output::stdout();
    match args.names {
        true => names
            .into_iter()
            .try_for_each(|name| writeln!(out, "{name}"))?,
        false => table.write(&mut out)?,
    }
    out.flush()?;
    Ok(Answer::Yes)
}

/// Returns the error for a topic without a publisher.
pub(super) fn no_topic(records: &[StatRecord], name: &str) -> Error {
    let kinds = [NameKind::Channel, NameKind::Queue];
    let other = kinds.into_iter().find(|kind| {
        let mut all = named(records, *kind).into_iter();
        all.any(|one| one.name == name && !one.offered_by.is_empty())
    });
    let text = match other {
        Some(kind) => format!(
            "`{name}` is the name of a {}, and not of a topic",
            kind.name()
        ),
        None => format!("no domain publishes topic `{name}`: `tranship topic ls` shows the topics"),
    };
    Error::new(ErrorKind::NoSuchName, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::{ChannelId, Role};

    #[test]
    fn a_topic_has_its_publisher_its_subscribers_and_what_they_keep() {
        let channel = |id, sink| ChannelStat {
            channel: ChannelId(id),
            name: "camera".to_owned(),
            source: Some(DomainId(1)),
            sink: Some(DomainId(sink)),
            pools: vec![PoolId(7)],
            kind: NameKind::Topic,
            ..ChannelStat::default()
        };
        let slow = ChannelStat {
            depth: 9,
            behind_ns: 700_000_000,
            ..channel(4, 2)
        };
        let alone = ChannelStat {
            exported_as: Some(Role::Source),
            sink: None,
            ..channel(0, 0)
        };
        let waits = ChannelStat {
            name: "lidar".to_owned(),
            source: None,
            waiting_as: Some(Role::Sink),
            ..channel(0, 3)
        };
        let other = ChannelStat {
            kind: NameKind::Channel,
            ..channel(9, 2)
        };
        let domain = |id, name: &str| {
            StatRecord::Domain(DomainStat {
                domain: DomainId(id),
                name: name.to_owned(),
                pid: 100 + id,
                ..DomainStat::default()
            })
        };
        let records = vec![
            domain(1, "eye"),
            domain(2, "viewer"),
            StatRecord::Channel(slow),
            StatRecord::Channel(channel(5, 3)),
            StatRecord::Channel(alone),
            StatRecord::Channel(waits),
            StatRecord::Channel(other),
            StatRecord::Hold(HoldStat {
                domain: DomainId(2),
                pool: PoolId(7),
                buffers: 3,
                bytes: 3 << 20,
                held_ms: Some(2500),
                ..HoldStat::default()
            }),
        ];
        let all = named(&records, NameKind::Topic);
        let lines = table(&all, ["topic", "publishers", "subscribers"]).lines();
        assert_eq!(
            lines[1..],
            [
                "camera           1            2        0",
                "lidar            0            0        1"
            ]
        );
        let lines = members(&all[0], ["publisher", "subscriber"]).lines();
        assert_eq!(lines.len(), 4, "{lines:#?}");
        for (line, parts) in [
            (1, ["publisher", "eye#1", "101"]),
            (2, ["viewer#2", "9        700.0 ms", "3.0 MiB"]),
            (3, ["subscriber", "#3", "0 B"]),
        ] {
            assert!(
                parts.iter().all(|part| lines[line].contains(part)),
                "{lines:#?}"
            );
        }
        assert_eq!(named(&records, NameKind::Channel).len(), 1);
    }
}
