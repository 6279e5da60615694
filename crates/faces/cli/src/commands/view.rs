//! Figures of the manager, for people and for programs.

use super::connect;
use super::figures;
use super::names::Names;
use crate::args::ViewArgs;
use crate::exit::Answer;
use crate::output::{self, Table, size};
use anyhow::Result;
use serde_json::json;
use std::io::{self, Write};
use tranship_observe::record_json;
use tranship_proto::{
    ChannelStat, DomainId, Figure, Kind, ManagerStat, Pressure, Record, StatRecord, Value, shown,
};

/// Version of the JSON; it rises when a field changes its meaning or leaves.
pub(super) const SCHEMA: u32 = 1;

/// Runs `tranship stat`.
pub(crate) fn stat(args: &ViewArgs) -> Result<Answer> {
    let records = connect::look(&args.connect)?.stat()?;
    if args.json {
        output::json(&stat_json(&records))?;
    } else {
        let mut out = output::stdout();
        stat_tables(&records, &mut out)?;
        out.flush()?;
    }
    Ok(Answer::Yes)
}

/// Runs `tranship ls`.
pub(crate) fn ls(args: &ViewArgs) -> Result<Answer> {
    let records = connect::look(&args.connect)?.stat()?;
    if args.json {
        let all = stat_json(&records);
        output::json(&json!({ "schema": SCHEMA, "channels": all["channels"] }))?;
    } else {
        let mut out = output::stdout();
        ls_lines(&records)
            .iter()
            .try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()?;
    }
    Ok(Answer::Yes)
}

/// Lists of records, in the order in which they are shown.
const LISTS: [&str; 5] = ["domains", "pools", "heaps", "channels", "holds"];

/// Returns all records as one object.
pub(crate) fn stat_json(records: &[StatRecord]) -> serde_json::Value {
    let mut object = json!({ "schema": SCHEMA });
    for list in LISTS {
        object[list] = json!([]);
    }
    for record in records {
        let value = record_json(record);
        match object[record.list()].as_array_mut() {
            Some(list) => list.push(value),
            None => object[record.list()] = value,
        }
    }
    object
}

/// Prints all records as tables: a column for each figure that some record has.
pub(crate) fn stat_tables(records: &[StatRecord], out: &mut impl Write) -> io::Result<()> {
    let names = Names::of(records);
    for record in records {
        if let StatRecord::Manager(m) = record {
            manager_table(m).write(out)?;
        }
    }
    for list in LISTS {
        let idle = |r: &&StatRecord| matches!(r, StatRecord::Hold(h) if h.buffers == 0);
        // A domain that reads a pool without holding anything is counted with the pool's readers.
        let rows = records.iter().filter(|r| r.list() == list && !idle(r));
        let rows: Vec<Vec<String>> = rows.map(|r| row(r, &names)).collect();
        let Some(first) = records.iter().find(|r| r.list() == list) else {
            continue;
        };
        let some = |column: usize| rows.iter().any(|row| row[column] != figures::NONE);
        let columns: Vec<_> = shown_figures(first.record()).zip(0..).collect();
        let columns: Vec<_> = columns.into_iter().filter(|(_, at)| some(*at)).collect();
        if columns.is_empty() {
            continue;
        }
        let heading = columns.iter().map(|((figure, value), _)| {
            let right = figure.kind != Kind::Fact || matches!(value, Value::Number(_));
            format!("{}{}", if right { ">" } else { "" }, figure.title())
        });
        let heading: Vec<String> = heading.collect();
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        let mut table = Table::new(&heading);
        for row in &rows {
            table.row(columns.iter().map(|(_, at)| row[*at].clone()).collect());
        }
        writeln!(out, "\n{list}")?;
        table.write(out)?;
    }
    Ok(())
}

/// Returns the figures that the manager's answer has.
fn shown_figures(record: &dyn Record) -> impl Iterator<Item = (&'static Figure, Value<'_>)> {
    record.each().filter(|(figure, _)| !figure.page_only)
}

