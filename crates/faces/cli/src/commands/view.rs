//! Figures of the manager, for people and for programs.

use super::connect;
use super::names::Names;
use crate::args::ViewArgs;
use crate::exit::Answer;
use crate::output::{self, Table, size};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{self, Write};
use tranship_proto::{ChannelStat, DomainId, DomainStat, ManagerStat, Pressure, StatRecord, shown};

/// Version of the JSON; it rises when a field changes its meaning or leaves.
pub(super) const SCHEMA: u32 = 1;

/// Runs `tranship stat`.
pub(crate) fn stat(args: &ViewArgs) -> Result<Answer> {
    let records = connect::look(&args.connect)?.admin().stat()?;
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
    let records = connect::look(&args.connect)?.admin().stat()?;
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

/// Returns all records as one object.
pub(crate) fn stat_json(records: &[StatRecord]) -> Value {
    let mut object = json!({ "schema": SCHEMA });
    for record in records {
        let (list, value) = match record {
            StatRecord::Manager(manager) => {
                object["manager"] = json!(manager);
                continue;
            }
            StatRecord::Domain(domain) => ("domains", json!(domain)),
            StatRecord::Pool(pool) => ("pools", json!(pool)),
            StatRecord::Channel(channel) => ("channels", json!(channel)),
            StatRecord::Hold(hold) => ("holds", json!(hold)),
            StatRecord::Heap(heap) => ("heaps", json!(heap)),
        };
        if object[list].is_null() {
            object[list] = json!([]);
        }
        if let Some(list) = object[list].as_array_mut() {
            list.push(value);
        }
    }
    for list in ["domains", "pools", "heaps", "channels", "holds"] {
        if object[list].is_null() {
            object[list] = json!([]);
        }
    }
    object
}

/// Prints all records as tables.
pub(crate) fn stat_tables(records: &[StatRecord], out: &mut impl Write) -> io::Result<()> {
    let names = Names::of(records);
    let mut domains = Table::new(&[
        ">domain",
        "name",
        ">pid",
        ">uid",
        "state",
        "dumpable",
        ">data",
        ">tables",
        ">rings",
        ">own",
        ">lingering",
        ">stranded",
        "hog",
    ]);
    let mut pools = Table::new(&[
        ">pool",
        "name",
        "writer",
        "trust",
        ">granted",
        ">quota",
        ">max",
        ">data",
        ">live",
        ">garbage",
        ">cached",
        ">padding",
        ">tables",
        ">lingering",
        ">stranded",
        ">chunk",
        ">slots",
        ">readers",
    ]);
    let mut heaps = Table::new(&[
        ">heap",
        "name",
        "owner",
        ">admitted",
        ">live",
        ">cached",
        ">quota",
        ">max",
    ]);
    let mut channels = Table::new(&[
        ">channel", "name", "from", "to", ">taken", ">lines", ">rings", "pools",
    ]);
    let mut holds = Table::new(&[
        "holder",
        "pool",
        ">buffers",
        ">bytes",
        ">lingering",
        ">oldest",
    ]);
    for record in records {
        match record {
            StatRecord::Manager(m) => writeln!(
                out,
                "manager pid {}, up {} s: granted {} of {}, stranded {}, {} of {} descriptors, \
                 at most {} of its own for each user, longest loop iteration {:.1} ms\n\
                 memory pressure: {}\n\
                 shared memory {}: data {}, stranded {}, tables {}, rings {}, control_pages {}\n",
                m.pid,
                m.uptime_s,
                size(m.granted_bytes),
                size(m.total_bytes),
                size(m.stranded_bytes),
                m.descriptors,
                m.max_descriptors,
                size(m.own_bytes_per_user),
                f64::from(u32::try_from(m.longest_turn_us).unwrap_or(u32::MAX)) / 1e3,
                outside(m),
                size(m.shared_bytes()),
                size(m.data_bytes),
                size(m.stranded_bytes),
                size(m.table_bytes),
                size(m.ring_bytes),
                size(m.control_page_bytes),
            )?,
            StatRecord::Domain(d) => domains.row(domain_row(d)),
            StatRecord::Pool(p) => pools.row(vec![
                p.pool.0.to_string(),
                p.name.clone(),
                names.domain(p.writer) + if p.writer_alive { "" } else { " (dead)" },
                p.trust.to_string(),
                size(p.granted_bytes),
                size(p.quota_bytes),
                size(p.max_bytes),
                size(p.data_bytes),
                size(p.live_bytes),
                size(p.garbage_bytes),
                size(p.cached_bytes),
                size(p.padding_bytes),
                size(p.table_bytes),
                size(p.lingering_bytes),
                size(p.stranded_bytes),
                size(p.chunk_bytes),
                p.slots.to_string(),
                p.readers.to_string(),
            ]),
            StatRecord::Heap(h) => heaps.row(vec![
                h.heap.0.to_string(),
                h.name.clone(),
                names.domain(h.owner),
                size(h.admitted_bytes),
                size(h.live_bytes),
                size(h.cached_bytes),
                size(h.quota_bytes),
                size(h.max_bytes),
            ]),
            StatRecord::Channel(c) => channels.row(vec![
                if c.channel.0 == 0 {
                    "-".to_owned()
                } else {
                    c.channel.0.to_string()
                },
                c.name.clone(),
                end(&names, c.source, c),
                end(&names, c.sink, c),
                c.taken.to_string(),
                c.lines.to_string(),
                size(c.ring_bytes),
                c.pools
                    .iter()
                    .map(|pool| names.pool(*pool))
                    .collect::<Vec<_>>()
                    .join(" "),
            ]),
            // A domain that reads a pool without holding anything is counted with the pool's readers.
            StatRecord::Hold(h) if h.buffers == 0 => {}
            StatRecord::Hold(h) => holds.row(vec![
                names.domain(h.domain),
                names.pool(h.pool),
                h.buffers.to_string(),
                size(h.bytes),
                size(h.lingering_bytes),
                h.held_ms.map_or("-".to_owned(), age),
            ]),
        }
    }
    let mut first = true;
    for table in [domains, pools, heaps, channels, holds]
        .iter()
        .filter(|table| !table.is_empty())
    {
        if !std::mem::take(&mut first) {
            writeln!(out)?;
        }
        table.write(out)?;
    }
    Ok(())
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

/// Returns in words how short memory is on the machine and in its cgroups, and what is granted because of that.
fn outside(m: &ManagerStat) -> String {
    let pressure = match m.pressure {
        Pressure::Unwatched => "not watched".to_owned(),
        Pressure::None => "none".to_owned(),
        Pressure::Some => "some: caches are asked for".to_owned(),
        Pressure::Full => "full: caches are asked for, and nobody grows".to_owned(),
    };
    match m.limit_bytes < m.total_bytes {
        true => format!("{pressure}; at most {} at present", size(m.limit_bytes)),
        false => pressure,
    }
}

fn domain_row(d: &DomainStat) -> Vec<String> {
    vec![
        d.domain.0.to_string(),
        d.name.clone(),
        d.pid.to_string(),
        d.uid.to_string(),
        if d.connected { "connected" } else { "away" }.to_owned(),
        if d.dumpable { "yes" } else { "no" }.to_owned(),
        size(d.data_bytes),
        size(d.table_bytes),
        size(d.ring_bytes),
        size(d.own_bytes),
        size(d.lingering_bytes),
        size(d.stranded_bytes),
        d.hog.as_ref().map_or("-".to_owned(), |hog| {
            let (over, since) = (size(hog.over_bytes), age(hog.since_ms));
            format!("{}: over {over} for {since}", hog.action)
        }),
    ]
}

/// Returns a duration.
fn age(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..600_000 => format!("{} s", ms / 1000),
        600_000.. => format!("{} min", ms / 60_000),
    }
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
        ChannelId, HeapStat, HogAction, HogStat, HoldStat, ManagerStat, PoolId, PoolStat, Role,
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
            pools: vec![],
            taken: 0,
            lines: 0,
            ring_bytes: 0,
            place: None,
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
            dumpable: false,
            stranded_bytes: 0,
            data_bytes: 0,
            table_bytes: 0,
            ring_bytes: 0,
            own_bytes: 0,
            lingering_bytes: 16 << 20,
            hog: Some(HogStat {
                action: HogAction::Throttle,
                over_bytes: 8 << 20,
                since_ms: 5300,
            }),
        };
        vec![
            StatRecord::Manager(ManagerStat {
                instance: 1,
                pid: 9,
                uptime_s: 5,
                total_bytes: 1 << 30,
                granted_bytes: 64 << 20,
                stranded_bytes: 0,
                data_bytes: 63 << 20,
                table_bytes: 64 << 10,
                ring_bytes: 40 << 10,
                control_page_bytes: 16 << 10,
                descriptors: 30,
                max_descriptors: 900,
                own_bytes_per_user: 32 << 20,
                longest_turn_us: 1300,
                pressure: tranship_proto::Pressure::Full,
                limit_bytes: 512 << 20,
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
                stranded_bytes: 0,
                data_bytes: 63 << 20,
                table_bytes: 64 << 10,
                chunk_bytes: 1 << 20,
                slots: 1024,
                trust: tranship_proto::Trust::Full,
                readers: 1,
                live_bytes: 32 << 20,
                garbage_bytes: 3 << 20,
                cached_bytes: 5 << 20,
                padding_bytes: 700 << 10,
                lingering_bytes: 16 << 20,
            }),
            StatRecord::Heap(HeapStat {
                heap: PoolId(8),
                name: "python3".to_owned(),
                owner: reader,
                max_bytes: 1 << 40,
                quota_bytes: 256 << 20,
                admitted_bytes: 33 << 20,
                live_bytes: 30 << 20,
                cached_bytes: 2 << 20,
            }),
            StatRecord::Channel(ChannelStat {
                channel: ChannelId(3),
                name: "video".to_owned(),
                source: Some(writer),
                sink: Some(reader),
                exported_as: None,
                waiting_as: None,
                pools: vec![pool],
                taken: 12,
                lines: 256,
                ring_bytes: 40 << 10,
                place: None,
            }),
            StatRecord::Channel(ChannelStat {
                channel: ChannelId(u32::MAX),
                name: "tcp:0.0.0.0:7700/film".to_owned(),
                source: Some(writer),
                sink: None,
                exported_as: None,
                waiting_as: None,
                pools: vec![],
                taken: 3,
                lines: 256,
                ring_bytes: 40 << 10,
                place: Some("10.0.0.7:51000".to_owned()),
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
            }),
        ]
    }

    #[test]
    fn tables_name_who_holds_what() {
        let mut out = Vec::new();
        stat_tables(&records(), &mut out).expect("tables");
        let text = String::from_utf8(out).expect("text");
        for part in [
            "granted 64.0 MiB of 1.0 GiB",
            "camera#1 (dead)",
            "frames#7",
            "python3",
            "33.0 MiB",
            "memory pressure: full: caches are asked for, and nobody grows; at most 512.0 MiB at present",
            "shared memory 63.1 MiB",
            "16.0 MiB",
            "throttle: over 8.0 MiB for 5.3 s",
            "3.0 MiB",
            "700.0 KiB",
            "61 s",
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
