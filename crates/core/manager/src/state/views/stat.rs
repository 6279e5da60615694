//! `Stat`: one record after another, as fast as the client takes them.

use crate::state::books::extent::For;
use crate::state::model::{Item, StatRun};
use crate::state::quotas::schedule::millionths;
use crate::state::types::{Action, ClientId, Cursors, Done, FdToken, Figures};
use crate::state::{Of, State, refusal};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, DomainStat, Event, ExportId, HeapStat, HoldStat, ManagerStat,
    PoolId, PoolStat, RefusalCode, Req, Role, StatRecord,
};

/// Most slots that are read for one request; holdings beyond are left out.
const MAX_SLOTS_READ: u64 = 4 << 20;

/// Slots that are read at once.
const SLOTS_AT_ONCE: u32 = 16384;
/// Reading a channel's cursors counts as that many slots.
const CURSORS: u64 = 16;
/// Records that are sent at once.
const RECORDS_AT_ONCE: usize = 32;

/// Returns the first key of a map after one, or the first of all.
fn after<K: Ord + Copy, V>(map: &BTreeMap<K, V>, last: Option<K>) -> Option<K> {
    let from = last.map_or(Unbounded, Excluded);
    map.range((from, Unbounded)).next().map(|(key, _)| *key)
}

fn read_cursors(
    client: ClientId,
    (source, sink): (Option<FdToken>, Option<FdToken>),
    lines: u32,
) -> Action {
    Action::ReadCursors {
        client,
        source,
        sink,
        lines,
    }
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
            last: Item::Manager,
            slots_left: MAX_SLOTS_READ,
            pools: 0,
            partial: None,
        });
        if let Some(record) = self.record(client, Item::Manager) {
            self.cx.push(client, Event::Stat { req, record }, &[]);
        }
        self.stat_on(client);
        Ok(())
    }

    /// Returns the item after one, in the present state.
    pub(crate) fn next_item(&self, last: Item) -> Option<Item> {
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

    /// Continues an answer while there is room.
    pub(crate) fn stat_on(&mut self, client: ClientId) {
        let mut said = 0;
        while self.cx.clients.has_room(client) && said < RECORDS_AT_ONCE {
            let Some(run) = self.cx.clients.get(client).and_then(|c| c.stat.as_ref()) else {
                return;
            };
            if run.partial.is_some() {
                return;
            }
            let req = run.req;
            let next = self.next_item(run.last);
            let Some(stat) = self.cx.clients.stat(client) else {
                return;
            };
            let Some(item) = next else {
                *stat = None;
                self.cx.push(client, Event::StatEnd { req }, &[]);
                return;
            };
            if let Some(run) = stat {
                run.last = item;
            }
            if let Some(record) = self.record(client, item) {
                self.cx.push(client, Event::Stat { req, record }, &[]);
                said += 1;
            }
        }
    }

    fn record(&mut self, client: ClientId, item: Item) -> Option<StatRecord> {
        match item {
            Item::Manager => Some(StatRecord::Manager(self.manager_stat())),
            Item::Domain(id) => self.domain_record(id),
            Item::Pool(id) => {
                let record = self.pool_record(id)?;
                let table = self.pools.get(&id)?.table;
                // This answer has figures only: a client that has asked for much already does without them.
                let read = Action::ReadPool { client, table };
                let bare = record.clone();
                self.ask_or(client, record, read, 1, bare)
            }
            Item::Heap(id) => self.heap_record(id),
            Item::Export(id) => self.export_record(id),
            Item::Waiting(domain, req) => self.waiting_record(domain, req),
            Item::Channel(id) => {
                let record = self.channel_record(id)?;
                let c = self.channels.get(&id)?;
                let halves = (c.source_half, c.sink_half);
                self.ask(
                    client,
                    record,
                    read_cursors(client, halves, c.lines),
                    CURSORS,
                )
            }
            Item::Registered(key) => {
                let (record, sink) = self.registered.record(key, &self.cx.descriptors)?;
                let source = self.registered.get(key)?.source_half;
                let read = read_cursors(client, (Some(source), Some(sink)), record.lines);
                self.ask(client, StatRecord::Channel(record), read, CURSORS)
            }
            Item::Hold(pool, domain) => {
                let record = StatRecord::Hold(self.hold_stat(pool, domain)?);
                let slots = self.pools.get(&pool)?.shape.slots;
                let action = self.read_hold(client, pool, domain, 0)?;
                self.ask(client, record, action, u64::from(slots))
            }
        }
    }

    /// Asks for the next piece of a reader's held buffers of a pool.
    fn read_hold(
        &self,
        client: ClientId,
        pool: PoolId,
        domain: DomainId,
        from: u32,
    ) -> Option<Action> {
        let p = self.pools.get(&pool)?;
        let to = from.saturating_add(SLOTS_AT_ONCE).min(p.shape.slots);
        (from < to).then_some(Action::ReadHold {
            client,
            table: p.table,
            refs: p.readers.get(&domain)?.refs?,
            slots: from..to,
        })
    }

    /// Asks the shell to read something for a record, within bounds.
    fn ask(
        &mut self,
        client: ClientId,
        record: StatRecord,
        action: Action,
        slots: u64,
    ) -> Option<StatRecord> {
        let run = self.cx.clients.stat(client)?.as_mut()?;
        run.slots_left = run.slots_left.checked_sub(slots)?;
        run.partial = Some((record, 0));
        self.cx.out.push(action);
        None
    }

    /// Asks the shell for a figure; beyond the bounds another record is the answer.
    fn ask_or(
        &mut self,
        client: ClientId,
        record: StatRecord,
        action: Action,
        slots: u64,
        bare: StatRecord,
    ) -> Option<StatRecord> {
        let run = self.cx.clients.get(client)?.stat.as_ref()?;
        if run.slots_left < slots {
            return Some(bare);
        }
        self.ask(client, record, action, slots)
    }

    /// Takes a writer's figures about its pool.
    pub(crate) fn pool_read(&mut self, client: ClientId, figures: Option<Figures>) {
        self.fill(client, |record| {
            if let (StatRecord::Pool(p), Some(f)) = (record, figures) {
                f.say(p);
            }
        });
        // The reading came at once, so the records of few pools are of one moment. The rest continues when this one has
        // gone out.
        let run = self.cx.clients.stat(client).and_then(Option::as_mut);
        let goes_on = run.is_some_and(|run| {
            run.pools += 1;
            !run.pools.is_multiple_of(RECORDS_AT_ONCE)
        });
        if goes_on {
            self.stat_on(client);
        }
    }

    /// Returns a holding's record without the figures from its counters.
    pub(crate) fn hold_stat(&self, pool: PoolId, domain: DomainId) -> Option<HoldStat> {
        let hold = &self.pools.get(&pool)?.readers.get(&domain)?.hold;
        let held = hold.oldest(self.cx.now).map(|age| age.as_millis());
        Some(HoldStat {
            domain,
            pool,
            lingering_bytes: hold.lingering_bytes,
            held_ms: held.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
            ..HoldStat::default()
        })
    }

    pub(crate) fn manager_stat(&self) -> ManagerStat {
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
    pub(crate) fn channel_record(&self, id: ChannelId) -> Option<StatRecord> {
        let c = self.channels.get(&id)?;
        Some(StatRecord::Channel(ChannelStat {
            channel: id,
            name: c.name.clone(),
            source: (!c.source_gone).then_some(c.source),
            sink: Some(c.sink),
            pools: c.pools.iter().take(1024).copied().collect(),
            lines: c.lines,
            ring_bytes: c.ring_bytes(|half| self.cx.descriptors.bytes_of(half)),
            ..ChannelStat::default()
        }))
    }

    pub(crate) fn export_record(&self, id: ExportId) -> Option<StatRecord> {
        let e = self.exports.get(id)?;
        Some(StatRecord::Channel(ChannelStat {
            name: e.name.clone(),
            source: (e.role == Role::Source).then_some(e.domain),
            sink: (e.role == Role::Sink).then_some(e.domain),
            exported_as: Some(e.role),
            ..ChannelStat::default()
        }))
    }

    pub(crate) fn waiting_record(&self, domain: DomainId, req: Req) -> Option<StatRecord> {
        let w = self.waiting.get(domain, req)?;
        Some(StatRecord::Channel(ChannelStat {
            name: w.name.clone(),
            source: (w.role == Role::Source).then_some(w.domain),
            sink: (w.role == Role::Sink).then_some(w.domain),
            waiting_as: Some(w.role),
            lines: w.lines,
            ring_bytes: self.cx.descriptors.bytes_of(w.half),
            ..ChannelStat::default()
        }))
    }

    pub(crate) fn domain_record(&self, id: DomainId) -> Option<StatRecord> {
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

    pub(crate) fn pool_record(&self, id: PoolId) -> Option<StatRecord> {
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

    pub(crate) fn heap_record(&self, id: PoolId) -> Option<StatRecord> {
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

    /// Takes a piece of a holding that was read.
    pub(crate) fn hold_read(&mut self, client: ClientId, buffers: u32, bytes: u64) {
        let run = self.cx.clients.stat(client).and_then(Option::as_mut);
        let Some((StatRecord::Hold(h), next)) = run.and_then(|r| r.partial.as_mut()) else {
            return;
        };
        h.buffers = h.buffers.saturating_add(buffers);
        h.bytes = h.bytes.saturating_add(bytes);
        *next = next.saturating_add(SLOTS_AT_ONCE);
        let (pool, domain, next) = (h.pool, h.domain, *next);
        match self.read_hold(client, pool, domain, next) {
            Some(more) => self.cx.out.push(more),
            None => self.complete(client, |_| {}),
        }
    }

    /// Takes a channel's cursors that were read.
    pub(crate) fn cursors_read(&mut self, client: ClientId, cursors: Cursors) {
        self.complete(client, |record| {
            if let StatRecord::Channel(c) = record {
                cursors.say(c);
            }
        });
    }

    fn complete(&mut self, client: ClientId, fill: impl FnOnce(&mut StatRecord)) {
        self.fill(client, fill);
        self.stat_on(client);
    }

    /// Completes a record with the shell's reading.
    fn fill(&mut self, client: ClientId, fill: impl FnOnce(&mut StatRecord)) {
        let run = self.cx.clients.stat(client).and_then(Option::as_mut);
        let Some((req, (mut record, _))) = run.and_then(|r| Some((r.req, r.partial.take()?)))
        else {
            return;
        };
        fill(&mut record);
        self.cx.push(client, Event::Stat { req, record }, &[]);
    }
}
