//! `Stat`: one record after another, as fast as the asker takes them.

use super::types::{Action, ClientId, Done};
use super::{State, refusal};
use std::collections::VecDeque;
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, DomainStat, Event, ExportId, HeapStat, HoldStat, ManagerStat,
    PoolId, PoolStat, RefusalCode, Req, Role, StatRecord,
};

/// Slots that are looked through for one request at most; holdings beyond are left out.
const MAX_SLOTS_READ: u64 = 4 << 20;

/// An answer under way.
#[derive(Debug)]
pub(crate) struct StatRun {
    req: Req,
    items: VecDeque<Item>,
    slots_left: u64,
    /// A record that waits for what the shell reads.
    partial: Option<StatRecord>,
}

#[derive(Debug, Clone, Copy)]
enum Item {
    Manager,
    Domain(DomainId),
    Pool(PoolId),
    Channel(ChannelId),
    Export(ExportId),
    Waiting(DomainId, Req),
    Hold(PoolId, DomainId),
    Heap(PoolId),
}

impl State {
    pub(super) fn stat(&mut self, client: ClientId, req: Req) -> Done {
        let mut items = VecDeque::from([Item::Manager]);
        items.extend(self.domains.keys().map(|d| Item::Domain(*d)));
        items.extend(self.pools.keys().map(|p| Item::Pool(*p)));
        items.extend(self.heaps.keys().map(|h| Item::Heap(*h)));
        items.extend(self.channels.keys().map(|c| Item::Channel(*c)));
        items.extend(self.exports.keys().map(|e| Item::Export(*e)));
        items.extend(self.waiting.iter().map(|w| Item::Waiting(w.domain, w.req)));
        for (pool, p) in &self.pools {
            items.extend(p.readers.keys().map(|d| Item::Hold(*pool, *d)));
        }
        let Some(c) = self.clients.get_mut(&client) else {
            return Ok(());
        };
        if c.stat.is_some() {
            return Err(refusal(RefusalCode::State, 2, 1).into());
        }
        c.stat = Some(StatRun {
            req,
            items,
            slots_left: MAX_SLOTS_READ,
            partial: None,
        });
        self.stat_on(client);
        Ok(())
    }

    /// Goes on with an answer while there is room.
    pub(super) fn stat_on(&mut self, client: ClientId) {
        while self.has_room(client) {
            let Some(c) = self.clients.get_mut(&client) else {
                return;
            };
            let Some(run) = &mut c.stat else { return };
            if run.partial.is_some() {
                return;
            }
            let req = run.req;
            let Some(item) = run.items.pop_front() else {
                c.stat = None;
                self.push(client, Event::StatEnd { req }, &[]);
                return;
            };
            if let Some(record) = self.record(client, item) {
                self.push(client, Event::Stat { req, record }, &[]);
            }
        }
    }

