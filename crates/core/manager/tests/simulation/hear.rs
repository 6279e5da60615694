//! A process's reaction to an event, and its claims when it comes back.

use super::*;

impl Proc {
    /// Keeps the taken ones of the chunks that it showed.
    fn unshow(&mut self, req: Req, taken: u32) {
        let Some((pool, keys)) = self.shown.remove(&req) else {
            return;
        };
        if let Some(own) = self.pools.get_mut(&pool) {
            let rest = &keys[(taken as usize).min(keys.len())..];
            own.retain(|index, serial| !rest.contains(&(*index, *serial)));
        }
    }
}

impl World {
    /// Sends the oldest event of a process, which takes it.
    pub(super) fn take(&mut self, i: usize) {
        let Some((event, fds)) = self.procs[i].queue.pop_front() else {
            return;
        };
        if let Event::QueueJoined { pool, channel, .. } = event
            && let Some((rcvd, told)) = self.joined.get_mut(&(pool, channel))
        {
            *told |= fds.first() == Some(rcvd);
        }
        let Some(client) = self.procs[i].client else {
            return;
        };
        if traced() {
            println!("  {client:?} takes {event:?}");
        }
        let p = &mut self.procs[i];
        let mut claims = None;
        match event {
            Event::Welcome {
                domain,
                instance,
                resumed,
                ..
            } => {
                let same = instance == p.instance;
                if !resumed {
                    let (id, client, queue, deaf) =
                        (p.id, p.client, std::mem::take(&mut p.queue), p.deaf);
                    *p = Proc {
                        id,
                        client,
                        queue,
                        deaf,
                        claimed: true,
                        ..Proc::default()
                    };
                } else {
                    claims = Some(same);
                    p.claimed = false;
                    p.returned = true;
                    p.epochs.clear();
                }
                (p.domain, p.instance) = (Some(domain), instance);
            }
            Event::PoolCreated { pool, entry, .. } => {
                p.pools.entry(pool).or_default();
                p.made.entry(pool).or_insert(p.instance);
                p.entries.insert(pool, entry);
                p.epochs.insert(pool, 1);
            }
            // Chunks that were not taken are gone.
            Event::ChunksReady { req, chunks, .. } => p.unshow(req, chunks),
            Event::Refused { req, .. } => p.unshow(req, 0),
            Event::QueueJoined {
                pool,
                channel,
                epoch,
                ..
            } => {
                p.assigned.insert((channel, pool));
                p.reader_sets.entry(pool).or_default().insert(channel);
                let last = p.epochs.insert(pool, epoch).unwrap_or(1);
                assert_eq!(
                    epoch,
                    last + 1,
                    "the writer missed a change of its reader set"
                );
            }
            // To an end of the channel: the pool is gone.
            Event::QueueLeft { epoch: 0, .. } => {}
            Event::QueueLeft { pool, epoch, .. } | Event::ReaderLeft { pool, epoch, .. } => {
                if let Event::QueueLeft { channel, .. } = event {
                    p.reader_sets.entry(pool).or_default().remove(&channel);
                }
                let last = p.epochs.insert(pool, epoch).unwrap_or(1);
                assert_eq!(
                    epoch,
                    last + 1,
                    "the writer missed a change of its reader set"
                );
            }
            Event::Incoming { channel, peer, .. } => p.incoming.push((channel, peer)),
            Event::Opened { channel, peer, .. } => {
                p.channels.insert(channel, (Role::Sink, peer));
            }
            Event::PoolOffer {
                channel,
                pool,
                known,
                ..
            } => p.offers.push((channel, pool, known)),
            Event::ChunkAdded {
                pool,
                index,
                serial,
            } => {
                p.seen.insert((pool, index, serial));
                p.reads.entry(pool).or_default().insert((index, serial));
            }
            Event::ChunkGone {
                pool,
                index,
                serial,
            } => {
                p.gone.insert((pool, index, serial));
            }
            Event::HeapCreated {
                heap,
                admitted_bytes,
                ..
            } => {
                p.heaps.insert(heap, admitted_bytes);
            }
            Event::Admitted { heap, bytes, .. } => {
                *p.heaps.entry(heap).or_default() += bytes;
            }
            Event::PeerGone { channel, .. } => {
                p.left.insert(channel);
            }
            _ => {}
        }
        self.feed(Input::Sent { client });
        self.check_reader_sets(i);
        if let Some(same) = claims {
            self.claim(i, same);
        }
    }

    pub(super) fn claim(&mut self, i: usize, _same: bool) {
        self.count("claimed");
        let chunks = self.procs[i].pools.clone();
        for (pool, chunks) in chunks {
            let (req, fd) = (self.req(), self.table());
            let name = "p".to_owned();
            let request = Request::ClaimPool {
                req,
                pool,
                name,
                shape: shape(self.trust(i)),
            };
            self.say(i, request, vec![fd]);
            for (index, serial) in chunks {
                if self.rng.one_in(10) {
                    continue;
                }
                let (req, fd) = (self.req(), self.chunk(i));
                self.say(
                    i,
                    Request::ClaimChunk {
                        req,
                        pool,
                        index,
                        serial,
                    },
                    vec![fd],
                );
            }
            // All domains that it may have seen as readers; every counter has inode 0 here.
            let (req, most) = (self.req(), self.rng.below(64));
            let readers = self.domains_seen.iter().rev().take(most);
            let readers: Vec<_> = readers.map(|d| (*d, 0)).collect();
            let reader_set = self.procs[i].reader_sets.get(&pool).into_iter().flatten();
            let sink = readers.first().map_or(DomainId(1), |r| r.0);
            let queues = reader_set.map(|c| (*c, sink, 0)).collect();
            let request = Request::ClaimReaderSet {
                req,
                pool,
                readers,
                queues,
            };
            self.say(i, request, vec![]);
        }
        self.procs[i].shown.clear();
        for (pool, mapped) in self.procs[i].reads.clone() {
            let (req, fd) = (self.req(), self.counters(3));
            let mut mapped: Vec<_> = mapped.into_iter().collect();
            if self.rng.one_in(4) {
                mapped.push((self.rng.below(20) as u32, self.rng.below(99) as u32));
            }
            let table = u64::from(self.rng.one_in(9));
            let trust = match self.trusts.get(&pool) {
                Some(trust) if !self.rng.one_in(20) => *trust,
                _ => Trust::Full,
            };
            self.say(
                i,
                Request::ClaimReader {
                    req,
                    pool,
                    slots: SLOTS,
                    table,
                    trust,
                    mapped,
                },
                vec![fd],
            );
        }
        for (channel, (role, peer)) in self.procs[i].channels.clone() {
            if self.rng.one_in(8) {
                continue;
            }
            let (req, fd) = (self.req(), self.half(role));
            let claim = ChannelClaim {
                channel,
                name: "n".to_owned(),
                role,
                peer,
                lines: 2,
                peer_inode: 0,
            };
            self.say(i, Request::ClaimChannel { req, claim }, vec![fd]);
            let mine: Vec<_> = self.procs[i]
                .assigned
                .iter()
                .filter(|(c, _)| *c == channel)
                .copied()
                .collect();
            for (channel, pool) in mine {
                let kind = if role == Role::Source { 4 } else { 5 };
                let (req, fd) = (self.req(), self.counters(kind));
                self.say(i, Request::ClaimAssign { req, channel, pool }, vec![fd]);
            }
        }
        let req = self.req();
        self.say(i, Request::ClaimDone { req }, vec![]);
        self.procs[i].claimed = true;
    }
}
