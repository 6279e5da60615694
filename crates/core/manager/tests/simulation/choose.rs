//! A process's next request, sensible or not.

use super::*;
use tranship_proto::{ALL_READERS, Pressure};

impl World {
    /// Does an action of a process, mostly a sensible one.
    pub(super) fn do_something(&mut self, i: usize) {
        if self.procs[i].client.is_none() {
            return self.connect(i);
        }
        if self.procs[i].domain.is_none() || !self.procs[i].claimed {
            return self.take(i);
        }
        let name = format!("n{}", self.rng.below(5));
        let req = self.req();
        let wild = self.rng.one_in(12);
        let everybody: Vec<PoolId> = self.pools_seen.iter().rev().take(20).copied().collect();
        let own: Vec<PoolId> = self.procs[i].pools.keys().copied().collect();
        let pool = if wild {
            self.rng.pick(&everybody)
        } else {
            self.rng.pick(&own)
        };
        let all: Vec<ChannelId> = self.channels_seen.iter().rev().take(20).copied().collect();
        let mine: Vec<ChannelId> = self.procs[i].channels.keys().copied().collect();
        let channel = if wild {
            self.rng.pick(&all)
        } else {
            self.rng.pick(&mine)
        };
        match self.rng.below(27) {
            0 => {
                let fd = self.table();
                let request = Request::CreatePool {
                    req,
                    name: "p".to_owned(),
                    shape: shape(self.trust(i)),
                };
                self.say(i, request, vec![fd]);
            }
            1 | 2 => {
                let Some(pool) = pool else { return };
                let chunks = 1 + self.rng.below(6) as u32;
                self.say(i, Request::Grant { req, pool, chunks }, vec![]);
            }
            3 | 4 => {
                let Some(pool) = pool else { return };
                self.show(i, pool, req);
            }
            5 => {
                let Some(pool) = pool else { return };
                let chunks = self.procs[i]
                    .pools
                    .get_mut(&pool)
                    .and_then(BTreeMap::pop_first);
                let (index, serial) = chunks.unwrap_or((0, 1));
                self.say(
                    i,
                    Request::ReturnChunk {
                        pool,
                        index,
                        serial,
                    },
                    vec![],
                );
            }
            6 => {
                let role = if self.rng.one_in(12) {
                    Role::Sink
                } else {
                    Role::Source
                };
                self.say(i, Request::Export { req, name, role }, vec![]);
            }
            7 | 8 => {
                let fd = self.half(Role::Sink);
                let wait = self.rng.one_in(2);
                self.say(
                    i,
                    Request::Connect {
                        req,
                        name,
                        role: Role::Sink,
                        lines: 2,
                        wait,
                    },
                    vec![fd],
                );
            }
            9 | 10 => {
                let Some((channel, peer)) = self.procs[i].incoming.pop() else {
                    return;
                };
                if self.rng.one_in(6) {
                    return self.say(i, Request::Reject { channel }, vec![]);
                }
                self.procs[i].channels.insert(channel, (Role::Source, peer));
                let fd = self.half(Role::Source);
                self.say(
                    i,
                    Request::Accept {
                        req,
                        channel,
                        lines: 2,
                    },
                    vec![fd],
                );
            }
            11 | 12 => {
                let sources: Vec<ChannelId> = self.procs[i]
                    .channels
                    .iter()
                    .filter(|(_, (role, _))| *role == Role::Source)
                    .map(|(c, _)| *c)
                    .collect();
                let channel = if wild {
                    channel
                } else {
                    self.rng.pick(&sources)
                };
                // Sometimes a pool that it reads, which is forwarding.
                let read: Vec<PoolId> = self.procs[i].reads.keys().copied().collect();
                let pool = if self.rng.one_in(4) {
                    self.rng.pick(&read)
                } else {
                    pool
                };
                let (Some(pool), Some(channel)) = (pool, channel) else {
                    return;
                };
                self.procs[i].assigned.insert((channel, pool));
                let fd = self.counters(4);
                self.say(i, Request::Assign { req, channel, pool }, vec![fd]);
            }
            13 | 14 => {
                let Some((channel, pool, known)) = self.procs[i].offers.pop() else {
                    return;
                };
                if self.rng.one_in(6) {
                    let levels = self.levels();
                    let veto = Request::VetoPool {
                        channel,
                        pool,
                        levels,
                    };
                    return self.say(i, veto, vec![]);
                }
                self.procs[i].assigned.insert((channel, pool));
                let with_refs = !known || self.rng.one_in(5);
                let mut fds = vec![self.counters(5)];
                if with_refs {
                    fds.push(self.counters(3));
                    self.procs[i].reads.entry(pool).or_default();
                }
                self.say(
                    i,
                    Request::AcceptPool {
                        channel,
                        pool,
                        with_refs,
                    },
                    fds,
                );
            }
            15 => {
                let Some(channel) = channel else { return };
                self.procs[i].channels.remove(&channel);
                self.say(i, Request::CloseChannel { channel }, vec![]);
            }
            16 => {
                let Some(channel) = self.procs[i].left.pop_first() else {
                    return;
                };
                self.procs[i].channels.remove(&channel);
                self.say(i, Request::Drained { channel }, vec![]);
            }
            17 | 18 | 21 => {
                let gone = self.procs[i].gone.pop_first();
                let mapped = self.procs[i]
                    .reads
                    .iter()
                    .find_map(|(p, m)| m.first().map(|k| (*p, k.0, k.1)));
                let early = if self.rng.one_in(3) { mapped } else { None };
                let Some((pool, index, serial)) = gone.or(early) else {
                    return;
                };
                if let Some(m) = self.procs[i].reads.get_mut(&pool) {
                    m.remove(&(index, serial));
                }
                self.say(
                    i,
                    Request::Unmapped {
                        pool,
                        index,
                        serial,
                    },
                    vec![],
                );
            }
            19 => {
                let reads: Vec<PoolId> = self.procs[i].reads.keys().copied().collect();
                let Some(pool) = self.rng.pick(&reads) else {
                    return;
                };
                self.say(i, Request::Resync { req, pool }, vec![]);
            }
            24..=26 => self.use_heaps(i, wild, req),
            20 if self.rng.one_in(8) => self.say(i, Request::Stat { req }, vec![]),
            _ => self.rare(i, pool, channel, req),
        }
    }

