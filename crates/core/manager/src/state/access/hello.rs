//! Connections: coming, saying hello, hanging up, being thrown out.

use crate::state::books::back_refs::{ENDS, HEAPS, NAMED, READS, WRITES};
use crate::state::model::{Claiming, Domain};
use crate::state::types::{Action, ClientId, FdToken};
use crate::state::{Of, State, barred, refusal};
use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{
    AccessRule, DomainId, Event, GoneReason, PROTOCOL_VERSION, PoolId, Refusal, RefusalCode,
    Request, check_name,
};

impl State {
    /// Says whether a user may connect now.
    pub fn admits(&self, uid: u32, gid: u32) -> Result<(), Refusal> {
        if !self.cx.config.may_connect(uid, gid) {
            return Err(barred(uid, AccessRule::Connect));
        }
        self.cx.accounts.check(uid, Of::Connections, 1)?;
        self.cx.accounts.check_descriptors(uid, 1)
    }

    pub(crate) fn connected(&mut self, client: ClientId, uid: u32, gid: u32, pid: u32) {
        let refused = self.admits(uid, gid).err();
        let accounts = &mut self.cx.accounts;
        self.cx.descriptors.connected(client, uid, accounts);
        if refused.is_some() {
            self.cx.out.push(Action::Disconnect {
                client,
                refusal: refused,
            });
            return;
        }
        let who = (uid, gid, pid);
        self.cx.clients.insert(client, who, self.cx.now);
        self.cx.accounts.add(uid, Of::Connections, 1);
    }

    pub(crate) fn hello(
        &mut self,
        client: ClientId,
        request: &Request,
        pidfd: Option<FdToken>,
        process: u64,
        control_page: Option<FdToken>,
    ) {
        let checked = self.check_hello(client, request);
        let uid = self.cx.clients.get(client).map_or(0, |c| c.uid);
        let checked = checked.and_then(|()| self.cx.accounts.check_descriptors(uid, 2));
        let checked = checked.and_then(|()| self.hogs.check_barred(uid, process));
        match (checked, pidfd, control_page) {
            (Ok(()), Some(pidfd), Some(control_page)) => {
                self.welcome(client, request, pidfd, process, control_page);
            }
            (checked, _, _) => {
                self.cx
                    .out
                    .extend(pidfd.into_iter().chain(control_page).map(Action::Close));
                let why = checked.err().unwrap_or(self.cx.accounts.no_descriptors());
                self.cx.clients.expel(client, why);
            }
        }
    }

    fn check_hello(&self, client: ClientId, request: &Request) -> Result<(), Refusal> {
        let Request::Hello { version, name, .. } = request else {
            return Err(refusal(RefusalCode::State, 0, 0));
        };
        if *version != PROTOCOL_VERSION {
            let (asked, ours) = (u64::from(*version), u64::from(PROTOCOL_VERSION));
            return Err(refusal(RefusalCode::Version, asked, ours));
        }
        if !check_name(name) {
            return Err(refusal(RefusalCode::BadName, name.len() as u64, 64));
        }
        match self.cx.clients.get(client) {
            Some(c) if c.domain.is_none() => Ok(()),
            _ => Err(refusal(RefusalCode::State, 0, 0)),
        }
    }

    fn welcome(
        &mut self,
        client: ClientId,
        request: &Request,
        pidfd: FdToken,
        process: u64,
        control_page: FdToken,
    ) {
        let Request::Hello {
            name,
            resume,
            dumpable,
            ..
        } = request
        else {
            return;
        };
        let Some((uid, gid, pid)) = self.cx.clients.get(client).map(|c| (c.uid, c.gid, c.pid))
        else {
            return;
        };
        let entries = self.cx.config.pools_per_domain;
        let same = resume.filter(|id| {
            let its = self.cx.domains.get(id);
            !self.endings.has(*id) && its.is_some_and(|d| d.process == process && d.uid == uid)
        });
        // A dead writer's remaining objects are counted under its id until the last reader has let go.
        let left = |id: DomainId| self.back_refs.of(id, WRITES).next().is_some();
        let free = resume.filter(|id| id.0 != 0 && !self.general_id_taken(id.0) && !left(*id));
        let id = if let Some(id) = same {
            self.come_back(id, client, control_page);
            // The domain is counted already.
            self.cx.accounts.sub(uid, Of::Connections, 1);
            self.cx.out.push(Action::Close(pidfd));
            id
        } else {
            let id = free.unwrap_or_else(|| DomainId(self.fresh_id()));
            self.cx.hold(pidfd, uid);
            self.cx.hold_control_page(control_page, uid);
            let domain = Domain {
                maker: self.cx.descriptors.maker(),
                name: name.clone(),
                uid,
                gid,
                pid,
                process,
                dumpable: *dumpable,
                key: None,
                pidfd,
                control_page,
                client: Some(client),
                claiming: free.map(|_| Claiming::default()),
                unheard: false,
                entries: vec![None; entries as usize],
                bytes: 0,
                stranded_bytes: 0,
                lingering: BTreeMap::new(),
                backlog: BTreeMap::new(),
                feeding: BTreeSet::new(),
            };
            self.cx.domains.insert(id, domain);
            self.cx.out.push(Action::Watch { pidfd, domain: id });
            id
        };
        self.cx.clients.welcome(client, id);
        let welcome = Event::Welcome {
            domain: id,
            instance: self.cx.instance,
            resumed: same.or(free).is_some(),
            control_page_entries: entries,
            total_bytes: self.cx.total_bytes,
        };
        self.cx.push(client, welcome, &[control_page]);
    }

