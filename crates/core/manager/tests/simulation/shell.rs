//! The shell around the state machine: answers for the processes, and checks the order of events.

use super::simulated::Orphan;
use super::*;
use std::ops::Range;

impl Simulated for World {
    fn shell(&mut self) -> &mut Shell {
        &mut self.shell
    }

    fn before(&mut self, input: &Input) {
        self.showing = matches!(
            input,
            Input::Request {
                request: Request::ShowChunks { .. } | Request::ClaimChunk { .. },
                ..
            }
        );
        self.domains_before = self.shell.state.population()[0];
        self.note_heaps(input);
        self.note_given_back(input);
    }

    fn after(&mut self, input: &Input) {
        let ended = self.shell.state.population()[0] < self.domains_before;
        if ended && matches!(input, Input::HungUp { .. }) {
            self.count("ended with its heaps");
        }
        let books = self.heap_books.iter().map(|(id, (_, n))| (*id, *n));
        assert_eq!(self.shell.state.heaps(), books.collect(), "heaps");
    }

    fn hears(&mut self, client: ClientId, event: Event, fds: Vec<FdToken>) -> bool {
        self.check_order(client, &event);
        self.check_admitted(client, &event);
        self.check_trust(client, &event, &fds);
        if let Event::ChunkAdded {
            pool,
            index,
            serial,
        } = event
            && self.showing
        {
            self.waited.insert((client, pool, index, serial));
        }
        if let Event::QueueJoined { pool, channel, .. } = event {
            let known = self.joined.entry((pool, channel));
            let known = known.or_insert((fds[0], false));
            assert_eq!(known.0, fds[0], "the counters of a queue changed");
        }
        let to = self.proc_of(client);
        let to = to.unwrap_or_else(|| panic!("event to nobody: {event:?}"));
        to.queue.push_back((event, fds));
        false
    }

    fn is_dropped(&mut self, client: ClientId, refusal: Option<Refusal>) {
        self.heaps_end(client);
        self.control_page_of.remove(&client);
        self.count(match refusal {
            Some(_) => "expelled",
            None => "parted",
        });
        if let Some(p) = self.proc_of(client) {
            p.client = None;
            p.queue.clear();
        }
    }

    fn is_closed(&mut self, token: FdToken) -> bool {
        self.control_pages.retain(|(b, _), _| *b != token);
        self.joined.retain(|_, (rcvd, _)| *rcvd != token);
        self.rng.one_in(2)
    }

    fn entry_is_set(&mut self, at: (FdToken, u32), pool: Option<PoolId>, epoch: u64) {
        let old = self.control_pages.insert(at, (epoch, pool));
        if let (Some((old, was)), Some(_)) = (old, pool) {
            assert!(
                was != pool || old <= epoch,
                "epoch of {pool:?} fell from {old} to {epoch}"
            );
        }
    }

    fn alive(&mut self, orphan: &Orphan) -> Option<Vec<(u32, u32)>> {
        let live = if self.all_lives {
            vec![(0, 15)]
        } else if self.rng.one_in(3) {
            vec![(0, 2)]
        } else {
            Vec::new()
        };
        self.count(match orphan.table {
            Some(_) => "orphan read",
            None => "unclaimed read",
        });
        (!self.rng.one_in(20)).then_some(live)
    }

    fn figures(&mut self) -> Option<Figures> {
        self.count("figures read");
        let rng = &mut self.rng;
        let mut any = || rng.next() >> rng.below(64);
        let figures = Figures {
            blocked_ns: any(),
            collect_ns: any(),
            allocs: any(),
            live_bytes: any(),
            peak_bytes: any(),
            cached: any(),
            live_buffers: any(),
            waiters: any(),
            garbage_bytes: any(),
            cached_bytes: any(),
            padding_bytes: any(),
            collections: any(),
        };
        (!self.rng.one_in(4)).then_some(figures)
    }

    /// Most of it stays the same from one look to the next.
    fn held(&mut self, _: DomainId, slots: Range<u32>) -> Vec<HeldSlot> {
        self.count("held read");
        let some = slots.filter(|_| self.rng.one_in(2)).collect::<Vec<_>>();
        let held = some.into_iter().map(|slot| HeldSlot {
            slot,
            generation: if self.rng.one_in(4) { 4 } else { 2 },
            bytes: self.rng.next() >> self.rng.below(64),
            moved: self.rng.one_in(8),
        });
        held.collect()
    }

    fn is_hog(&mut self, notice: &HogNotice) {
        self.count("hog");
        assert!(notice.action.is_none() || notice.charged_bytes > notice.over_bytes);
    }
}

