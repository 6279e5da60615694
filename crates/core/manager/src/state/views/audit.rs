//! Looks through the whole state for contradictions. For tests alone.
#![cfg(feature = "audit")]

use crate::state::ancillary::bytes_of;
use crate::state::books::accounts::KINDS;
use crate::state::books::back_refs::{BackRef, BackRefs};
use crate::state::hogs::watch;
use crate::state::model::{Answer, Channel, Chunk};
use crate::state::types::FdToken;
use crate::state::{Of, State};
use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{DomainId, PoolId};
use tranship_region::layout::{Kind, trace};

impl State {
    /// Returns every descriptor that the state owns.
    pub fn held_tokens(&self) -> BTreeSet<FdToken> {
        self.cx.descriptors.tokens()
    }

    /// Returns the bytes granted and stranded.
    pub fn memory(&self) -> (u64, u64) {
        (self.cx.totals.granted(), self.cx.totals.stranded())
    }

    /// Returns the bytes admitted to each heap.
    pub fn heaps(&self) -> BTreeMap<PoolId, u64> {
        self.heaps.iter().map(|(id, h)| (*id, h.admitted)).collect()
    }

    /// Returns each user's use of limited resources: connections, pools and heaps, ends of channels, names,
    /// descriptors, records, bytes, domains that record.
    pub fn accounts(&self) -> BTreeMap<u32, [u64; KINDS]> {
        self.cx.accounts.each().clone()
    }

    /// Returns the memory that domains have in their pools, destroyed or not, and heaps.
    pub fn grants(&self) -> Vec<(DomainId, PoolId, u64)> {
        let pools = self.pools.iter();
        let pools = pools.map(|(id, p)| (p.writer, *id, p.granted_bytes()));
        let heaps = self.heaps.iter().map(|(id, h)| (h.owner, *id, h.admitted));
        pools.chain(heaps).collect()
    }

    /// Returns the numbers of domains, of pools and heaps, of channels and of exports.
    pub fn population(&self) -> [usize; 4] {
        [
            self.cx.domains.len(),
            self.pools.len() + self.heaps.len(),
            self.channels.len(),
            self.exports.len(),
        ]
    }

    /// Returns the number of users that have anything.
    pub fn users(&self) -> usize {
        self.cx.accounts.users()
    }

    /// Says whether a process may still collect in a pool.
    pub fn is_written(&self, pool: PoolId) -> bool {
        self.pools.is_written(pool)
    }

    /// Says whether a domain is to be shown a pool's chunks.
    pub fn reads(&self, domain: DomainId, pool: PoolId) -> bool {
        let reader = self.pools.reader(pool, domain);
        reader.is_some_and(|r| r.queues > 0 || r.offers > 0 || r.proved)
    }

    /// Returns a pool's epoch, and the queues that its writer was told of.
    pub fn reader_set(&self, pool: PoolId) -> Option<(u64, BTreeSet<tranship_proto::ChannelId>)> {
        let p = self.pools.get(&pool).filter(|p| !p.is_orphan())?;
        let told = p.queues.iter().filter(|(_, q)| q.opening.is_none());
        Some((p.epoch, told.map(|(c, _)| *c).collect()))
    }