    /// Shows some chunks, granted or not.
    fn show(&mut self, i: usize, pool: PoolId, req: Req) {
        let count = 1 + self.rng.below(6);
        let most = 1 + self.rng.below(count) as u32;
        let least = if self.rng.one_in(2) { 1 } else { most };
        let mut keys = Vec::new();
        let mut index = self.rng.below(16) as u32;
        for _ in 0..count {
            let has = |index| {
                let own = self.procs[i].pools.get(&pool);
                own.is_some_and(|chunks| chunks.contains_key(&index))
            };
            while has(index % 16) && !self.rng.one_in(8) {
                index += 1;
            }
            let p = &mut self.procs[i];
            p.serial += 1;
            keys.push((index % 16, p.serial));
            index += 1;
        }
        let fds = keys.iter().map(|_| self.chunk(i)).collect();
        let p = &mut self.procs[i];
        if let Some(own) = p.pools.get_mut(&pool) {
            for (index, serial) in &keys {
                own.entry(*index).or_insert(*serial);
            }
        }
        p.shown.insert(req, (pool, keys.clone()));
        let shown = keys.clone();
        let request = Request::ShowChunks {
            req,
            pool,
            chunks: keys,
            least,
        };
        self.say(i, request, fds);
        let waits = |p: &Proc| {
            let one = |&(index, serial): &(u32, u32)| {
                let client = p.client;
                client.is_some_and(|c| self.waited.contains(&(c, pool, index, serial)))
            };
            shown.iter().any(one)
        };
        if let Some(reader) = self.procs.iter().position(waits)
            && self.rng.one_in(3)
        {
            self.block(reader);
        }
    }

    /// Makes, grows, shrinks or destroys heaps.
    fn use_heaps(&mut self, i: usize, wild: bool, req: Req) {
        let own: Vec<PoolId> = self.procs[i].heaps.keys().copied().collect();
        let every: Vec<PoolId> = self.heap_books.keys().copied().collect();
        let heap = self.rng.pick(if wild { &every } else { &own });
        let some = |rng: &mut Rng| 1 + rng.next() % (6 * CHUNK);
        match (self.rng.below(8), heap) {
            (0, Some(heap)) => {
                self.procs[i].heaps.remove(&heap);
                self.say(i, Request::DestroyHeap { heap }, vec![]);
            }
            (1..=2, Some(heap)) => {
                let bytes = some(&mut self.rng);
                if let Some(has) = self.procs[i].heaps.get_mut(&heap) {
                    *has = has.saturating_sub(bytes);
                }
                self.say(i, Request::GiveBack { heap, bytes }, vec![]);
            }
            (3..=6, Some(heap)) => {
                let bytes = some(&mut self.rng);
                let least_bytes = self.rng.next() % (bytes + bytes / 8 + 2);
                self.asked.insert(req, (least_bytes, bytes));
                let request = Request::Admit {
                    req,
                    heap,
                    bytes,
                    least_bytes,
                };
                self.say(i, request, vec![]);
            }
            (7, Some(heap)) if self.rng.one_in(3) => {
                let quota_bytes = CHUNK * self.rng.below(20) as u64;
                let pool = heap;
                self.feed(Input::SetQuota { pool, quota_bytes });
            }
            _ => {
                let held_bytes = self.procs[i].held.pop().unwrap_or(0);
                if held_bytes > 0 {
                    self.count("heap came back");
                }
                self.asked.insert(req, (0, held_bytes));
                let request = Request::CreateHeap {
                    req,
                    name: "h".to_owned(),
                    max_bytes: some(&mut self.rng),
                    held_bytes,
                };
                self.say(i, request, vec![]);
            }
        }
    }

