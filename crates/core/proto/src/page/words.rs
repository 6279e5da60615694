//! Records as words, and back.

use super::records::{ChannelView, HoldView, PageRecord, PoolView};
use crate::{
    ChannelId, ChannelStat, DomainId, DomainStat, HeapStat, HogAction, HogStat, HoldStat,
    ManagerStat, PoolId, PoolStat, Pressure, Role, Trust,
};

const MANAGER: u64 = 1;
const DOMAIN: u64 = 2;
const POOL: u64 = 3;
const CHANNEL: u64 = 4;
const HOLD: u64 = 5;
const HEAP: u64 = 6;

/// Pools of a channel that are named.
const POOLS: usize = 16;

/// Appends a record.
pub fn encode_page(record: &PageRecord, to: &mut Vec<u64>) {
    let start = to.len();
    to.push(0);
    let (kind, text, rest) = match record {
        PageRecord::Manager(m) => {
            to.extend([
                m.instance,
                u64::from(m.pid),
                m.uptime_s,
                m.total_bytes,
                m.granted_bytes,
                m.stranded_bytes,
                m.data_bytes,
                m.table_bytes,
                m.ring_bytes,
                m.control_page_bytes,
                m.descriptors,
                m.max_descriptors,
                m.own_bytes_per_user,
                m.longest_turn_us,
                m.pressure as u64,
                m.limit_bytes,
            ]);
            (MANAGER, "", "")
        }
        PageRecord::Domain(d) => {
            to.extend([
                u64::from(d.domain.0),
                u64::from(d.pid),
                u64::from(d.uid),
                u64::from(d.connected) | u64::from(d.dumpable) << 1,
                d.stranded_bytes,
                d.data_bytes,
                d.table_bytes,
                d.ring_bytes,
                d.own_bytes,
                d.lingering_bytes,
            ]);
            if let Some(hog) = &d.hog {
                to.extend([hog.action as u64 + 1, hog.over_bytes, hog.since_ms]);
            }
            (DOMAIN, d.name.as_str(), "")
        }
        PageRecord::Pool(p) => {
            pool(p, to);
            (POOL, p.stat.name.as_str(), "")
        }
        PageRecord::Channel(c) => {
            channel(c, to);
            let place = c.stat.place.as_deref().unwrap_or("");
            (CHANNEL, c.stat.name.as_str(), place)
        }
        PageRecord::Hold(h) => {
            to.extend([
                u64::from(h.stat.domain.0),
                u64::from(h.stat.pool.0),
                u64::from(h.stat.buffers),
                h.stat.bytes,
                h.oldest_ns,
                h.oldest_bytes,
                h.stat.lingering_bytes,
                h.stat.held_ms.map_or(0, |ms| ms.saturating_add(1)),
            ]);
            (HOLD, "", "")
        }
        PageRecord::Heap(h) => {
            to.extend([
                u64::from(h.heap.0),
                u64::from(h.owner.0),
                h.max_bytes,
                h.quota_bytes,
                h.admitted_bytes,
                h.live_bytes,
                h.cached_bytes,
            ]);
            (HEAP, h.name.as_str(), "")
        }
    };
    let words = (to.len() - start - 1) as u64;
    let bytes = [text.as_bytes(), rest.as_bytes()].concat();
    if let Some(head) = to.get_mut(start) {
        *head = kind | words << 16 | (bytes.len() as u64) << 32;
    }
    for piece in bytes.chunks(8) {
        let mut raw = [0; 8];
        raw[..piece.len()].copy_from_slice(piece);
        to.push(u64::from_le_bytes(raw));
    }
}

fn pool(p: &PoolView, to: &mut Vec<u64>) {
    let s = &p.stat;
    to.extend([
        u64::from(s.pool.0),
        u64::from(s.writer.0),
        u64::from(s.writer_alive),
        s.max_bytes,
        s.quota_bytes,
        s.granted_bytes,
        s.stranded_bytes,
        s.data_bytes,
        s.table_bytes,
        s.chunk_bytes,
        u64::from(s.slots),
        s.trust as u64,
        u64::from(s.readers),
        p.blocked_ns,
        p.collect_ns,
        p.allocs,
        p.live_bytes,
        p.peak_bytes,
        p.live_buffers,
        p.cached_buffers,
        p.garbage_bytes,
        p.cached_bytes,
        p.waiters,
        p.waiting_ns,
        s.lingering_bytes,
        s.padding_bytes,
    ]);
}

