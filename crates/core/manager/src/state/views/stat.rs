//! Records of the state, item after item: for the statistics page, and for `Stat`, as fast as the client takes them.

use crate::state::books::extent::For;
use crate::state::model::{Channel, Item, StatRun};
use crate::state::quotas::schedule::millionths;
use crate::state::types::{Action, ClientId, Done, Look, Surveyed};
use crate::state::{Of, State, refusal};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, DomainStat, Event, ExportId, HeapStat, HoldStat, ManagerStat,
    NameKind, PoolId, PoolStat, RefusalCode, Req, Role, StatRecord,
};

/// Records of one moment.
const RECORDS_AT_ONCE: usize = 32;

/// Returns the first key of a map after one, or the first of all.
fn after<K: Ord + Copy, V>(map: &BTreeMap<K, V>, last: Option<K>) -> Option<K> {
    let from = last.map_or(Unbounded, Excluded);
    map.range((from, Unbounded)).next().map(|(key, _)| *key)
}

impl State {
    pub(crate) fn stat(&mut self, client: ClientId, req: Req) -> Done {
        let Some(stat) = self.cx.clients.stat(client) else {
            return Ok(());
        };
        if stat.is_some() {
            return Err(refusal(RefusalCode::State, 2, 1).into());
        }
        *stat = Some(StatRun {
            req,
            last: None,
            waits: false,
        });
        self.stat_on(client);
        Ok(())
    }

    /// Returns the item after one, and its record if it still exists, with the place of what only owners know.
    pub(crate) fn survey(&self, last: Option<Item>) -> Option<(Item, Option<Surveyed>)> {
        let item = match last {
            None => Item::Manager,
            Some(last) => self.next_item(last)?,
        };
        Some((item, self.record(item)))
    }

    /// Returns the item after one, in the present state.
    fn next_item(&self, last: Item) -> Option<Item> {
        let domain = |id| after(&self.cx.domains, id).map(Item::Domain);
        let pool = |id| after(&self.pools, id).map(Item::Pool);
        let heap = |id| after(&self.heaps, id).map(Item::Heap);
        let channel = |id| after(&self.channels, id).map(Item::Channel);
        let registered = |key| self.registered.after(key).map(Item::Registered);
        let export = |id| self.exports.after(id).map(Item::Export);
        let waiting = |key| {
            let w = self.waiting.after(key)?;
            Some(Item::Waiting(w.domain, w.req))
        };
        let hold = |pool, reader| {
            let same = self.pools.get(&pool);
            let same = same.and_then(|p| after(&p.readers, reader));
            let rest = self.pools.range((Excluded(pool), Unbounded));
            let mut rest = rest.filter_map(|(id, p)| Some((*id, *p.readers.keys().next()?)));
            let next = same.map(|reader| (pool, reader)).or_else(|| rest.next());
            next.map(|(pool, reader)| Item::Hold(pool, reader))
        };
        // The first of each kind. A kind begins when the one before it has ended.
        let kinds: [&dyn Fn() -> Option<Item>; 8] = [
            &|| domain(None),
            &|| pool(None),
            &|| heap(None),
            &|| channel(None),
            &|| registered(None),
            &|| export(None),
            &|| waiting(None),
            &|| hold(PoolId(0), None),
        ];
        let (next, kind) = match last {
            Item::Manager => (None, 0),
            Item::Domain(id) => (domain(Some(id)), 1),
            Item::Pool(id) => (pool(Some(id)), 2),
            Item::Heap(id) => (heap(Some(id)), 3),
            Item::Channel(id) => (channel(Some(id)), 4),
            Item::Registered(key) => (registered(Some(key)), 5),
            Item::Export(id) => (export(Some(id)), 6),
            Item::Waiting(domain, req) => (waiting(Some((domain, req))), 7),
            Item::Hold(pool, reader) => (hold(pool, Some(reader)), 8),
        };
        next.or_else(|| kinds[kind..].iter().find_map(|first| first()))
    }