    /// Handles a process that is back at the manager which it left.
    fn come_back(&mut self, id: DomainId, client: ClientId, control_page: FdToken) {
        if let Some(old) = self.cx.client_of(id) {
            self.cx.out.push(Action::Disconnect {
                client: old,
                refusal: None,
            });
            self.hung_up(old);
        }
        // Its old control page is no longer written: a process that still collects by it has to stop before anything
        // changes.
        let pools: Vec<PoolId> = self.cx.domains.get(&id).map_or(Vec::new(), |d| {
            d.entries.iter().flatten().copied().collect()
        });
        for pool in pools {
            if let (Some(control_page), Some(p)) = (
                self.pools.control_page_of(&self.cx, pool),
                self.pools.get(&pool),
            ) {
                self.cx.out.push(Action::SetEntry {
                    control_page,
                    entry: p.entry,
                    pool: Some(pool),
                    epoch: u64::MAX,
                    quota_bytes: p.quota_bytes,
                });
            }
        }
        // A domain that lost its connection while it claimed claims everything again.
        let unfinished = |d: &Domain| d.claiming.as_ref().is_some_and(|c| !c.same);
        let same = !self.cx.domains.get(&id).is_some_and(unfinished);
        if !same {
            self.void_claims_of(id);
        }
        let Some(d) = self.cx.domains.get_mut(&id) else {
            return;
        };
        let (uid, old) = (d.uid, std::mem::replace(&mut d.control_page, control_page));
        d.client = Some(client);
        d.unheard = false;
        d.entries.fill(None);
        d.claiming = Some(Claiming {
            same,
            ..Claiming::default()
        });
        self.cx.release(old);
        self.cx.hold_control_page(control_page, uid);
    }

    /// Ends a connection, and with it a domain that had only heaps. No other domain knows it, and its process may by
    /// now run another program (`exec`), which is charged for its own heap.
    pub(crate) fn connection_ends(&mut self, client: ClientId) {
        let domain = self.cx.clients.domain_of(client);
        let heaps = domain.filter(|id| self.back_refs.of(*id, HEAPS).next().is_some());
        self.hung_up(client);
        if let Some(id) = heaps.filter(|id| self.has_nothing(*id)) {
            self.domain_ends(id, GoneReason::Closed);
        }
    }

    /// Says whether a domain without a connection has nothing that outlasts connections.
    fn has_nothing(&self, id: DomainId) -> bool {
        let forwards = |id: PoolId, me| {
            let p = self.pools.get(&id);
            p.is_some_and(|p| p.forwarders.contains(&me))
        };
        let d = self.cx.domains.get(&id);
        let claiming = d.is_some_and(|d| d.claiming.is_some() || d.unheard);
        let mut tried = self.claims.tried_by(id);
        let none = |kind| self.back_refs.of(id, kind).next().is_none();
        let written = self.back_refs.pools(id, WRITES);
        let named = self.back_refs.pools(id, NAMED);
        !claiming
            && !self.claims.any_of(id)
            && tried.next().is_none()
            && none(ENDS)
            && none(READS)
            && !written.into_iter().any(|p| self.pools.is_written(p))
            && !named.into_iter().any(|p| forwards(p, id))
    }

    /// Handles the end of a connection; a domain stays until its process ends.
    pub(crate) fn hung_up(&mut self, client: ClientId) {
        let Some(c) = self.client_leaves(client) else {
            return;
        };
        let Some(id) = c.domain else {
            return self.cx.accounts.sub(c.uid, Of::Connections, 1);
        };
        let Some(domain) = self.cx.domains.get_mut(&id) else {
            return;
        };
        domain.client = None;
        for pool in std::mem::take(&mut domain.feeding) {
            if let Some(r) = self.pools.reader_mut(pool, id) {
                r.feed = None;
                r.marked = true;
            }
        }
        for (pool, key) in c.chunks() {
            if let Some(r) = self.pools.reader_mut(pool, id) {
                r.marked = true;
            }
            self.pools.chunk_reached(&mut self.cx, pool, key, id);
        }
        self.detach(id);
    }

    pub(crate) fn expel_all(&mut self) {
        while let Some((client, why)) = self.cx.clients.next_expelled() {
            let refusal = Some(why);
            self.cx.out.push(Action::Disconnect { client, refusal });
            self.connection_ends(client);
        }
    }
}