/// Encodes a role. 0: none, 1: source, 2: sink.
fn role(role: Option<Role>) -> u64 {
    match role {
        None => 0,
        Some(Role::Source) => 1,
        Some(Role::Sink) => 2,
    }
}

fn channel(c: &ChannelView, to: &mut Vec<u64>) {
    let s = &c.stat;
    let end = |domain: Option<DomainId>| domain.map_or(0, |d| u64::from(d.0) + 1);
    to.extend([
        u64::from(s.channel.0),
        end(s.source),
        end(s.sink),
        role(s.exported_as) | role(s.waiting_as) << 2 | u64::from(c.sink_asleep) << 4,
        s.taken,
        u64::from(s.lines),
        s.ring_bytes,
        c.depth,
        c.stalls,
        c.stalled_ns,
        c.waiting_ns,
        // If the text is the name and then the place: the length of the name.
        s.place.as_ref().map_or(0, |_| s.name.len() as u64 + 1),
        s.pools.len().min(POOLS) as u64,
    ]);
    to.extend(s.pools.iter().take(POOLS).map(|pool| u64::from(pool.0)));
}

/// A record's words, one after another; 0 after the last.
struct Words<'a>(std::slice::Iter<'a, u64>);

impl Words<'_> {
    fn next(&mut self) -> u64 {
        self.0.next().copied().unwrap_or(0)
    }
    fn small(&mut self) -> u32 {
        // Trust: the page's writer; a number that is too large becomes the largest that fits.
        u32::try_from(self.next()).unwrap_or(u32::MAX)
    }
    fn domain(&mut self) -> DomainId {
        DomainId(self.small())
    }
    fn pool(&mut self) -> PoolId {
        PoolId(self.small())
    }
    fn hog(&mut self) -> Option<HogStat> {
        use HogAction::{Disconnect, Kill, Report, Throttle};
        let action = match self.next() {
            1 => Report,
            2 => Throttle,
            3 => Disconnect,
            4 => Kill,
            _ => return None,
        };
        Some(HogStat {
            action,
            over_bytes: self.next(),
            since_ms: self.next(),
        })
    }
    fn end(&mut self) -> Option<DomainId> {
        let word = self.next();
        let id = u32::try_from(word.checked_sub(1)?).ok()?;
        Some(DomainId(id))
    }
}

/// Decodes all known records from any words; the first impossible word ends the page.
pub fn decode_page(mut words: &[u64]) -> Vec<PageRecord> {
    let mut records = Vec::new();
    while let Some((head, rest)) = words.split_first() {
        let (kind, count, bytes) = (head & 0xffff, (head >> 16) & 0xffff, head >> 32);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let text = usize::try_from(bytes.div_ceil(8)).unwrap_or(usize::MAX);
        let Some((own, rest)) = rest.split_at_checked(count) else {
            break;
        };
        let Some((text, rest)) = rest.split_at_checked(text) else {
            break;
        };
        let mut raw: Vec<u8> = text.iter().flat_map(|w| w.to_le_bytes()).collect();
        raw.truncate(usize::try_from(bytes).unwrap_or(0));
        let text = String::from_utf8_lossy(&raw).into_owned();
        records.extend(record(kind, Words(own.iter()), text));
        words = rest;
    }
    records
}