    /// Continues an answer if there is room: the next records, all of one moment.
    pub(crate) fn stat_on(&mut self, client: ClientId) {
        let run = self.cx.clients.get(client).and_then(|c| c.stat.as_ref());
        let Some(run) = run.filter(|run| !run.waits && self.cx.clients.has_room(client)) else {
            return;
        };
        let (req, mut last, mut records) = (run.req, run.last, Vec::new());
        while records.len() < RECORDS_AT_ONCE
            && let Some((item, record)) = self.survey(last)
        {
            last = Some(item);
            records.extend(record);
        }
        let Some(stat) = self.cx.clients.stat(client) else {
            return;
        };
        if records.is_empty() {
            *stat = None;
            return self.cx.push(client, Event::StatEnd { req }, &[]);
        }
        let waits = true;
        *stat = Some(StatRun { req, last, waits });
        self.cx.out.push(Action::Complete { client, records });
    }

    /// Takes records that the shell has completed.
    pub(crate) fn completed(&mut self, client: ClientId, records: Vec<StatRecord>) {
        let run = self.cx.clients.stat(client).and_then(Option::as_mut);
        if let Some(run) = run
            && std::mem::take(&mut run.waits)
        {
            let req = run.req;
            for record in records {
                self.cx.push(client, Event::Stat { req, record }, &[]);
            }
            self.stat_on(client);
        }
    }

    fn record(&self, item: Item) -> Option<Surveyed> {
        Some(match item {
            Item::Manager => (StatRecord::Manager(self.manager_stat()), None),
            Item::Domain(id) => (self.domain_record(id)?, None),
            Item::Heap(id) => (self.heap_record(id)?, None),
            Item::Export(id) => (self.export_record(id)?, None),
            Item::Waiting(domain, req) => (self.waiting_record(domain, req)?, None),
            Item::Hold(pool, domain) => (self.hold_record(pool, domain)?, None),
            Item::Pool(id) => {
                let table = self.pools.get(&id)?.table;
                (self.pool_record(id)?, Some(Look::Figures { table }))
            }
            Item::Channel(id) => {
                let c = self.channels.get(&id)?;
                let (source, sink) = (c.source_half, c.sink_half);
                (self.channel_record(id)?, Some(Look::Rings { source, sink }))
            }
            Item::Registered(key) => {
                let (record, [source, sink]) = self.registered.record(key, &self.cx.descriptors)?;
                let (source, sink) = (Some(source), Some(sink));
                (
                    StatRecord::Channel(record),
                    Some(Look::Rings { source, sink }),
                )
            }
        })
    }

    fn hold_record(&self, pool: PoolId, domain: DomainId) -> Option<StatRecord> {
        let r = self.pools.get(&pool)?.readers.get(&domain)?;
        r.refs?;
        let held = r.hold.oldest(self.cx.now).map(|age| age.as_millis());
        Some(StatRecord::Hold(HoldStat {
            domain,
            pool,
            buffers: r.hold.buffers,
            bytes: r.hold.bytes,
            lingering_bytes: r.hold.lingering_bytes,
            held_ms: held.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
            oldest_bytes: r.hold.oldest_bytes(),
        }))
    }

    fn manager_stat(&self) -> ManagerStat {
        ManagerStat {
            instance: self.cx.instance,
            pid: self.cx.pid,
            uptime_s: self.cx.now.as_secs(),
            total_bytes: self.cx.total_bytes,
            granted_bytes: self.cx.totals.granted(),
            stranded_bytes: self.cx.totals.stranded(),
            data_bytes: self.cx.descriptors.sum(For::Data),
            table_bytes: self.cx.descriptors.sum(For::Tables),
            ring_bytes: self.cx.descriptors.sum(For::Rings),
            control_page_bytes: self.cx.descriptors.sum(For::ControlPages),
            descriptors: self.cx.accounts.sum(Of::Descriptors),
            max_descriptors: self.cx.accounts.all(Of::Descriptors),
            own_bytes_per_user: self.cx.config.limits.own_bytes(),
            longest_turn_us: u64::try_from(self.longest_turn.as_micros()).unwrap_or(u64::MAX),
            pressure: self.outside.level(),
            limit_bytes: self.outside.limit_bytes(),
        }
    }

