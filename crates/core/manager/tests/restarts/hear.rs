//! A domain's reaction to an event.

use super::*;

impl World {
    /// Takes the oldest event in a domain's socket.
    pub fn hears(&mut self, i: usize) -> bool {
        let Some((event, inodes, control_page)) = self.procs[i].socket.pop_front() else {
            return false;
        };
        if std::env::var_os("TRANSHIP_TRACE").is_some() {
            println!("{:?} hears {event:?} {inodes:?}", self.procs[i].domain);
        }
        let p = &mut self.procs[i];
        match event {
            Event::Welcome {
                domain, resumed, ..
            } => {
                assert_eq!(
                    resumed,
                    p.domain.is_some(),
                    "{domain} instead of {:?}",
                    p.domain
                );
                p.domain = Some(domain);
                p.greeted = true;
                for own in p.pools.values_mut() {
                    (own.entry, own.alone) = (None, false);
                    own.queues.values_mut().for_each(|q| q.named = false);
                    own.readers.values_mut().for_each(|r| r.named = false);
                }
                p.control_page = control_page;
                if resumed && p.client.is_some() {
                    self.claim_all(i);
                }
            }
            Event::PoolCreated {
                req, pool, entry, ..
            } => {
                if let Some(table) = p.creating.remove(&req) {
                    let own = Own {
                        table,
                        ..Own::default()
                    };
                    p.pools.insert(pool, own);
                }
                if let Some(own) = p.pools.get_mut(&pool) {
                    (own.entry, own.epoch, own.alone) = (Some(entry), 1, false);
                }
            }
            Event::Granted { pool, chunks, .. } => {
                if let Some(own) = p.pools.get_mut(&pool) {
                    own.granted += chunks;
                }
            }
            Event::QueueJoined {
                pool,
                channel,
                sink,
                process,
                epoch,
                with_sent,
                new_reader,
            } => {
                let Some(own) = p.pools.get_mut(&pool) else {
                    return true;
                };
                let rcvd = inodes[0];
                own.queues.insert(
                    channel,
                    QueueOf {
                        sink,
                        process,
                        rcvd,
                        named: true,
                    },
                );
                if new_reader {
                    let at = 1 + usize::from(with_sent);
                    let (refs, process) = (inodes[at], inodes[at + 1]);
                    own.readers.insert(
                        sink,
                        ReaderOf {
                            refs,
                            process,
                            named: true,
                        },
                    );
                }
                own.epoch = own.epoch.max(epoch);
            }
            Event::QueueLeft {
                pool,
                channel,
                epoch,
            } => {
                if let Some(own) = p.pools.get_mut(&pool) {
                    own.queues.remove(&channel);
                    own.epoch = own.epoch.max(epoch);
                } else if let Some(link) = p.links.get_mut(&channel)
                    && link.assigned.remove(&pool).is_some()
                {
                    let takes = link.role == Role::Sink && !link.leaving;
                    let may_come = takes && self.dirty.contains(&(channel, pool));
                    assert!(!may_come, "an assignment ends before its messages");
                    self.count("assignment ended");
                }
            }
            Event::ReaderLeft {
                pool,
                domain,
                epoch,
            } => {
                if let Some(own) = p.pools.get_mut(&pool) {
                    own.readers.remove(&domain);
                    own.epoch = own.epoch.max(epoch);
                }
            }
            Event::PeerGone { channel, .. } => {
                if let Some(link) = p.links.get_mut(&channel) {
                    link.gone = true;
                }
            }
            Event::ChunkAdded {
                pool,
                index,
                serial,
            } => {
                if let Some(f) = p.foreign.get_mut(&pool) {
                    f.mapped.retain(|(at, _)| *at != index);
                    f.mapped.insert((index, serial));
                }
            }
            Event::ChunkGone {
                pool,
                index,
                serial,
            } => {
                let mut had = false;
                if let Some(f) = p.foreign.get_mut(&pool) {
                    assert!(
                        !f.held.contains(&(index, serial)),
                        "a chunk is taken away that is in use"
                    );
                    had = f.mapped.remove(&(index, serial));
                }
                if had {
                    self.may_take_away(i, pool, (index, serial));
                }
                let request = Request::Unmapped {
                    pool,
                    index,
                    serial,
                };
                self.say(i, request, vec![]);
            }
            Event::PoolGone { pool } => {
                let linked = p.links.values().any(|l| l.assigned.contains_key(&pool));
                if let Some(f) = p.foreign.get_mut(&pool) {
                    assert!(f.held.is_empty(), "a pool is taken away that is in use");
                    let had = std::mem::take(&mut f.mapped);
                    (f.spoken_of, f.given_up) = (false, false);
                    if !linked {
                        p.foreign.remove(&pool);
                    }
                    for key in had {
                        self.may_take_away(i, pool, key);
                    }
                }
            }
            Event::PoolOpen { channel, pool } => {
                let a = p
                    .links
                    .get_mut(&channel)
                    .and_then(|l| l.assigned.get_mut(&pool));
                if let Some(a) = a {
                    a.open = true;
                    self.count("opened");
                }
            }
            Event::PoolOffer { channel, pool, .. } => self.is_offered(i, channel, pool, inodes[0]),
            Event::Incoming { channel, peer, .. } => self.is_called(i, channel, peer, inodes[0]),
            Event::Refused { .. }
            | Event::Claimed { .. }
            | Event::Opened { .. }
            | Event::Accepted { .. }
            | Event::Assigned { .. } => self.is_answered(i, &event, &inodes),
            _ => {}
        }
        true
    }

