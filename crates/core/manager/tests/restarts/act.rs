//! The actions of a domain that need no event: joining, claiming, linking, assigning, leaving.

use super::*;

/// The memory that travels with a claim, and its kind.
type Shown = Option<(u32, Inode)>;

impl World {
    pub fn say(&mut self, i: usize, request: Request, fds: Vec<Fd>) {
        if self.procs[i].is_up() {
            self.procs[i].outbox.push_back((request, fds));
        }
    }

    /// Joins or comes back, after the old connection was read to its end.
    fn join(&mut self, i: usize) -> bool {
        let p = &mut self.procs[i];
        if self.away || p.client.is_some() || !p.socket.is_empty() || self.shell.now < p.late {
            return false;
        }
        p.down(&mut self.closed);
        let client = ClientId(self.fresh());
        self.procs[i].client = Some(client);
        self.tell(Input::Connected {
            client,
            uid: 1000,
            gid: 1000,
            pid: 1,
        });
        let request = Request::Hello {
            version: PROTOCOL_VERSION,
            name: "sim".to_owned(),
            resume: self.procs[i].domain,
            dumpable: false,
        };
        let process = self.procs[i].id;
        self.shell.greeting = process;
        let (pidfd, control_page) = (Some(self.token(process)), Some(self.token(0)));
        self.tell(Input::Hello {
            client,
            request,
            pidfd,
            process,
            control_page,
        });
        true
    }

    /// Claims everything, after the manager has welcomed the domain back.
    pub fn claim_all(&mut self, i: usize) {
        self.count("claimed");
        let mut all = Vec::<(Claim, Request, Shown)>::new();
        let p = &self.procs[i];
        let req = Req(0);
        for (pool, own) in &p.pools {
            let pool = *pool;
            let request = Request::ClaimPool {
                req,
                pool,
                name: "p".to_owned(),
                shape: shape(Trust::Producer),
            };
            all.push((Claim::Pool(pool), request, Some((2, own.table))));
            for (index, (serial, inode)) in &own.chunks {
                let (index, serial) = (*index, *serial);
                let request = Request::ClaimChunk {
                    req,
                    pool,
                    index,
                    serial,
                };
                all.push((Claim::Other, request, Some((0, *inode))));
            }
            let readers = own.readers.iter().map(|(d, r)| (*d, r.refs)).collect();
            let queues = own
                .queues
                .iter()
                .map(|(c, q)| (*c, q.sink, q.process))
                .collect();
            let request = Request::ClaimReaderSet {
                req,
                pool,
                readers,
                queues,
            };
            all.push((Claim::Other, request, None));
        }
        for (pool, f) in &p.foreign {
            let request = Request::ClaimReader {
                req,
                pool: *pool,
                slots: SLOTS,
                table: f.table,
                trust: tranship_proto::Trust::Producer,
                mapped: f.mapped.iter().copied().collect(),
            };
            all.push((Claim::Other, request, Some((3, f.refs))));
        }
        for (channel, link) in &p.links {
            let (half, counts) = if link.role == Role::Source {
                (6, 4)
            } else {
                (7, 5)
            };
            let claim = ChannelClaim {
                channel: *channel,
                name: "n".to_owned(),
                role: link.role,
                peer: link.peer,
                lines: 2,
                peer_inode: link.theirs,
            };
            all.push((
                Claim::Channel(*channel),
                Request::ClaimChannel { req, claim },
                Some((half, link.own)),
            ));
            for (pool, a) in &link.assigned {
                if link.role == Role::Sink || a.open {
                    let (channel, pool) = (*channel, *pool);
                    let request = Request::ClaimAssign { req, channel, pool };
                    all.push((Claim::Other, request, Some((counts, a.counts))));
                }
            }
        }
        all.push((Claim::Other, Request::ClaimDone { req }, None));
        for f in self.procs[i].foreign.values_mut() {
            (f.spoken_of, f.given_up) = (false, false);
        }
        for (claim, mut request, fd) in all {
            let now = self.req();
            match &mut request {
                Request::ClaimPool { req, .. }
                | Request::ClaimChunk { req, .. }
                | Request::ClaimReaderSet { req, .. }
                | Request::ClaimReader { req, .. }
                | Request::ClaimChannel { req, .. }
                | Request::ClaimAssign { req, .. }
                | Request::ClaimDone { req } => *req = now,
                _ => {}
            }
            let fds = fd
                .map(|(kind, inode)| self.fd(kind, inode))
                .into_iter()
                .collect();
            self.procs[i].claims.insert(now, claim);
            self.say(i, request, fds);
        }
    }