fn manager_table(m: &ManagerStat) -> Table {
    let mut table = Table::new(&["manager", ">"]);
    for (figure, value) in shown_figures(m) {
        let text = match figure.name {
            "pressure" => outside(m),
            _ => figures::text(figure, value),
        };
        table.row(vec![figure.title().to_owned(), text]);
    }
    table.row(vec!["shared".to_owned(), size(m.shared_bytes())]);
    table
}

/// Returns a record's cells. Domains and pools have their names, but for the record's own number.
fn row(record: &StatRecord, names: &Names) -> Vec<String> {
    let own = !matches!(record, StatRecord::Hold(_));
    let cell = |(at, (figure, value)): (usize, (&Figure, Value<'_>))| match (value, record) {
        (Value::Number(0), StatRecord::Channel(_)) if at == 0 => figures::NONE.to_owned(),
        (_, StatRecord::Channel(c)) if figure.name == "source" => end(names, c.source, c),
        (_, StatRecord::Channel(c)) if figure.name == "sink" => end(names, c.sink, c),
        (Value::Domain(id), _) if !(own && at == 0) => names.domain(id),
        (Value::Pool(id), _) if !(own && at == 0) => names.pool(id),
        (Value::Pools([]), _) => figures::NONE.to_owned(),
        (Value::Pools(ids), _) => {
            let ids: Vec<String> = ids.iter().map(|id| names.pool(*id)).collect();
            ids.join(" ")
        }
        (value, _) => figures::text(figure, value),
    };
    shown_figures(record.record())
        .enumerate()
        .map(cell)
        .collect()
}

/// Returns names and channels only, one a line, without a heading: for `ls`.
pub(crate) fn ls_lines(records: &[StatRecord]) -> Vec<String> {
    let names = Names::of(records);
    let line = |record: &StatRecord| match record {
        StatRecord::Channel(c) => Some(format!(
            "{}\t{} -> {}",
            shown(&c.name),
            end(&names, c.source, c),
            end(&names, c.sink, c)
        )),
        _ => None,
    };
    records.iter().filter_map(line).collect()
}

/// Returns in words how short memory is on the machine and in its cgroups.
fn outside(m: &ManagerStat) -> String {
    let pressure = match m.pressure {
        Pressure::Unwatched => "not watched",
        Pressure::None => "none",
        Pressure::Some => "some: caches are asked for",
        Pressure::Full => "full: caches are asked for, and no pool grows",
    };
    pressure.to_owned()
}

/// Returns one end of a channel. A name that is exported, or waited for, has only one; of a carried channel the other
/// end is elsewhere.
fn end(names: &Names, domain: Option<DomainId>, channel: &ChannelStat) -> String {
    match (domain, channel.waiting_as, &channel.place) {
        (Some(domain), _, _) => names.domain(domain),
        (None, Some(_), _) => "(not exported yet)".to_owned(),
        (None, None, Some(place)) => shown(place).into_owned(),
        (None, None, None) => "(nobody)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::{
        ChannelId, DomainStat, HeapStat, HogAction, HogStat, HoldStat, PoolId, PoolStat, Role,
        Trust,
    };

    /// Returns the line of a name without a channel; the reader exports it, or waits for it.
    fn alone(name: &str, exported_as: Option<Role>, waiting_as: Option<Role>) -> StatRecord {
        StatRecord::Channel(ChannelStat {
            channel: ChannelId(0),
            name: name.to_owned(),
            source: None,
            sink: Some(DomainId(2)),
            exported_as,
            waiting_as,
            ..ChannelStat::default()
        })
    }

    fn records() -> Vec<StatRecord> {
        let (writer, reader, pool) = (DomainId(1), DomainId(2), PoolId(7));
        let domain = |id, name: &str| DomainStat {
            domain: id,
            name: name.to_owned(),
            pid: 10,
            uid: 0,
            connected: true,
            lingering_bytes: 16 << 20,
            hog: Some(HogStat {
                action: HogAction::Throttle,
                over_bytes: 8 << 20,
                since_ms: 5300,
            }),
            ..DomainStat::default()
        };
        vec![
            StatRecord::Manager(ManagerStat {
                instance: 1,
                pid: 9,
                uptime_s: 5,
                total_bytes: 1 << 30,
                granted_bytes: 64 << 20,
                data_bytes: 63 << 20,
                table_bytes: 64 << 10,
                ring_bytes: 40 << 10,
                control_page_bytes: 16 << 10,
                descriptors: 30,
                max_descriptors: 900,
                own_bytes_per_user: 32 << 20,
                longest_turn_us: 1300,
                pressure: Pressure::Full,
                limit_bytes: 512 << 20,
                ..ManagerStat::default()
            }),
            StatRecord::Domain(domain(writer, "camera")),
            StatRecord::Domain(domain(reader, "")),
            StatRecord::Pool(PoolStat {
                pool,
                name: "frames".to_owned(),
                writer,
                writer_alive: false,
                max_bytes: 1 << 28,
                quota_bytes: 1 << 28,
                granted_bytes: 64 << 20,
                chunk_bytes: 1 << 20,
                slots: 1024,
                trust: Trust::Full,
                readers: 1,
                live_bytes: 32 << 20,
                garbage_bytes: 3 << 20,
                cached_bytes: 5 << 20,
                padding_bytes: 700 << 10,
                target_ppm: Some(50_000),
                ..PoolStat::default()
            }),
            StatRecord::Heap(HeapStat {
                heap: PoolId(8),
                name: "python3".to_owned(),
                owner: reader,
                max_bytes: 1 << 40,
                quota_bytes: 256 << 20,
                admitted_bytes: 33 << 20,
                live_bytes: 30 << 20,
                ..HeapStat::default()
            }),
            StatRecord::Channel(ChannelStat {
                channel: ChannelId(3),
                name: "video".to_owned(),
                source: Some(writer),
                sink: Some(reader),
                pools: vec![pool],
                taken: 12,
                lines: 256,
                ..ChannelStat::default()
            }),
            StatRecord::Channel(ChannelStat {
                channel: ChannelId(u32::MAX),
                name: "tcp:0.0.0.0:7700/film".to_owned(),
                source: Some(writer),
                sink: None,
                taken: 3,
                place: Some("10.0.0.7:51000".to_owned()),
                ..ChannelStat::default()
            }),
            alone("audio", Some(Role::Sink), None),
            alone("film", None, Some(Role::Sink)),
            StatRecord::Hold(HoldStat {
                domain: reader,
                pool,
                buffers: 2,
                bytes: 16 << 20,
                lingering_bytes: 16 << 20,
                held_ms: Some(61_000),
                ..HoldStat::default()
            }),
        ]
    }

    #[test]
    fn tables_name_who_holds_what() {
        let mut out = Vec::new();
        stat_tables(&records(), &mut out).expect("tables");
        let text = String::from_utf8(out).expect("text");
        for part in [
            "manager\n",
            "camera#1",
            "frames#7",
            "python3",
            "33.0 MiB",
            "full: caches are asked for, and no pool grows",
            "63.1 MiB",
            "16.0 MiB",
            "action throttle, over 8.0 MiB, since 5.3 s",
            "3.0 MiB",
            "700.0 KiB",
            "61.0 s",
            "5 %",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn json_has_every_list_even_when_empty() {
        let all = stat_json(&records());
        assert_eq!(all["channels"].as_array().map(Vec::len), Some(4));
        assert_eq!(all["manager"]["pid"], 9);
        assert_eq!(all["heaps"][0]["admitted_bytes"], 33 << 20);
        assert_eq!(all["domains"][0]["hog"]["action"], "throttle");
        assert_eq!(all["holds"][0]["held_ms"], 61_000);
        assert_eq!(stat_json(&[])["holds"], json!([]));
    }

    #[test]
    fn ls_shows_who_waits() {
        assert_eq!(
            ls_lines(&records()),
            [
                "video\tcamera#1 -> #2",
                "tcp:0.0.0.0:7700/film\tcamera#1 -> 10.0.0.7:51000",
                "audio\t(nobody) -> #2",
                "film\t(not exported yet) -> #2"
            ]
        );
    }
}