    fn is_answered(&mut self, i: usize, event: &Event, inodes: &[Inode]) {
        let p = &mut self.procs[i];
        match *event {
            Event::Assigned { req, channel, pool } => {
                let link = p.links.get_mut(&channel);
                if let Some(a) = link.and_then(|l| l.assigned.get_mut(&pool))
                    && a.asked == Some(req)
                {
                    (a.asked, a.open) = (None, true);
                    self.may_send(i, pool);
                }
            }
            Event::Refused { req, .. } => {
                let claim = p.claims.remove(&req);
                if p.connecting.is_some_and(|(r, _)| r == req) {
                    p.connecting = None;
                }
                p.creating.remove(&req);
                p.links.retain(|_, l| l.made != Some(req));
                for link in p.links.values_mut() {
                    link.assigned.retain(|_, a| a.asked != Some(req));
                }
                if let Some(Claim::Pool(pool)) = claim
                    && let Some(own) = p.pools.get_mut(&pool)
                {
                    own.stands_alone();
                }
                if claim.is_some() {
                    self.count("claim refused");
                }
            }
            Event::Claimed { req } => {
                if let Some(Claim::Channel(channel)) = p.claims.remove(&req)
                    && let Some(link) = p.links.get_mut(&channel)
                {
                    link.watched = true;
                    if link.leaving && p.client.is_some() {
                        p.links.remove(&channel);
                        self.say(i, Request::CloseChannel { channel }, vec![]);
                    }
                }
            }
            Event::Opened {
                req, channel, peer, ..
            } => {
                let mine = p.connecting.take_if(|(r, _)| *r == req);
                let Some((_, own)) = mine else { return };
                p.links.insert(
                    channel,
                    Link::new(Role::Sink, peer, inodes[1], own, inodes[0], None),
                );
            }
            Event::Accepted { channel, .. } => {
                if let Some(link) = p.links.get_mut(&channel) {
                    (link.made, link.peer_process) = (None, inodes[0]);
                }
            }
            _ => {}
        }
    }

    fn is_called(&mut self, i: usize, channel: ChannelId, peer: DomainId, theirs: Inode) {
        if self.procs[i].client.is_none() {
            return;
        }
        let (req, own) = (self.req(), self.fresh());
        self.procs[i].links.insert(
            channel,
            Link::new(Role::Source, peer, 0, own, theirs, Some(req)),
        );
        let fd = self.fd(6, own);
        let lines = 2;
        self.say(
            i,
            Request::Accept {
                req,
                channel,
                lines,
            },
            vec![fd],
        );
    }

    fn is_offered(&mut self, i: usize, channel: ChannelId, pool: PoolId, table: Inode) {
        let (counts, fresh_refs) = (self.fresh(), self.fresh());
        let p = &mut self.procs[i];
        let Some(link) = p.links.get_mut(&channel) else {
            return self.say(
                i,
                Request::VetoPool {
                    channel,
                    pool,
                    levels: None,
                },
                vec![],
            );
        };
        let refs = if p.pools.contains_key(&pool) {
            0
        } else {
            let f = p.foreign.entry(pool).or_insert(Foreign {
                table,
                refs: fresh_refs,
                mapped: BTreeSet::new(),
                spoken_of: true,
                given_up: false,
                held: BTreeSet::new(),
            });
            (f.spoken_of, f.given_up) = (true, false);
            f.refs
        };
        let a = link.assigned.entry(pool).or_insert(Assign {
            counts,
            refs,
            open: false,
            asked: None,
        });
        let counts = a.counts;
        let mut fds = vec![self.fd(5, counts)];
        // As often as the library may: also if the manager knows them.
        let with_refs = refs != 0;
        if with_refs {
            fds.push(self.fd(3, refs));
        }
        let request = Request::AcceptPool {
            channel,
            pool,
            with_refs,
        };
        self.say(i, request, fds);
    }
}

impl Link {
    fn new(
        role: Role,
        peer: DomainId,
        peer_process: u64,
        own: Inode,
        theirs: Inode,
        made: Option<Req>,
    ) -> Link {
        Link {
            role,
            peer,
            peer_process,
            own,
            theirs,
            assigned: BTreeMap::new(),
            made,
            watched: true,
            leaving: false,
            gone: false,
        }
    }
}