    /// Does a `turn`: comes back, looks for deaths, gives up pools that are over. Returns true if anything was done.
    pub fn looks(&mut self, i: usize) -> bool {
        let p = &mut self.procs[i];
        if p.client.is_none() && p.socket.is_empty() {
            p.pools.values_mut().for_each(Own::stands_alone);
        }
        if self.join(i) {
            return true;
        }
        let mut moved = false;
        let alive: BTreeSet<u64> = self.procs.iter().map(|p| p.id).collect();
        let closed = &self.closed;
        let mut over = Vec::new();
        for (channel, link) in &mut self.procs[i].links {
            let dead = !link.watched && link.made.is_none() && !alive.contains(&link.peer_process);
            link.gone |= closed.contains(&link.theirs) || dead;
            if link.gone {
                over.push(*channel);
            }
        }
        for channel in over {
            moved |= self.leave(i, channel);
        }
        moved |= self.gives_up_foreign(i);
        for own in self.procs[i].pools.values_mut() {
            let dead: Vec<DomainId> = own
                .readers
                .iter()
                .filter(|(d, r)| {
                    let unnamed =
                        !r.named || own.queues.values().any(|q| q.sink == **d && !q.named);
                    unnamed && !alive.contains(&r.process)
                })
                .map(|(d, _)| *d)
                .collect();
            for domain in dead {
                moved = true;
                own.readers.remove(&domain);
                own.queues.retain(|_, q| q.sink != domain);
            }
        }
        moved
    }

    fn gives_up_foreign(&mut self, i: usize) -> bool {
        let p = &mut self.procs[i];
        let links = &p.links;
        let over: Vec<PoolId> = p
            .foreign
            .iter()
            .filter(|(pool, f)| {
                let linked = links.values().any(|l| l.assigned.contains_key(pool));
                !f.spoken_of && !f.given_up && f.held.is_empty() && !linked
            })
            .map(|(pool, _)| *pool)
            .collect();
        for pool in &over {
            let Some(f) = self.procs[i].foreign.get_mut(pool) else {
                continue;
            };
            f.given_up = true;
            let mapped = match std::mem::take(&mut f.mapped) {
                nothing if nothing.is_empty() => BTreeSet::from([(0, 0)]),
                mapped => mapped,
            };
            for (index, serial) in mapped {
                let pool = *pool;
                let request = Request::Unmapped {
                    pool,
                    index,
                    serial,
                };
                self.say(i, request, vec![]);
            }
        }
        !over.is_empty()
    }

    /// Ends one end of a channel. A sink has taken the remaining messages. Returns false if no manager could be told:
    /// then the end is claimed first.
    pub fn leave(&mut self, i: usize, channel: ChannelId) -> bool {
        let up = self.procs[i].is_up();
        let Some(link) = self.procs[i].links.get_mut(&channel) else {
            return false;
        };
        if link.made.is_some() {
            return false;
        }
        self.closed.insert(link.own);
        if !up {
            let news = !link.leaving;
            link.leaving = true;
            return news;
        }
        let drained = link.role == Role::Sink && link.gone;
        self.procs[i].links.remove(&channel);
        if drained {
            self.say(i, Request::Drained { channel }, vec![]);
        }
        self.say(i, Request::CloseChannel { channel }, vec![]);
        true
    }

    /// Does an action of a program.
    pub fn acts(&mut self, i: usize) {
        if !self.procs[i].is_up() {
            let _ = self.join(i);
            return;
        }
        let req = self.req();
        let pools: Vec<PoolId> = self.procs[i].pools.keys().copied().collect();
        match self.rng.below(16) {
            0 if pools.len() + self.procs[i].creating.len() < 2 => {
                let table = self.fresh();
                self.procs[i].creating.insert(req, table);
                let fd = self.fd(2, table);
                let request = Request::CreatePool {
                    req,
                    name: "p".to_owned(),
                    shape: shape(Trust::Producer),
                };
                self.say(i, request, vec![fd]);
            }
            1 => {
                if let Some(pool) = self.rng.pick(&pools) {
                    let chunks = 1;
                    self.say(i, Request::Grant { req, pool, chunks }, vec![]);
                }
            }
            2 => self.shows(i, &pools, req),
            3 => {
                let Some(pool) = self.rng.pick(&pools) else {
                    return;
                };
                // Only a chunk in which nothing is alive.
                let own = &self.procs[i].pools[&pool];
                let used = |key| {
                    let mut others = self.procs.iter();
                    others.any(|p| p.foreign.get(&pool).is_some_and(|f| f.held.contains(&key)))
                };
                let mut idle = own.chunks.iter().map(|(k, v)| (*k, v.0));
                let idle = idle.find(|key| !used(*key));
                if let Some((index, serial)) = idle {
                    if let Some(own) = self.procs[i].pools.get_mut(&pool) {
                        own.chunks.remove(&index);
                        self.returned.insert((pool, (index, serial)));
                    }
                    let request = Request::ReturnChunk {
                        pool,
                        index,
                        serial,
                    };
                    self.say(i, request, vec![]);
                }
            }
            4 if !self.procs[i].exported => {
                self.procs[i].exported = true;
                let name = format!("n{}", self.procs[i].id);
                let role = Role::Source;
                self.say(i, Request::Export { req, name, role }, vec![]);
            }
            5 | 6 if self.procs[i].connecting.is_none() && self.procs[i].links.len() < 4 => {
                let others: Vec<u64> = self
                    .procs
                    .iter()
                    .map(|p| p.id)
                    .filter(|id| *id != self.procs[i].id)
                    .collect();
                let Some(other) = self.rng.pick(&others) else {
                    return;
                };
                let half = self.fresh();
                self.procs[i].connecting = Some((req, half));
                let fd = self.fd(7, half);
                let request = Request::Connect {
                    req,
                    name: format!("n{other}"),
                    role: Role::Sink,
                    lines: 2,
                    wait: false,
                };
                self.say(i, request, vec![fd]);
            }
            7..=10 => self.assigns(i, req),
            11 if self.rng.one_in(3) => {
                let links: Vec<ChannelId> = self.procs[i].links.keys().copied().collect();
                if let Some(channel) = self.rng.pick(&links) {
                    self.leave(i, channel);
                }
            }
            12 => self.procs[i]
                .foreign
                .values_mut()
                .for_each(|f| f.held.clear()),
            _ => self.takes(i),
        }
    }