    /// Checks all books, and reports a contradiction.
    pub fn audit(&self) -> Result<(), String> {
        let mut granted = 0;
        let mut stranded = 0;
        let mut refs: Vec<FdToken> = Vec::new();
        let mut strands: BTreeMap<DomainId, u64> = BTreeMap::new();
        for (id, p) in self.pools.iter() {
            granted += p.granted_bytes();
            stranded += p.stranded_bytes();
            if p.granted_bytes() > p.shape.max_bytes {
                return Err(format!(
                    "pool {id}: {} granted of {}",
                    p.granted_bytes(),
                    p.shape.max_bytes
                ));
            }
            if p.chunks.len() > p.granted as usize {
                return Err(format!(
                    "pool {id}: {} chunks, {} granted",
                    p.chunks.len(),
                    p.granted
                ));
            }
            for (number, batch) in &p.batches {
                let its = |c: &&Chunk| {
                    let answer = c.ready.as_ref().map(|(answer, _)| *answer);
                    answer == Some(Answer::Batch(*number))
                };
                let left = p.chunks.values().filter(its).count();
                if left == 0 || left != batch.left as usize {
                    return Err(format!(
                        "pool {id}: {left} chunks of {batch:?} are on their way"
                    ));
                }
            }
            if !p.is_orphan() && !self.cx.domains.contains_key(&p.writer) {
                return Err(format!(
                    "pool {id}: writer {} is gone, but it is no orphan",
                    p.writer
                ));
            }
            for (key, stranded) in &p.stranded {
                let holders = &stranded.holders;
                if !holders
                    .iter()
                    .any(|d| self.cx.uid_of(*d) == Some(stranded.payer))
                {
                    return Err(format!("pool {id}: {stranded:?} is paid for by nobody"));
                }
                if holders.is_empty() || p.chunks.get(&key.0).is_some_and(|c| c.serial == key.1) {
                    return Err(format!("pool {id}: chunk {key:?} is not stranded"));
                }
                for d in holders {
                    *strands.entry(*d).or_default() += p.shape.chunk_bytes;
                    if !p.readers.get(d).is_some_and(|r| r.shown.contains(key)) {
                        return Err(format!("pool {id}: {d} does not hold {key:?}"));
                    }
                }
            }
            for (d, r) in &p.readers {
                let queues = p.queues.values().filter(|q| q.sink == *d).count();
                let told = self.offers.told_of(*id);
                let offers = told.filter(|sink| sink == d).count();
                if queues != r.queues as usize || offers != r.offers as usize {
                    return Err(format!(
                        "pool {id}: reader {d} has {queues} queues, {offers} offers: {r:?}"
                    ));
                }
                if !self.cx.domains.contains_key(d) {
                    return Err(format!("pool {id}: reader {d} is gone"));
                }
                for key in &r.shown {
                    let live = p.chunks.get(&key.0).is_some_and(|c| c.serial == key.1);
                    if !live && !p.stranded.get(key).is_some_and(|s| s.holders.contains(d)) {
                        return Err(format!("pool {id}: {d} was shown {key:?}, nobody knows it"));
                    }
                }
                refs.extend(r.refs);
            }
            let sinks = p.queues.values().map(|q| (q.sink, true));
            let offered = self.offers.told_of(*id).map(|sink| (sink, false));
            for (d, takes) in sinks.chain(offered) {
                let reader = p.readers.get(&d);
                if d != p.writer && !reader.is_some_and(|r| r.refs.is_some() || !takes) {
                    return Err(format!("pool {id}: {d} reads it unseen: {reader:?}"));
                }
            }
            refs.push(p.table);
            refs.extend(p.awaited().values());
            refs.extend(p.chunks.values().map(|c| c.fd));
            refs.extend(p.queues.values().flat_map(|q| [q.sent, q.rcvd]));
            for (c, q) in &p.queues {
                let knows = |c: &Channel| c.pools.contains(id) && c.sink == q.sink;
                if !self.channels.get(c).is_some_and(knows) {
                    return Err(format!("pool {id}: {c} does not know of {q:?}"));
                }
            }
        }
        for (id, h) in &self.heaps {
            granted += h.admitted;
            if h.admitted > h.max_bytes || self.cx.client_of(h.owner).is_none() {
                return Err(format!("heap {id}: {h:?}"));
            }
            if self.pools.contains_key(id) {
                return Err(format!("{id} is a heap and a pool"));
            }
        }
        let counted = (granted, stranded);
        self.cx.totals.audit(counted, self.cx.total_bytes)?;
        self.seat.audit(&self.cx)?;
        if self.outside.limit_bytes() > self.cx.total_bytes {
            return Err(format!("{:?} of {}", self.outside, self.cx.total_bytes));
        }
        self.pools.audit()?;
        refs.extend(
            self.cx
                .domains
                .values()
                .flat_map(|d| [d.pidfd, d.control_page]),
        );
        for c in self.channels.values() {
            refs.extend(c.source_half);
            refs.extend(c.sink_half);
            if let crate::state::model::Stage::Incoming(w, _) = &c.stage {
                refs.push(w.half);
            }
        }
        self.registered.audit(&self.cx)?;
        refs.extend(self.registered.halves());
        refs.extend(
            self.waiting
                .iter()
                .flat_map(|w| [Some(w.half), w.desk])
                .flatten(),
        );
        refs.extend(self.traces.rings().map(|t| t.fd));
        refs.extend(self.offers.iter().map(|o| o.sent));
        refs.extend(self.claims.ends().values().map(|e| e.half));
        refs.extend(self.claims.assigns().values().map(|a| a.fd));
        refs.extend(self.claims.readers().values().map(|r| r.refs));
        let n = refs.len();
        let set: BTreeSet<FdToken> = refs.into_iter().collect();
        if set.len() != n || set != self.held_tokens() {
            let lost: Vec<_> = self.held_tokens().difference(&set).copied().collect();
            return Err(format!(
                "descriptors held by nothing: {lost:?}, twice: {}",
                n - set.len()
            ));
        }
        for (id, c) in &self.channels {
            if !self.cx.domains.contains_key(&c.sink)
                || (!c.source_gone && !self.cx.domains.contains_key(&c.source))
            {
                return Err(format!("channel {id}: an end is gone"));
            }
        }
        let mut bytes: BTreeMap<DomainId, u64> = BTreeMap::new();
        for (domain, _, n) in self.grants() {
            *bytes.entry(domain).or_default() += n;
        }
        for (id, d) in &self.cx.domains {
            if d.bytes != bytes.get(id).copied().unwrap_or(0) {
                return Err(format!("domain {id}: {} granted", d.bytes));
            }
            if d.stranded_bytes != strands.get(id).copied().unwrap_or(0) {
                return Err(format!("domain {id}: {} stranded", d.stranded_bytes));
            }
        }
        self.exports.audit()?;
        self.offers.audit()?;
        let is_there = |id| self.cx.domains.contains_key(&id);
        self.departures.audit(is_there)?;
        self.hogs.audit(is_there)?;
        self.audit_extent()?;
        watch::audit(&self.cx, &self.pools)?;
        self.audit_queues()?;
        self.audit_back_refs()?;
        self.audit_accounts()
    }

