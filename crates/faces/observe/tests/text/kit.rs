//! Records of a system that was made up.

use std::time::Duration;
use tranship_observe::{Format, Snapshot, Tally, render};
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, DomainStat, HeapStat, HoldStat, ManagerStat, PoolId,
    PoolStat, Pressure, StatRecord,
};

/// Names that try to be something else.
pub const HOSTILE: [&str; 8] = [
    "a\"} 1\ntranship_up 0",
    "\\",
    "\\\"",
    "# EOF",
    "{pool=\"x\"}",
    "<script>alert(1)</script>",
    "\u{202e}gnp.exe\u{7}",
    "",
];

pub fn manager() -> StatRecord {
    StatRecord::Manager(ManagerStat {
        instance: 7,
        pid: 9,
        uptime_s: 61,
        total_bytes: 1 << 30,
        granted_bytes: 3 << 20,
        stranded_bytes: 0,
        data_bytes: 3 << 20,
        table_bytes: 4096,
        ring_bytes: 4096,
        control_page_bytes: 4096,
        descriptors: 12,
        max_descriptors: 1000,
        own_bytes_per_user: 1 << 20,
        longest_turn_us: 1500,
        pressure: Pressure::None,
        limit_bytes: 1 << 30,
    })
}

pub fn domain(id: u32, name: &str) -> StatRecord {
    StatRecord::Domain(DomainStat {
        domain: DomainId(id),
        name: name.to_owned(),
        pid: 1000 + id,
        uid: 1000,
        connected: true,
        data_bytes: 1 << 20,
        ..DomainStat::default()
    })
}

pub fn pool(id: u32, name: &str, writer: u32, granted_bytes: u64) -> StatRecord {
    pool_with(id, name, writer, granted_bytes, 1)
}

pub fn pool_with(id: u32, name: &str, writer: u32, granted_bytes: u64, allocs: u64) -> StatRecord {
    StatRecord::Pool(PoolStat {
        pool: PoolId(id),
        name: name.to_owned(),
        writer: DomainId(writer),
        writer_alive: true,
        quota_bytes: 1 << 22,
        granted_bytes,
        allocs,
        blocked_ns: 1_500_000_000,
        target_ppm: Some(50_000),
        ..PoolStat::default()
    })
}

pub fn channel(id: u32, name: &str, taken: u64) -> StatRecord {
    StatRecord::Channel(ChannelStat {
        channel: ChannelId(id),
        name: name.to_owned(),
        source: Some(DomainId(1)),
        sink: Some(DomainId(2)),
        pools: vec![PoolId(1)],
        taken,
        lines: 256,
        ..ChannelStat::default()
    })
}

/// Returns a snapshot with something of everything.
pub fn whole() -> Snapshot {
    let mut records = vec![manager(), domain(1, "camera"), domain(2, "viewer")];
    records.push(pool_with(1, "frames", 1, 2 << 20, 100));
    records.push(StatRecord::Heap(HeapStat {
        heap: PoolId(900),
        name: "heap".to_owned(),
        owner: DomainId(2),
        admitted_bytes: 4096,
        ..HeapStat::default()
    }));
    records.push(channel(1, "video", 12));
    records.push(StatRecord::Hold(HoldStat {
        domain: DomainId(2),
        pool: PoolId(1),
        buffers: 2,
        bytes: 8192,
        lingering_bytes: 4096,
        held_ms: Some(7),
        ..HoldStat::default()
    }));
    for (name, id) in HOSTILE.iter().zip(100..) {
        records.push(domain(id, name));
        records.push(pool(id, name, id, 4096));
        records.push(channel(id, name, 1));
    }
    of(records)
}

pub fn of(records: Vec<StatRecord>) -> Snapshot {
    Snapshot {
        at_ms: 1,
        took: Duration::from_millis(2),
        records,
    }
}

pub fn text(snapshot: &Snapshot, format: Format) -> String {
    render(Ok(snapshot), &mut Tally::default(), format)
}

/// Name and labels as they are written, and the value, of each line that is a sample.
pub fn samples(text: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let split = lines.map(|l| l.rsplit_once(' ').unwrap_or_else(|| panic!("{l:?}")));
    split
        .map(|(name, v)| {
            (
                name.to_owned(),
                v.parse().unwrap_or_else(|_| panic!("{v:?}")),
            )
        })
        .collect()
}