    fn record(&mut self, client: ClientId, item: Item) -> Option<StatRecord> {
        match item {
            Item::Manager => Some(StatRecord::Manager(ManagerStat {
                instance: self.instance,
                pid: self.pid,
                uptime_s: self.now.as_secs(),
                total_bytes: self.total_bytes,
                granted_bytes: self.money.granted,
                stranded_bytes: self.money.stranded,
                descriptors: self.held.len() as u64,
                max_descriptors: self.max_held as u64,
            })),
            Item::Domain(id) => self.domain_record(id),
            Item::Pool(id) => self.pool_record(id),
            Item::Heap(id) => self.heap_record(id),
            Item::Export(id) => {
                let e = self.exports.get(&id)?;
                Some(StatRecord::Channel(ChannelStat {
                    channel: ChannelId(0),
                    name: e.name.clone(),
                    source: (e.role != Some(Role::Sink)).then_some(e.domain),
                    sink: (e.role == Some(Role::Sink)).then_some(e.domain),
                    exported_as: e.role,
                    waiting_as: None,
                    pools: Vec::new(),
                    taken: 0,
                    lines: 0,
                }))
            }
            Item::Waiting(domain, req) => {
                let mut waiting = self.waiting.iter();
                let w = waiting.find(|w| (w.domain, w.req) == (domain, req))?;
                Some(StatRecord::Channel(ChannelStat {
                    channel: ChannelId(0),
                    name: w.name.clone(),
                    source: (w.role == Role::Source).then_some(w.domain),
                    sink: (w.role == Role::Sink).then_some(w.domain),
                    exported_as: None,
                    waiting_as: Some(w.role),
                    pools: Vec::new(),
                    taken: 0,
                    lines: w.lines,
                }))
            }
            Item::Channel(id) => {
                let c = self.channels.get(&id)?;
                let record = StatRecord::Channel(ChannelStat {
                    channel: id,
                    name: c.name.clone(),
                    source: (!c.source_gone).then_some(c.source),
                    sink: Some(c.sink),
                    exported_as: None,
                    waiting_as: None,
                    pools: c.pools.iter().take(1024).copied().collect(),
                    taken: 0,
                    lines: c.lines,
                });
                match c.sink_half {
                    None => Some(record),
                    Some(half) => self.ask(client, record, Action::ReadTaken { client, half }, 1),
                }
            }
            Item::Hold(pool, domain) => {
                let p = self.pools.get(&pool)?;
                let refs = p.readers.get(&domain)?.refs?;
                let (table, slots) = (p.table, p.slots);
                let record = StatRecord::Hold(HoldStat {
                    domain,
                    pool,
                    buffers: 0,
                    bytes: 0,
                });
                let action = Action::ReadHold {
                    client,
                    table,
                    refs,
                    slots,
                };
                self.ask(client, record, action, u64::from(slots))
            }
        }
    }

    /// Has the shell read something for a record, within bounds.
    fn ask(
        &mut self,
        client: ClientId,
        record: StatRecord,
        action: Action,
        slots: u64,
    ) -> Option<StatRecord> {
        let run = self.clients.get_mut(&client)?.stat.as_mut()?;
        run.slots_left = run.slots_left.checked_sub(slots)?;
        run.partial = Some(record);
        self.out.push(action);
        None
    }

    fn domain_record(&self, id: DomainId) -> Option<StatRecord> {
        let d = self.domains.get(&id)?;
        let stranded = |p: &super::Pool| {
            p.stranded.values().filter(|h| h.contains(&id)).count() as u64 * p.chunk_bytes
        };
        Some(StatRecord::Domain(DomainStat {
            domain: id,
            name: d.name.clone(),
            pid: d.pid,
            uid: d.uid,
            connected: d.client.is_some(),
            dumpable: d.dumpable,
            stranded_bytes: self.pools.values().map(stranded).sum(),
        }))
    }

    fn pool_record(&self, id: PoolId) -> Option<StatRecord> {
        let p = self.pools.get(&id)?;
        Some(StatRecord::Pool(PoolStat {
            pool: id,
            name: p.name.clone(),
            writer: p.writer,
            writer_alive: !p.orphan,
            max_bytes: p.max_bytes,
            quota_bytes: p.quota_bytes,
            granted_bytes: p.granted_bytes(),
            stranded_bytes: p.stranded_bytes(),
            chunk_bytes: p.chunk_bytes,
            slots: p.slots,
            readers: u32::try_from(p.readers.len()).unwrap_or(u32::MAX),
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
        }))
    }

    pub(super) fn hold_read(&mut self, client: ClientId, buffers: u32, bytes: u64) {
        self.complete(client, |record| {
            if let StatRecord::Hold(h) = record {
                (h.buffers, h.bytes) = (buffers, bytes);
            }
        });
    }

    pub(super) fn taken_read(&mut self, client: ClientId, taken: u64) {
        self.complete(client, |record| {
            if let StatRecord::Channel(c) = record {
                c.taken = taken;
            }
        });
    }

    fn complete(&mut self, client: ClientId, fill: impl FnOnce(&mut StatRecord)) {
        let run = self.clients.get_mut(&client).and_then(|c| c.stat.as_mut());
        let Some((req, mut record)) = run.and_then(|r| Some((r.req, r.partial.take()?))) else {
            return;
        };
        fill(&mut record);
        self.push(client, Event::Stat { req, record }, &[]);
        self.stat_on(client);
    }
}