    /// Counts shared memory anew, by pieces and by purpose.
    fn audit_extent(&self) -> Result<(), String> {
        let claimed = self.claims.assigns().values().map(|a| a.facts.size);
        let refs = self.claims.readers().values();
        let refs = refs.map(|r| bytes_of(Kind::Refs, r.slots));
        let tables = self.pools.iter();
        let tables = tables.map(|(id, p)| p.table_bytes(self.offers.count_of(*id)));
        let traces = self.traces.rings().map(|_| trace::len() as u64);
        let ends = self.claims.ends().values().map(|e| e.lines);
        let waiting = self.waiting.iter().map(|w| w.lines);
        let desks = self.waiting.iter().filter_map(|w| w.desk);
        let desks = desks.map(|_| bytes_of(Kind::Desk, 1));
        let kept = |half| self.cx.descriptors.bytes_of(half);
        let registered = self.registered.halves().map(kept);
        let channels = self.channels.values();
        let rings = channels.map(|c| c.ring_bytes(kept));
        let rings = rings.chain(registered);
        let data = self.pools.values();
        let control_pages = bytes_of(Kind::ControlPage, self.cx.config.pools_per_domain);
        let sums = [
            data.map(|p| p.chunks.len() as u64 * p.shape.chunk_bytes)
                .sum(),
            tables
                .chain(claimed)
                .chain(refs)
                .chain(traces)
                .chain(desks)
                .sum(),
            rings
                .chain(
                    ends.chain(waiting)
                        .map(|lines| bytes_of(Kind::LinkSource, lines)),
                )
                .sum(),
            self.cx.domains.len() as u64 * control_pages,
        ];
        let gone = self.channels.values().filter_map(|c| c.source_ring);
        self.cx.descriptors.audit(gone, sums)
    }

    /// Counts queued messages and unanswered requests anew, by the user that caused them.
    fn audit_queues(&self) -> Result<(), String> {
        self.cx.clients.audit()?;
        self.traces.audit(&self.cx, &self.pools)?;
        let mut backlog: BTreeMap<DomainId, BTreeMap<u32, u32>> = BTreeMap::new();
        for c in self.channels.values().filter(|c| c.is_incoming()) {
            let exporter = if c.connector == c.source {
                c.sink
            } else {
                c.source
            };
            let of = backlog.entry(exporter).or_default();
            for payer in c.payers.iter().flatten() {
                *of.entry(*payer).or_default() += 1;
            }
        }
        for (id, d) in &self.cx.domains {
            let counted = backlog.remove(id).unwrap_or_default();
            if counted != d.backlog {
                return Err(format!("domain {id}: {:?} wait, {counted:?}", d.backlog));
            }
        }
        Ok(())
    }