    /// Returns a channel's record without the figures that only its ends know.
    fn channel_record(&self, id: ChannelId) -> Option<StatRecord> {
        let c = self.channels.get(&id)?;
        Some(StatRecord::Channel(ChannelStat {
            channel: id,
            name: c.name.clone(),
            source: (!c.source_gone).then_some(c.source),
            sink: Some(c.sink),
            pools: c.pools.iter().take(1024).copied().collect(),
            lines: c.lines,
            ring_bytes: c.ring_bytes(|half| self.cx.descriptors.bytes_of(half)),
            kind: self.kind_of(c),
            ..ChannelStat::default()
        }))
    }

    /// Returns the kind of a channel's name, which its exporter alone decides.
    fn kind_of(&self, channel: &Channel) -> NameKind {
        let mut named = self.exports.named(&channel.name);
        let its = named.find(|(_, export)| export.domain == channel.exporter());
        its.map(|(_, export)| export.kind).unwrap_or_default()
    }

    fn export_record(&self, id: ExportId) -> Option<StatRecord> {
        let e = self.exports.get(id)?;
        Some(StatRecord::Channel(ChannelStat {
            name: e.name.clone(),
            source: (e.role == Role::Source).then_some(e.domain),
            sink: (e.role == Role::Sink).then_some(e.domain),
            exported_as: Some(e.role),
            kind: e.kind,
            ..ChannelStat::default()
        }))
    }

    fn waiting_record(&self, domain: DomainId, req: Req) -> Option<StatRecord> {
        let w = self.waiting.get(domain, req)?;
        Some(StatRecord::Channel(ChannelStat {
            name: w.name.clone(),
            source: (w.role == Role::Source).then_some(w.domain),
            sink: (w.role == Role::Sink).then_some(w.domain),
            waiting_as: Some(w.role),
            lines: w.lines,
            ring_bytes: self.cx.descriptors.bytes_of(w.half),
            kind: w.kind,
            ..ChannelStat::default()
        }))
    }

    fn domain_record(&self, id: DomainId) -> Option<StatRecord> {
        let d = self.cx.domains.get(&id)?;
        Some(StatRecord::Domain(DomainStat {
            domain: id,
            name: d.name.clone(),
            pid: d.pid,
            uid: d.uid,
            connected: d.client.is_some(),
            dumpable: d.dumpable,
            stranded_bytes: d.stranded_bytes,
            data_bytes: self.cx.descriptors.made_by(d.maker, For::Data),
            table_bytes: self.cx.descriptors.made_by(d.maker, For::Tables),
            ring_bytes: self.cx.descriptors.made_by(d.maker, For::Rings),
            own_bytes: d.bytes,
            lingering_bytes: d.lingering_bytes(),
            hog: self.hogs.stat(id, self.cx.now),
            room_bytes: self.cx.room_for(d.uid, id),
        }))
    }

    fn pool_record(&self, id: PoolId) -> Option<StatRecord> {
        let p = self.pools.get(&id)?;
        Some(StatRecord::Pool(PoolStat {
            pool: id,
            name: p.name.clone(),
            writer: p.writer,
            writer_alive: !p.is_orphan(),
            max_bytes: p.shape.max_bytes,
            quota_bytes: p.quota_bytes,
            granted_bytes: p.granted_bytes(),
            stranded_bytes: p.stranded_bytes(),
            data_bytes: p.chunks.len() as u64 * p.shape.chunk_bytes,
            table_bytes: p.table_bytes(self.offers.count_of(id)),
            chunk_bytes: p.shape.chunk_bytes,
            slots: p.shape.slots,
            trust: p.shape.trust,
            readers: u32::try_from(p.readers.len()).unwrap_or(u32::MAX),
            lingering_bytes: p.lingering_bytes,
            target_ppm: self.cx.config.rule_of(&p.name).target.map(millionths),
            ..PoolStat::default()
        }))
    }

    fn heap_record(&self, id: PoolId) -> Option<StatRecord> {
        let h = self.heaps.get(&id)?;
        Some(StatRecord::Heap(HeapStat {
            heap: id,
            name: h.name.clone(),
            owner: h.owner,
            max_bytes: h.max_bytes,
            quota_bytes: h.quota_bytes,
            admitted_bytes: h.admitted,
            live_bytes: h.said.map_or(0, |(live, _)| live),
            cached_bytes: h.said.map_or(0, |(_, cached)| cached),
        }))
    }
}