fn record(kind: u64, mut w: Words<'_>, name: String) -> Option<PageRecord> {
    Some(match kind {
        MANAGER => PageRecord::Manager(ManagerStat {
            instance: w.next(),
            pid: w.small(),
            uptime_s: w.next(),
            total_bytes: w.next(),
            granted_bytes: w.next(),
            stranded_bytes: w.next(),
            data_bytes: w.next(),
            table_bytes: w.next(),
            ring_bytes: w.next(),
            control_page_bytes: w.next(),
            descriptors: w.next(),
            max_descriptors: w.next(),
            own_bytes_per_user: w.next(),
            longest_turn_us: w.next(),
            pressure: Pressure::ALL
                .get(w.small() as usize)
                .copied()
                .unwrap_or(Pressure::Unwatched),
            limit_bytes: w.next(),
        }),
        DOMAIN => {
            let (domain, pid, uid, flags) = (w.domain(), w.small(), w.small(), w.next());
            PageRecord::Domain(DomainStat {
                domain,
                name,
                pid,
                uid,
                connected: flags & 1 != 0,
                dumpable: flags & 2 != 0,
                stranded_bytes: w.next(),
                data_bytes: w.next(),
                table_bytes: w.next(),
                ring_bytes: w.next(),
                own_bytes: w.next(),
                lingering_bytes: w.next(),
                hog: w.hog(),
            })
        }
        POOL => PageRecord::Pool(read_pool(w, name)?),
        CHANNEL => PageRecord::Channel(read_channel(w, name)),
        HOLD => {
            let mut stat = HoldStat {
                domain: w.domain(),
                pool: w.pool(),
                buffers: w.small(),
                bytes: w.next(),
                lingering_bytes: 0,
                held_ms: None,
            };
            let (oldest_ns, oldest_bytes) = (w.next(), w.next());
            stat.lingering_bytes = w.next();
            stat.held_ms = w.next().checked_sub(1);
            PageRecord::Hold(HoldView {
                stat,
                oldest_ns,
                oldest_bytes,
            })
        }
        HEAP => PageRecord::Heap(HeapStat {
            heap: w.pool(),
            owner: w.domain(),
            name,
            max_bytes: w.next(),
            quota_bytes: w.next(),
            admitted_bytes: w.next(),
            live_bytes: w.next(),
            cached_bytes: w.next(),
        }),
        _ => return None,
    })
}

fn read_pool(mut w: Words<'_>, name: String) -> Option<PoolView> {
    let mut view = PoolView {
        stat: PoolStat {
            pool: w.pool(),
            name,
            writer: w.domain(),
            writer_alive: w.next() != 0,
            max_bytes: w.next(),
            quota_bytes: w.next(),
            granted_bytes: w.next(),
            stranded_bytes: w.next(),
            data_bytes: w.next(),
            table_bytes: w.next(),
            chunk_bytes: w.next(),
            slots: w.small(),
            trust: *Trust::ALL.get(w.small() as usize)?,
            readers: w.small(),
            live_bytes: 0,
            garbage_bytes: 0,
            cached_bytes: 0,
            padding_bytes: 0,
            lingering_bytes: 0,
        },
        blocked_ns: w.next(),
        collect_ns: w.next(),
        allocs: w.next(),
        live_bytes: w.next(),
        peak_bytes: w.next(),
        live_buffers: w.next(),
        cached_buffers: w.next(),
        garbage_bytes: w.next(),
        cached_bytes: w.next(),
        waiters: w.next(),
        waiting_ns: w.next(),
    };
    view.stat.live_bytes = view.live_bytes;
    view.stat.garbage_bytes = view.garbage_bytes;
    view.stat.cached_bytes = view.cached_bytes;
    view.stat.lingering_bytes = w.next();
    view.stat.padding_bytes = w.next();
    Some(view)
}