    pub(super) fn rare(
        &mut self,
        i: usize,
        pool: Option<PoolId>,
        channel: Option<ChannelId>,
        req: Req,
    ) {
        match (self.rng.below(10), pool, channel) {
            (8, ..) => {
                let channel = self.a_local_channel(pool);
                let halves = [Role::Source, Role::Sink].map(|role| self.half(role));
                self.say(i, Request::RegisterChannel { channel }, halves.into());
            }
            (9, ..) => {
                let channel = ChannelId(self.rng.below(6) as u32);
                self.say(i, Request::UnregisterChannel { channel }, vec![]);
            }
            (0, Some(pool), _) => {
                self.procs[i].pools.remove(&pool);
                self.say(i, Request::DestroyPool { pool }, vec![]);
            }
            (1, Some(pool), _) => {
                let domains: Vec<DomainId> = self.procs.iter().filter_map(|p| p.domain).collect();
                let domain = match self.rng.one_in(4) {
                    true => ALL_READERS,
                    false => self.rng.pick(&domains).unwrap_or(DomainId(1)),
                };
                self.say(i, Request::AllowForward { req, pool, domain }, vec![]);
            }
            (2, _, Some(channel)) => {
                let ends = self.shell.ends().to_vec();
                self.say(i, Request::WakeFd { req, channel }, ends);
            }
            (7, ..) if self.rng.one_in(2) => {
                let heaps: Vec<PoolId> = self.shell.state.heaps().keys().copied().collect();
                let Some(heap) = self.rng.pick(&heaps) else {
                    return;
                };
                let (live_bytes, cached_bytes) = (self.rng.next() >> 40, self.rng.next() >> 44);
                let figures = Request::HeapFigures {
                    heap,
                    live_bytes,
                    cached_bytes,
                };
                self.say(i, figures, vec![]);
            }
            (3, Some(pool), _) => self.say(i, Request::Ungrant { pool, chunks: 2 }, vec![]),
            (4, Some(_), _) if self.rng.one_in(3) => {
                let levels = [Pressure::None, Pressure::Some, Pressure::Full];
                let seen = levels[self.rng.below(3)];
                self.feed(Input::Pressure(seen));
            }
            (4, Some(pool), _) if self.rng.one_in(3) => {
                let (req, on, while_here) = (self.req(), self.rng.one_in(2), self.rng.one_in(2));
                let trace = Request::Trace {
                    req,
                    pool,
                    on,
                    while_here,
                };
                self.say(i, trace, vec![]);
                let (req, after) = (self.req(), 0);
                self.say(i, Request::NextTrace { req, after }, vec![]);
                let (req, take) = (self.req(), self.rng.below(4) > 0);
                self.say(i, Request::Steer { req, take }, vec![]);
                let quotas = vec![(pool, CHUNK * self.rng.below(20) as u64)];
                let req = self.req();
                self.say(i, Request::SetQuotas { req, quotas }, vec![]);
            }
            (4, Some(pool), _) => {
                let quota_bytes = CHUNK * self.rng.below(20) as u64;
                self.feed(Input::SetQuota { pool, quota_bytes });
            }
            (5, ..) => {
                let back = self.rng.below(20) as u32;
                self.say(
                    i,
                    Request::CancelConnect {
                        req: Req(self.req.saturating_sub(back)),
                    },
                    vec![],
                );
            }
            (6, ..) if self.rng.one_in(8) => {
                if let Some(client) = self.procs[i].client {
                    let refusal = Refusal {
                        code: RefusalCode::BadArgument,
                        asked: 0,
                        available: 0,
                    };
                    self.feed(Input::Violation { client, refusal });
                }
            }
            (7, ..) if self.rng.one_in(6) => {
                self.say(i, Request::Goodbye, vec![]);
                self.procs[i].domain = None;
            }
            _ => {}
        }
    }

    fn a_local_channel(&mut self, pool: Option<PoolId>) -> LocalChannel {
        let domains: Vec<DomainId> = self.procs.iter().filter_map(|p| p.domain).collect();
        let carried = self.rng.one_in(2);
        LocalChannel {
            channel: ChannelId(self.rng.below(6) as u32),
            address: ["local:a", "", "tcp:b"][self.rng.below(3)].into(),
            role: [Role::Source, Role::Sink][self.rng.below(2)],
            peer: self.rng.pick(&domains).filter(|_| !carried),
            place: carried.then(|| "elsewhere".into()),
            pool,
            lines: [2, if self.rng.one_in(8) { 3 } else { 2 }],
        }
    }
}