impl World {
    /// Notes the effect of an input on the books about heaps, except answers.
    fn note_heaps(&mut self, input: &Input) {
        match input {
            Input::HungUp { client } => self.heaps_end(*client),
            Input::Request {
                client,
                request,
                fds,
            } if fds.is_empty() => match request {
                Request::GiveBack { heap, bytes } => {
                    if let Some((_, n)) = self.heap_books.get_mut(heap).filter(|(c, _)| c == client)
                    {
                        *n = n.saturating_sub(*bytes);
                    }
                }
                Request::DestroyHeap { heap } => {
                    self.heap_books.retain(|h, (c, _)| h != heap || c != client);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Ends a connection, and its heaps with it.
    fn heaps_end(&mut self, client: ClientId) {
        self.heap_books.retain(|_, (c, _)| *c != client);
        if let Some(p) = self.proc_of(client) {
            let heaps = std::mem::take(&mut p.heaps);
            p.held.extend(heaps.into_values());
        }
    }

    /// Checks that at most the requested bytes are admitted.
    fn check_admitted(&mut self, client: ClientId, event: &Event) {
        match *event {
            Event::HeapCreated {
                req,
                heap,
                admitted_bytes,
                quota_bytes,
            } => {
                let (_, held) = self.asked.remove(&req).expect("asked for");
                assert!(admitted_bytes <= held.min(quota_bytes));
                assert!(
                    self.pools_seen.insert(heap),
                    "heap {heap} was handed out twice"
                );
                let old = self.heap_books.insert(heap, (client, admitted_bytes));
                assert!(old.is_none(), "heap {heap} is there twice");
            }
            Event::Admitted { req, heap, bytes } => {
                let (least, most) = self.asked.remove(&req).expect("asked for");
                assert!((least.max(1)..=most).contains(&bytes), "{event:?}");
                if bytes < most {
                    self.count("admitted in part");
                }
                let book = self.heap_books.get_mut(&heap).expect("a heap");
                assert_eq!(book.0, client, "somebody else's heap");
                book.1 += bytes;
            }
            _ => {}
        }
    }

    /// Rules between events of different clients that hold at the moment of queueing.
    pub(super) fn check_order(&mut self, client: ClientId, event: &Event) {
        match event {
            Event::Assigned { channel, pool, .. } => {
                self.check_told(*pool, *channel, event);
                self.count("assigned");
            }
            Event::QueueJoined { pool, epoch, .. }
            | Event::QueueLeft { pool, epoch, .. }
            | Event::ReaderLeft { pool, epoch, .. } => {
                let control_page = self.control_page_of.get(&client).copied();
                let stored = self
                    .control_pages
                    .iter()
                    .find(|((b, _), (_, p))| Some(*b) == control_page && *p == Some(*pool));
                let stored = stored.map(|(_, (e, _))| *e).unwrap_or(0);
                assert!(
                    stored >= *epoch,
                    "reader set event with epoch {epoch}, the control page says {stored}"
                );
            }
            Event::ChunkReady {
                pool,
                index,
                serial,
                ..
            } => self.check_ready(client, *pool, (*index, *serial)),
            Event::ChunksReady { req, pool, chunks } => {
                let shown = self.proc_of(client).and_then(|p| p.shown.get(req).cloned());
                let (of, keys) = shown.expect("shown over this connection");
                assert!(of == *pool && (1..=keys.len()).contains(&(*chunks as usize)));
                self.count(match keys.len() {
                    1 => "one at once",
                    n if n == *chunks as usize => "all at once",
                    _ => "some of those shown",
                });
                for key in keys.into_iter().take(*chunks as usize) {
                    self.check_ready(client, *pool, key);
                }
            }
            Event::PoolCreated { pool, .. } => {
                let claimed = self
                    .proc_of(client)
                    .is_some_and(|p| p.pools.contains_key(pool));
                assert!(
                    self.pools_seen.insert(*pool) || claimed,
                    "pool {pool} was handed out twice"
                );
            }
            Event::Incoming { channel, .. } => {
                assert!(
                    self.channels_seen.insert(*channel),
                    "channel {channel} was handed out twice"
                );
            }
            Event::Welcome {
                domain, resumed, ..
            } => {
                assert!(
                    self.domains_seen.insert(*domain) || *resumed,
                    "domain {domain} was handed out twice"
                );
            }
            Event::PoolOpen { channel, pool } => self.check_told(*pool, *channel, event),
            Event::PoolOffer { .. } => self.count("pool offer"),
            Event::Accepted { .. } => self.count("channel"),
            Event::ChunkAdded { .. } => self.count("chunk added"),
            Event::ChunkGone { .. } => self.count("chunk gone"),
            Event::PoolGone { .. } => self.count("pool gone"),
            Event::Refused { .. } => self.count("refused"),
            _ => {}
        }
    }

    /// Notes that a writer gives a chunk back before it is ready: a chunk that readers may not know must not be used.
    fn note_given_back(&mut self, input: &Input) {
        let Input::Request {
            client,
            request:
                Request::ReturnChunk {
                    pool,
                    index,
                    serial,
                },
            ..
        } = input
        else {
            return;
        };
        let owns = |p: &mut Proc| p.pools.contains_key(pool);
        if self.proc_of(*client).is_some_and(owns) {
            let given = (*pool, *index, *serial);
            self.waited.retain(|&(_, p, i, s)| (p, i, s) != given);
        }
    }

    /// Checks that no reader still has a chunk queued which its writer may use.
    fn check_ready(&mut self, client: ClientId, pool: PoolId, (index, serial): (u32, u32)) {
        let added = Event::ChunkAdded {
            pool,
            index,
            serial,
        };
        let queued = self.procs.iter().any(|p| {
            let waits = |c| self.waited.contains(&(c, pool, index, serial));
            let took = p.returned || p.seen.contains(&(pool, index, serial));
            p.client.is_some_and(waits) && !took && p.queue.iter().any(|(e, _)| *e == added)
        });
        let claimed = self.proc_of(client).is_some_and(|p| !p.claimed);
        assert!(
            !queued || claimed,
            "ready while ChunkAdded has not gone out"
        );
        self.count("chunk ready");
        if self.blocking {
            self.count("ready before it went out");
        }
    }

    /// Checks the order and the seals of events. A message that opens a queue comes only after the queue was sent to
    /// its writer, by this manager or an earlier one: a manager that is killed in between leaves no reader that the
    /// writer's collector does not see. A pool keeps its level, and each of its chunks is sealed accordingly.
    fn check_trust(&mut self, client: ClientId, event: &Event, fds: &[FdToken]) {
        match event {
            Event::PoolCreated { pool, .. } => {
                let writer = self.procs.iter().position(|p| p.client == Some(client));
                let trust = self.trust(writer.expect("a process"));
                let before = *self.trusts.entry(*pool).or_insert(trust);
                assert_eq!(before, trust, "{pool} has another level than before");
            }
            Event::PoolOffer { pool, shape, .. } => {
                assert_eq!(self.trusts.get(pool), Some(&shape.trust), "{pool}");
            }
            Event::ChunkAdded { pool, .. } => {
                let shared = self.sealed[&fds[0]] == Sealed::Shared;
                assert_eq!(shared, self.trusts[pool].all_write(), "a chunk of {pool}");
            }
            _ => {}
        }
    }

    fn check_told(&mut self, pool: PoolId, channel: ChannelId, event: &Event) {
        let told = self.joined.get(&(pool, channel)).is_some_and(|j| j.1);
        let sees = |p: &Proc| {
            p.reader_sets
                .get(&pool)
                .is_some_and(|r| r.contains(&channel))
        };
        let brought = self
            .procs
            .iter()
            .any(|p| p.pools.contains_key(&pool) && sees(p));
        assert!(
            told || brought || !self.shell.state.is_written(pool),
            "{event:?} before the writer was told"
        );
        let later = self
            .procs
            .iter()
            .any(|p| p.pools.contains_key(&pool) && p.returned);
        if later && told {
            self.count("opened later");
        }
    }

    /// Checks that a writer that has applied its control page's epoch, and so may collect, sees every open queue. It
    /// may see no others, except those that it brought from an earlier manager.
    pub(super) fn check_reader_sets(&mut self, i: usize) {
        let Some(p) = self
            .procs
            .get(i)
            .filter(|p| p.claimed && p.client.is_some())
        else {
            return;
        };
        let mut checked = 0;
        for (pool, epoch) in &p.epochs {
            let Some((now, open)) = self
                .shell
                .state
                .reader_set(*pool)
                .filter(|_| p.pools.contains_key(pool))
            else {
                continue;
            };
            if now != *epoch {
                continue;
            }
            let none = BTreeSet::new();
            let seen = p.reader_sets.get(pool).unwrap_or(&none);
            assert!(
                open.is_subset(seen),
                "{pool}: {open:?} are open, {seen:?} seen"
            );
            if p.made.get(pool) == Some(&p.instance) {
                assert_eq!(&open, seen, "{pool}: stale queues");
            }
            checked += u64::from(!open.is_empty());
        }
        *self.counts.entry("reader set checked").or_default() += checked;
    }
}