fn read_channel(mut w: Words<'_>, mut name: String) -> ChannelView {
    let role = |number: u64| match number & 3 {
        1 => Some(Role::Source),
        2 => Some(Role::Sink),
        _ => None,
    };
    let (channel, source, sink) = (ChannelId(w.small()), w.end(), w.end());
    let flags = w.next();
    let mut stat = ChannelStat {
        channel,
        name: String::new(),
        source,
        sink,
        exported_as: role(flags),
        waiting_as: role(flags >> 2),
        pools: Vec::new(),
        taken: w.next(),
        lines: w.small(),
        ring_bytes: w.next(),
        place: None,
    };
    let (depth, stalls, stalled_ns, waiting_ns) = (w.next(), w.next(), w.next(), w.next());
    let split = w.next().checked_sub(1);
    let split = split.and_then(|at| usize::try_from(at).ok());
    if let Some(at) = split.filter(|at| name.is_char_boundary(*at)) {
        stat.place = Some(name.split_off(at));
    }
    stat.name = name;
    let pools = usize::try_from(w.next()).unwrap_or(0).min(POOLS);
    stat.pools.extend((0..pools).map(|_| w.pool()));
    ChannelView {
        stat,
        depth,
        stalls,
        stalled_ns,
        waiting_ns,
        sink_asleep: flags & 16 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<PageRecord> {
        let pool = PoolView {
            stat: PoolStat {
                pool: PoolId(7),
                name: "frames/ä".to_owned(),
                writer: DomainId(0),
                writer_alive: true,
                max_bytes: 1,
                quota_bytes: 2,
                granted_bytes: 3,
                stranded_bytes: 4,
                data_bytes: 5,
                table_bytes: 6,
                chunk_bytes: 7,
                slots: 8,
                trust: Trust::Half,
                readers: 9,
                live_bytes: 13,
                garbage_bytes: 17,
                cached_bytes: 18,
                padding_bytes: 31,
                lingering_bytes: 30,
            },
            blocked_ns: 10,
            collect_ns: 11,
            allocs: 12,
            live_bytes: 13,
            peak_bytes: 14,
            live_buffers: 15,
            cached_buffers: 16,
            garbage_bytes: 17,
            cached_bytes: 18,
            waiters: 19,
            waiting_ns: 20,
        };
        let channel = ChannelView {
            stat: ChannelStat {
                channel: ChannelId(3),
                name: "video".to_owned(),
                source: Some(DomainId(0)),
                sink: None,
                exported_as: Some(Role::Sink),
                waiting_as: Some(Role::Source),
                pools: vec![PoolId(7), PoolId(8)],
                taken: 21,
                lines: 22,
                ring_bytes: 23,
                place: Some("10.0.0.7:51000".to_owned()),
            },
            depth: 24,
            stalls: 25,
            stalled_ns: 26,
            waiting_ns: 27,
            sink_asleep: true,
        };
        vec![
            PageRecord::Manager(ManagerStat {
                instance: u64::MAX,
                pid: 9,
                uptime_s: 5,
                total_bytes: 1 << 30,
                granted_bytes: 64 << 20,
                stranded_bytes: 1,
                data_bytes: 63 << 20,
                table_bytes: 64 << 10,
                ring_bytes: 40 << 10,
                control_page_bytes: 16 << 10,
                descriptors: 30,
                max_descriptors: 900,
                own_bytes_per_user: 32 << 20,
                longest_turn_us: 1300,
                pressure: Pressure::Full,
                limit_bytes: 31,
            }),
            PageRecord::Domain(DomainStat {
                domain: DomainId(1),
                name: String::new(),
                pid: 10,
                uid: 1000,
                connected: true,
                dumpable: false,
                stranded_bytes: 1,
                data_bytes: 2,
                table_bytes: 3,
                ring_bytes: 4,
                own_bytes: 32,
                lingering_bytes: 33,
                hog: Some(HogStat {
                    action: HogAction::Kill,
                    over_bytes: 34,
                    since_ms: 35,
                }),
            }),
            PageRecord::Pool(pool),
            PageRecord::Channel(channel),
            PageRecord::Hold(HoldView {
                stat: HoldStat {
                    domain: DomainId(1),
                    pool: PoolId(7),
                    buffers: 2,
                    bytes: 1 << 20,
                    lingering_bytes: 36,
                    held_ms: Some(0),
                },
                oldest_ns: 28,
                oldest_bytes: 29,
            }),
            PageRecord::Heap(HeapStat {
                heap: PoolId(8),
                name: "python3".to_owned(),
                owner: DomainId(1),
                max_bytes: 1,
                quota_bytes: 2,
                admitted_bytes: 3,
                live_bytes: 37,
                cached_bytes: 38,
            }),
        ]
    }

    fn encoded(records: &[PageRecord]) -> Vec<u64> {
        let mut words = Vec::new();
        for record in records {
            encode_page(record, &mut words);
        }
        words
    }

    #[test]
    fn what_was_written_is_read() {
        let all = records();
        assert_eq!(decode_page(&encoded(&all)), all);
    }

    #[test]
    fn what_is_not_known_is_skipped() {
        let all = records();
        let mut words = vec![99 | 2 << 16 | 3 << 32, 1, 2, 0x0061_6161];
        words.extend(encoded(&all));
        assert_eq!(decode_page(&words), all);
        // A heap record of a later version, with one word more.
        let heap = encoded(&all[5..]);
        let mut longer = vec![heap[0] + (1 << 16)];
        longer.extend(&heap[1..8]);
        longer.push(77);
        longer.extend(&heap[8..]);
        assert_eq!(decode_page(&longer), all[5..]);
    }

    proptest::proptest! {
        /// A page from any writer can be read: of a shortened or invented page, only the possible records are returned.
        #[test]
        fn any_words_are_read(words: Vec<u64>, cut in 0usize..200) {
            decode_page(&words);
            let whole = encoded(&records());
            let found = decode_page(&whole[..cut.min(whole.len())]);
            proptest::prop_assert!(records().starts_with(&found));
        }
    }
}