    fn shows(&mut self, i: usize, pools: &[PoolId], req: Req) {
        let Some(pool) = self.rng.pick(pools) else {
            return;
        };
        let index = self.rng.below(4) as u32;
        let inode = self.fresh();
        let Some(own) = self.procs[i].pools.get_mut(&pool) else {
            return;
        };
        if own.granted == 0 || own.entry.is_none() || own.chunks.contains_key(&index) {
            return;
        }
        own.granted -= 1;
        own.serial += 1;
        let serial = own.serial;
        own.chunks.insert(index, (serial, inode));
        let fd = self.fd(0, inode);
        let request = Request::ShowChunks {
            req,
            pool,
            chunks: vec![(index, serial)],
            least: 1,
        };
        self.say(i, request, vec![fd]);
    }

    /// Sends for the first time by a source, from its own pool or one that it reads.
    fn assigns(&mut self, i: usize, req: Req) {
        let p = &self.procs[i];
        let sources: Vec<ChannelId> = p
            .links
            .iter()
            .filter(|(_, l)| l.role == Role::Source && l.made.is_none() && !l.leaving && !l.gone)
            .map(|(c, _)| *c)
            .collect();
        let forwarded: Vec<PoolId> = p
            .foreign
            .iter()
            .filter(|(_, f)| !f.held.is_empty())
            .map(|(k, _)| *k)
            .collect();
        let own: Vec<PoolId> = p.pools.keys().copied().collect();
        let forward = self.rng.one_in(2) && !forwarded.is_empty();
        let pools = if forward { forwarded } else { own };
        let (Some(channel), Some(pool)) = (self.rng.pick(&sources), self.rng.pick(&pools)) else {
            return;
        };
        let fresh = self.fresh();
        let Some(link) = self.procs[i].links.get_mut(&channel) else {
            return;
        };
        let a = link.assigned.entry(pool).or_insert(Assign {
            counts: fresh,
            refs: 0,
            open: false,
            asked: None,
        });
        if a.open || a.asked.is_some() {
            return;
        }
        a.asked = Some(req);
        let counts = a.counts;
        if forward {
            self.count("forwarded");
        }
        let fd = self.fd(4, counts);
        self.say(i, Request::Assign { req, channel, pool }, vec![fd]);
    }

    /// Lets a sink take messages, and keep some.
    fn takes(&mut self, i: usize) {
        let p = &self.procs[i];
        let mut taken = Vec::new();
        for (channel, link) in &p.links {
            let sink = link.role == Role::Sink && !link.leaving;
            for (pool, a) in link.assigned.iter().filter(|(_, a)| sink && a.open) {
                let Some(f) = p.foreign.get(pool).filter(|f| f.refs == a.refs) else {
                    continue;
                };
                let key = f
                    .mapped
                    .iter()
                    .find(|key| !self.returned.contains(&(*pool, **key)));
                if let Some(key) = key
                    && self.dirty.contains(&(*channel, *pool))
                {
                    taken.push((*pool, *key));
                }
            }
        }
        for (pool, key) in taken {
            self.procs[i]
                .foreign
                .get_mut(&pool)
                .map(|f| f.held.insert(key));
            self.may_send(i, pool);
        }
    }

    /// Sends a buffer of a domain's pool on all of its open ways: one of its own, or one that it holds of another's.
    pub fn may_send(&mut self, i: usize, pool: PoolId) {
        let p = &self.procs[i];
        let holds = p.foreign.get(&pool).is_some_and(|f| !f.held.is_empty());
        if !holds && !p.pools.contains_key(&pool) {
            return;
        }
        let open = p.links.iter().filter(|(_, l)| {
            l.role == Role::Source && l.assigned.get(&pool).is_some_and(|a| a.open)
        });
        let open = open.map(|(channel, _)| (*channel, pool));
        self.dirty.extend(open);
    }
}
