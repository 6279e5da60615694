//! A page for tests, as of a given second.

use std::time::Duration;
use tranship_manager::page::Snapshot;
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, DomainStat, HeapStat, HoldStat, ManagerStat, PoolId,
    PoolStat, StatRecord,
};

const MIB: u64 = 1 << 20;

fn domain(id: u32, name: &str) -> StatRecord {
    StatRecord::Domain(DomainStat {
        domain: DomainId(id),
        name: name.to_owned(),
        pid: 100 + id,
        uid: 1000,
        connected: true,
        ..DomainStat::default()
    })
}

pub(super) fn channel(second: u64, id: u32, name: &str) -> ChannelStat {
    ChannelStat {
        channel: ChannelId(id),
        name: name.to_owned(),
        source: Some(DomainId(1)),
        sink: Some(DomainId(2)),
        pools: vec![PoolId(7)],
        taken: 100 * second,
        lines: 16,
        ring_bytes: 12 << 10,
        depth: 16,
        stalls: second,
        stalled_ns: second * 250_000_000,
        waiting_ns: 40_000_000,
        ..ChannelStat::default()
    }
}

pub(super) fn snapshot(second: u64) -> Snapshot {
    let pool = PoolStat {
        pool: PoolId(7),
        name: "frames".to_owned(),
        writer: DomainId(1),
        writer_alive: true,
        quota_bytes: 4 * MIB,
        granted_bytes: 4 * MIB,
        stranded_bytes: MIB,
        chunk_bytes: MIB,
        readers: 1,
        live_bytes: 3 * MIB,
        garbage_bytes: MIB / 2,
        cached_bytes: MIB / 4,
        blocked_ns: second * 500_000_000,
        allocs: 50 * second,
        live_buffers: 3,
        waiters: 2,
        waiting_ns: 1_200_000_000,
        ..PoolStat::default()
    };
    let records = vec![
        StatRecord::Manager(ManagerStat {
            instance: 1,
            pid: 9,
            uptime_s: second,
            total_bytes: 64 * MIB,
            granted_bytes: 4 * MIB,
            stranded_bytes: MIB,
            limit_bytes: 64 * MIB,
            ..ManagerStat::default()
        }),
        domain(1, "camera"),
        domain(2, "viewer"),
        StatRecord::Pool(pool),
        StatRecord::Heap(HeapStat {
            heap: PoolId(8),
            name: "python3".to_owned(),
            owner: DomainId(2),
            quota_bytes: 8 * MIB,
            admitted_bytes: 2 * MIB,
            ..HeapStat::default()
        }),
        StatRecord::Channel(channel(second, 3, "video")),
        StatRecord::Hold(HoldStat {
            domain: DomainId(2),
            pool: PoolId(7),
            buffers: 3,
            bytes: 3 * MIB,
            held_ms: Some(2500),
            oldest_bytes: MIB,
            ..HoldStat::default()
        }),
    ];
    Snapshot {
        instance: 1,
        pid: 9,
        at_ns: second * 1_000_000_000,
        age: Duration::from_millis(20),
        silent: None,
        left_out: 0,
        records,
    }
}
