//! A page for tests, as of a given second.

use std::time::Duration;
use tranship_manager::page::Snapshot;
use tranship_proto::{
    ChannelId, ChannelStat, ChannelView, DomainId, DomainStat, HeapStat, HoldStat, HoldView,
    ManagerStat, PageRecord, PoolId, PoolStat, PoolView, Trust,
};

const MIB: u64 = 1 << 20;

fn domain(id: u32, name: &str) -> PageRecord {
    PageRecord::Domain(DomainStat {
        domain: DomainId(id),
        name: name.to_owned(),
        pid: 100 + id,
        uid: 1000,
        connected: true,
        dumpable: false,
        stranded_bytes: 0,
        data_bytes: 4 * MIB,
        table_bytes: 64 << 10,
        ring_bytes: 40 << 10,
        own_bytes: 4 * MIB,
        lingering_bytes: 0,
        hog: None,
    })
}

pub(super) fn channel(second: u64, id: u32, name: &str) -> ChannelView {
    ChannelView {
        stat: ChannelStat {
            channel: ChannelId(id),
            name: name.to_owned(),
            source: Some(DomainId(1)),
            sink: Some(DomainId(2)),
            exported_as: None,
            waiting_as: None,
            pools: vec![PoolId(7)],
            taken: 100 * second,
            lines: 16,
            ring_bytes: 12 << 10,
            place: None,
        },
        depth: 16,
        stalls: second,
        stalled_ns: second * 250_000_000,
        waiting_ns: 40_000_000,
        sink_asleep: false,
    }
}

pub(super) fn snapshot(second: u64) -> Snapshot {
    let pool = PoolView {
        stat: PoolStat {
            pool: PoolId(7),
            name: "frames".to_owned(),
            writer: DomainId(1),
            writer_alive: true,
            max_bytes: 16 * MIB,
            quota_bytes: 4 * MIB,
            granted_bytes: 4 * MIB,
            stranded_bytes: MIB,
            data_bytes: 4 * MIB,
            table_bytes: 64 << 10,
            chunk_bytes: MIB,
            slots: 1024,
            trust: Trust::Producer,
            readers: 1,
            live_bytes: 3 * MIB,
            garbage_bytes: MIB / 2,
            cached_bytes: MIB / 4,
            padding_bytes: 0,
            lingering_bytes: 0,
        },
        blocked_ns: second * 500_000_000,
        collect_ns: second * 1_000_000,
        allocs: 50 * second,
        live_bytes: 3 * MIB,
        peak_bytes: 4 * MIB,
        live_buffers: 3,
        cached_buffers: 1,
        garbage_bytes: MIB / 2,
        cached_bytes: MIB / 4,
        waiters: 2,
        waiting_ns: 1_200_000_000,
    };
    let records = vec![
        PageRecord::Manager(ManagerStat {
            instance: 1,
            pid: 9,
            uptime_s: second,
            total_bytes: 64 * MIB,
            granted_bytes: 4 * MIB,
            stranded_bytes: MIB,
            data_bytes: 4 * MIB,
            table_bytes: 64 << 10,
            ring_bytes: 40 << 10,
            control_page_bytes: 16 << 10,
            descriptors: 30,
            max_descriptors: 900,
            own_bytes_per_user: 32 * MIB,
            longest_turn_us: 1300,
            pressure: tranship_proto::Pressure::None,
            limit_bytes: 64 * MIB,
        }),
        domain(1, "camera"),
        domain(2, "viewer"),
        PageRecord::Pool(pool),
        PageRecord::Heap(HeapStat {
            heap: PoolId(8),
            name: "python3".to_owned(),
            owner: DomainId(2),
            max_bytes: 16 * MIB,
            quota_bytes: 8 * MIB,
            admitted_bytes: 2 * MIB,
            live_bytes: MIB,
            cached_bytes: MIB / 2,
        }),
        PageRecord::Channel(channel(second, 3, "video")),
        PageRecord::Hold(HoldView {
            stat: HoldStat {
                domain: DomainId(2),
                pool: PoolId(7),
                buffers: 3,
                bytes: 3 * MIB,
                lingering_bytes: 0,
                held_ms: None,
            },
            oldest_ns: 2_500_000_000,
            oldest_bytes: MIB,
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