    /// Counts back references anew, from the tables.
    fn audit_back_refs(&self) -> Result<(), String> {
        let mut back_refs = BackRefs::default();
        for (id, c) in &self.channels {
            if !c.source_gone {
                back_refs.insert(c.source, BackRef::End(*id, true));
            }
            back_refs.insert(c.sink, BackRef::End(*id, false));
            if let crate::state::model::Stage::Incoming(w, _) = &c.stage {
                back_refs.insert(c.connector, BackRef::Asked(w.req, *id));
            }
        }
        for (id, h) in &self.heaps {
            back_refs.insert(h.owner, BackRef::Heap(*id));
        }
        for (id, p) in self.pools.iter() {
            back_refs.insert(p.writer, BackRef::Writes(*id));
            p.readers
                .keys()
                .for_each(|d| back_refs.insert(*d, BackRef::Reads(*id)));
            let named = p.named.keys().chain(&p.forwarders);
            named.for_each(|d| back_refs.insert(*d, BackRef::Named(*id)));
            if !p.brought.agrees() {
                return Err(format!("pool {id}: {:?}", p.brought));
            }
        }
        if back_refs != self.back_refs {
            return Err(format!(
                "back references: {:?}, counted: {back_refs:?}",
                self.back_refs
            ));
        }
        self.claims.audit()
    }

    /// Counts every limited resource anew, one by one.
    fn audit_accounts(&self) -> Result<(), String> {
        let mut counted: BTreeMap<(u32, usize), u64> = BTreeMap::new();
        let mut count = |uid: u32, of: Of, n: usize| {
            *counted.entry((uid, of as usize)).or_default() += n as u64;
        };
        let uid = |domain: &_| self.cx.uid_of(*domain).unwrap_or(u32::MAX);
        for c in self.cx.clients.in_handshake() {
            count(c.uid, Of::Connections, 1);
        }
        for d in self.cx.domains.values() {
            count(d.uid, Of::Connections, 1);
        }
        for p in self.pools.values() {
            count(p.uid, Of::Pools, 1);
            let granted = usize::try_from(p.granted_bytes()).unwrap_or(usize::MAX);
            count(p.uid, Of::Bytes, granted);
            let records = p.named.len() + p.brought.len() + p.forwarders.len();
            count(p.uid, Of::Records, records);
            for r in p.readers.values() {
                let notes = usize::try_from(r.hold.records()).unwrap_or(usize::MAX);
                count(r.uid, Of::Records, r.shown.len() + notes);
            }
            for s in p.stranded.values() {
                let bytes = usize::try_from(p.shape.chunk_bytes).unwrap_or(usize::MAX);
                count(s.payer, Of::Bytes, bytes);
            }
        }
        for h in self.heaps.values() {
            count(h.uid, Of::Pools, 1);
            count(
                h.uid,
                Of::Bytes,
                usize::try_from(h.admitted).unwrap_or(usize::MAX),
            );
        }
        for c in self.channels.values() {
            for payer in c.payers.iter().flatten() {
                count(*payer, Of::Channels, 1);
            }
        }
        for e in self.exports.iter() {
            count(uid(&e.domain), Of::Names, 1);
        }
        for w in self.waiting.iter() {
            count(w.uid, Of::Names, 1);
        }
        for payer in self.cx.descriptors.payers() {
            count(payer, Of::Descriptors, 1);
        }
        for uid in self.traces.payers() {
            count(uid, Of::Records, 1);
        }
        for t in self.traces.rings().filter(|t| t.alive) {
            count(t.uid, Of::Traces, 1);
        }
        for r in self.claims.readers().values() {
            count(r.uid, Of::Records, r.mapped.len());
        }
        for domain in self.claims.triers() {
            count(uid(&domain), Of::Records, 1);
        }
        self.cx.accounts.agrees(&counted)
    }
}
