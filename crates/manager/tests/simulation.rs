//! Many clients, honest and not, against the state machine alone: random order, deaths, hang-ups, restarts.
//! The seed is printed; `TRANSHIP_SEED` sets it, `TRANSHIP_STEPS` the length.

#![allow(clippy::cast_possible_truncation)] // small random numbers

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tranship_manager::Config;
use tranship_manager::state::{
    Action, ClientId, Facts, Fd, FdToken, Header, IdStart, Input, State,
};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, Refusal, RefusalCode, Req,
    Request, Role,
};

const CHUNK: u64 = 4096;
const SLOTS: u32 = 16;
const TOTAL: u64 = 40 * CHUNK;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap()
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())].clone())
    }
}

/// A process with one domain, as it sees the world.
#[derive(Default)]
struct Proc {
    id: u64,
    client: Option<ClientId>,
    domain: Option<DomainId>,
    /// Same manager or a new one since the last `Welcome`.
    instance: u64,
    claimed: bool,
    /// Does it read its events?
    deaf: bool,
    queue: VecDeque<(Event, Vec<FdToken>)>,
    pools: BTreeMap<PoolId, BTreeMap<u32, u32>>,
    entries: BTreeMap<PoolId, u32>,
    epochs: BTreeMap<PoolId, u64>,
    granted: BTreeMap<PoolId, u32>,
    serial: u32,
    channels: BTreeMap<ChannelId, (Role, DomainId)>,
    incoming: Vec<(ChannelId, DomainId)>,
    offers: Vec<(ChannelId, PoolId, bool)>,
    reads: BTreeMap<PoolId, BTreeSet<(u32, u32)>>,
    assigned: BTreeSet<(ChannelId, PoolId)>,
    gone: BTreeSet<(PoolId, u32, u32)>,
    /// Chunks of which a copy has reached it (a resync sends more).
    seen: BTreeSet<(PoolId, u32, u32)>,
    /// It was away once: marked then, and nobody waited for it.
    returned: bool,
    left: BTreeSet<ChannelId>,
}

struct World {
    rng: Rng,
    state: State,
    now: Duration,
    procs: Vec<Proc>,
    tokens: BTreeSet<FdToken>,
    next_token: u64,
    next_client: u64,
    next_proc: u64,
    req: u32,
    boards: BTreeMap<(FdToken, u32), (u64, Option<PoolId>)>,
    board_of: BTreeMap<ClientId, FdToken>,
    instance: u64,
    /// Whose process each domain is watched by.
    watched: Vec<(u64, DomainId)>,
    greeting: u64,
    ids: IdStart,
    domains_seen: BTreeSet<DomainId>,
    pools_seen: BTreeSet<PoolId>,
    channels_seen: BTreeSet<ChannelId>,
    /// What happened how often, to see that the simulation reaches everything.
    counts: BTreeMap<&'static str, u64>,
}

fn config() -> Config {
    Config {
        pools_per_domain: 6,
        forward: tranship_manager::Forward::Readers,
        ..Config::default()
    }
}

impl World {
    fn new(seed: u64) -> World {
        let ids = IdStart {
            next: 1,
            next_pool: 0,
        };
        World {
            rng: Rng(seed),
            state: State::new(config(), TOTAL, 1, 1, ids),
            now: Duration::ZERO,
            procs: Vec::new(),
            tokens: BTreeSet::new(),
            next_token: 1,
            next_client: 1,
            next_proc: 1,
            req: 0,
            boards: BTreeMap::new(),
            board_of: BTreeMap::new(),
            instance: 1,
            watched: Vec::new(),
            greeting: 0,
            ids,
            domains_seen: BTreeSet::new(),
            pools_seen: BTreeSet::new(),
            channels_seen: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    fn token(&mut self) -> FdToken {
        let t = FdToken(self.next_token);
        self.next_token += 1;
        self.tokens.insert(t);
        t
    }

    fn fd(&mut self, kind: u32, count: u32, size: u64) -> Fd {
        // Sometimes it is not what it should be.
        let sealed = !self.rng.one_in(300);
        let kind = if self.rng.one_in(400) { 9 } else { kind };
        let header = Some(Header {
            kind,
            count,
            max_bytes: 16 * CHUNK,
            chunk_bytes: CHUNK,
        });
        Fd {
            token: self.token(),
            facts: Facts {
                sealed,
                size,
                header,
                socket: true,
                inode: 0,
            },
        }
    }

    fn counters(&mut self, kind: u32) -> Fd {
        self.fd(kind, SLOTS, 4096)
    }

    fn table(&mut self) -> Fd {
        self.fd(2, SLOTS, 8192)
    }

    fn half(&mut self, role: Role) -> Fd {
        self.fd(if role == Role::Source { 6 } else { 7 }, 2, 8192)
    }

    fn req(&mut self) -> Req {
        self.req += 1;
        Req(self.req)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn proc_of(&mut self, client: ClientId) -> Option<&mut Proc> {
        self.procs.iter_mut().find(|p| p.client == Some(client))
    }

    /// One input, all its actions, all that follows at once; then everything is looked through.
    fn feed(&mut self, input: Input) {
        if std::env::var_os("TRANSHIP_TRACE").is_some() {
            println!("{input:?}");
        }
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let actions = self.state.step(self.now, input);
            let mut disconnected = BTreeSet::new();
            for action in actions {
                self.act(action, &mut inputs, &mut disconnected);
            }
            if let Err(e) = self.state.audit() {
                panic!("{e}");
            }
        }
        let (granted, stranded) = self.state.memory();
        assert!(granted + stranded <= TOTAL);
        assert_eq!(
            self.state.held_tokens(),
            self.tokens,
            "descriptors leaked or were closed early"
        );
    }

    fn act(&mut self, action: Action, inputs: &mut VecDeque<Input>, gone: &mut BTreeSet<ClientId>) {
        match action {
            Action::Send { client, event, fds } => {
                assert!(
                    !gone.contains(&client),
                    "event to a connection that is closed: {event:?}"
                );
                assert_eq!(fds.len(), event.fds());
                for fd in &fds {
                    assert!(
                        self.tokens.contains(fd),
                        "{event:?} carries a closed descriptor"
                    );
                }
                self.check_order(client, &event);
                if let Some(p) = self.proc_of(client) {
                    p.queue.push_back((event, fds));
                } else {
                    panic!("event to nobody: {event:?}");
                }
            }
            Action::Close(t) => {
                assert!(self.tokens.remove(&t), "{t:?} closed twice");
                self.boards.retain(|(b, _), _| *b != t);
            }
            Action::Disconnect { client, refusal } => {
                gone.insert(client);
                self.board_of.remove(&client);
                self.count(if refusal.is_some() {
                    "expelled"
                } else {
                    "parted"
                });
                if let Some(p) = self.proc_of(client) {
                    p.client = None;
                    p.queue.clear();
                }
            }
            Action::Watch { pidfd, domain } => {
                assert!(self.tokens.contains(&pidfd));
                self.watched.push((self.greeting, domain));
            }
            Action::SetBoard {
                board,
                entry,
                pool,
                epoch,
                ..
            } => {
                assert!(self.tokens.contains(&board), "a closed board is written");
                let old = self.boards.insert((board, entry), (epoch, pool));
                if let (Some((old, was)), Some(_)) = (old, pool) {
                    assert!(
                        was != pool || old <= epoch,
                        "epoch of {pool:?} fell from {old} to {epoch}"
                    );
                }
            }
            Action::ReadOrphan {
                pool,
                table,
                refs,
                queues,
                ..
            } => {
                for t in refs
                    .iter()
                    .chain([&table])
                    .chain(queues.iter().flat_map(|(a, b)| [a, b]))
                {
                    assert!(self.tokens.contains(t));
                }
                self.count("orphan read");
                let live = if self.rng.one_in(3) {
                    vec![0, 1, 2]
                } else {
                    Vec::new()
                };
                inputs.push_back(Input::OrphanRead { pool, live });
            }
            Action::ReadHold {
                client,
                table,
                refs,
                ..
            } => {
                assert!(self.tokens.contains(&table) && self.tokens.contains(&refs));
                inputs.push_back(Input::HoldRead {
                    client,
                    buffers: 1,
                    bytes: 1,
                });
            }
            Action::ReadTaken { client, half } => {
                assert!(self.tokens.contains(&half));
                inputs.push_back(Input::TakenRead { client, taken: 1 });
            }
            Action::ReserveIds { next, next_pool } => self.ids = IdStart { next, next_pool },
            Action::Exit => {}
        }
    }

    /// Rules between events of different clients that hold at the moment of queueing.
    fn check_order(&mut self, client: ClientId, event: &Event) {
        match event {
            Event::Assigned { channel, pool, .. } => {
                // The writer was queued the queue before, or is away (then its board stops it).
                let writer = self
                    .procs
                    .iter()
                    .find(|p| p.entries.contains_key(pool) || p.pools.contains_key(pool));
                if let Some(w) = writer
                    && w.client.is_some()
                    && w.claimed
                    && !w.deaf
                    && w.instance == self.instance
                {
                    let told = w.assigned.contains(&(*channel, *pool))
                        || w.queue.iter().any(|(e, _)| {
                            matches!(e, Event::QueueJoined { channel: c, pool: p, .. } if c == channel && p == pool)
                        });
                    assert!(
                        told,
                        "Assigned({channel}, {pool}) before the writer was told"
                    );
                }
                self.count("assigned");
            }
            Event::QueueJoined { pool, epoch, .. }
            | Event::QueueLeft { pool, epoch, .. }
            | Event::ReaderLeft { pool, epoch, .. } => {
                let board = self.board_of.get(&client).copied();
                let stored = self
                    .boards
                    .iter()
                    .find(|((b, _), (_, p))| Some(*b) == board && *p == Some(*pool));
                let stored = stored.map(|(_, (e, _))| *e).unwrap_or(0);
                assert!(
                    stored >= *epoch,
                    "roster event with epoch {epoch}, the board says {stored}"
                );
            }
            Event::ChunkReady {
                pool,
                index,
                serial,
                ..
            } => {
                // No reader still has it queued.
                let queued = self.procs.iter().any(|p| {
                    !p.returned && !p.seen.contains(&(*pool, *index, *serial)) && p.queue.iter().any(|(e, _)| {
                        matches!(e, Event::ChunkAdded { pool: a, index: b, serial: c } if (a, b, c) == (pool, index, serial))
                    })
                });
                let claimed = self.proc_of(client).is_some_and(|p| !p.claimed);
                assert!(
                    !queued || claimed,
                    "ChunkReady while ChunkAdded has not gone out"
                );
                self.count("chunk ready");
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
            Event::PoolOffer { .. } => self.count("pool offer"),
            Event::Accepted { .. } => self.count("channel"),
            Event::ChunkAdded { .. } => self.count("chunk added"),
            Event::ChunkGone { .. } => self.count("chunk gone"),
            Event::PoolGone { .. } => self.count("pool gone"),
            Event::Refused { .. } => self.count("refused"),
            _ => {}
        }
    }

    fn spawn(&mut self) {
        let id = self.next_proc;
        self.next_proc += 1;
        let deaf = self.rng.one_in(25);
        self.procs.push(Proc {
            id,
            deaf,
            ..Proc::default()
        });
    }

    fn connect(&mut self, i: usize) {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        self.procs[i].client = Some(client);
        self.procs[i].queue.clear();
        self.feed(Input::Connected {
            client,
            uid: 1000,
            gid: 1000,
            pid: 1,
        });
        if self.procs[i].client.is_none() {
            return;
        }
        let request = Request::Hello {
            version: if self.rng.one_in(200) {
                9
            } else {
                PROTOCOL_VERSION
            },
            name: "sim".to_owned(),
            resume: self.procs[i].domain,
            dumpable: false,
        };
        let pidfd = Some(self.token());
        let board = (!self.rng.one_in(100)).then(|| self.token());
        if let Some(board) = board {
            self.board_of.insert(client, board);
        }
        let process = self.procs[i].id;
        self.greeting = process;
        self.feed(Input::Hello {
            client,
            request,
            pidfd,
            process,
            board,
        });
    }

    fn say(&mut self, i: usize, request: Request, mut fds: Vec<Fd>) {
        let Some(client) = self.procs[i].client else {
            for fd in fds {
                self.tokens.remove(&fd.token);
            }
            return;
        };
        if self.rng.one_in(1000) {
            let extra = self.counters(3);
            fds.push(extra);
        }
        self.feed(Input::Request {
            client,
            request,
            fds,
        });
    }

    fn die(&mut self, i: usize) {
        let p = self.procs.swap_remove(i);
        self.count("died");
        // The two signs of a death come in any order.
        let hang_up_first = self.rng.one_in(2);
        let client = p.client;
        if hang_up_first && let Some(client) = client {
            self.board_of.remove(&client);
            self.feed(Input::HungUp { client });
        }
        if !hang_up_first {
            // Keep a shell-like record until the state lets go of the connection.
            self.procs.push(Proc {
                client,
                ..Proc::default()
            });
        }
        let domains: Vec<DomainId> = self
            .watched
            .iter()
            .filter(|(id, _)| *id == p.id)
            .map(|(_, d)| *d)
            .collect();
        self.watched.retain(|(id, _)| *id != p.id);
        for domain in domains {
            self.feed(Input::ProcessDied { domain });
        }
        if !hang_up_first {
            let last = self.procs.pop().unwrap();
            if let Some(client) = last.client {
                self.feed(Input::HungUp { client });
            }
        }
    }

    fn hang_up(&mut self, i: usize) {
        if let Some(client) = self.procs[i].client.take() {
            self.procs[i].queue.clear();
            self.board_of.remove(&client);
            self.count("hung up");
            self.feed(Input::HungUp { client });
        }
    }

    /// The manager dies; a new one begins where the id file says.
    fn restart(&mut self) {
        self.count("restarted");
        self.instance += 1;
        self.state = State::new(config(), TOTAL, self.instance, 1, self.ids);
        self.tokens.clear();
        self.boards.clear();
        self.board_of.clear();
        self.watched.clear();
        for p in &mut self.procs {
            p.client = None;
            p.queue.clear();
        }
    }

    /// The oldest event of a process goes out and is taken.
    fn take(&mut self, i: usize) {
        let Some((event, _)) = self.procs[i].queue.pop_front() else {
            return;
        };
        let Some(client) = self.procs[i].client else {
            return;
        };
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
                p.entries.insert(pool, entry);
                p.epochs.insert(pool, 1);
            }
            Event::Granted { pool, chunks, .. } => *p.granted.entry(pool).or_default() += chunks,
            Event::QueueJoined {
                pool,
                channel,
                epoch,
                ..
            } => {
                p.assigned.insert((channel, pool));
                let last = p.epochs.insert(pool, epoch).unwrap_or(1);
                assert_eq!(epoch, last + 1, "the writer missed a change of its roster");
            }
            Event::QueueLeft { pool, epoch, .. } | Event::ReaderLeft { pool, epoch, .. } => {
                let last = p.epochs.insert(pool, epoch).unwrap_or(1);
                assert_eq!(epoch, last + 1, "the writer missed a change of its roster");
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
            Event::PeerGone { channel, .. } => {
                p.left.insert(channel);
            }
            _ => {}
        }
        self.feed(Input::Sent { client });
        if let Some(same) = claims {
            self.claim(i, same);
        }
    }

    fn claim(&mut self, i: usize, _same: bool) {
        self.count("claimed");
        let chunks = self.procs[i].pools.clone();
        for (pool, chunks) in chunks {
            let (req, fd) = (self.req(), self.table());
            let name = "p".to_owned();
            let request = Request::ClaimPool {
                req,
                pool,
                name,
                max_bytes: 16 * CHUNK,
                slots: SLOTS,
                chunk_bytes: CHUNK,
            };
            self.say(i, request, vec![fd]);
            for (index, serial) in chunks {
                if self.rng.one_in(10) {
                    continue;
                }
                let (req, fd) = (self.req(), self.fd(0, 0, CHUNK));
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
        }
        self.procs[i].granted.clear();
        for (pool, mapped) in self.procs[i].reads.clone() {
            let (req, fd) = (self.req(), self.counters(3));
            let mut mapped: Vec<_> = mapped.into_iter().collect();
            if self.rng.one_in(4) {
                mapped.push((self.rng.below(20) as u32, self.rng.below(99) as u32));
            }
            self.say(
                i,
                Request::ClaimReader {
                    req,
                    pool,
                    slots: SLOTS,
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
                role,
                peer,
                lines: 2,
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

    /// A process does something, mostly sensible.
    fn do_something(&mut self, i: usize) {
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
        match self.rng.below(24) {
            0 => {
                let fd = self.table();
                let request = Request::CreatePool {
                    req,
                    name: "p".to_owned(),
                    max_bytes: 16 * CHUNK,
                    slots: SLOTS,
                    chunk_bytes: CHUNK,
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
                let p = &mut self.procs[i];
                p.serial += 1;
                let serial = p.serial;
                let index = self.rng.below(16) as u32;
                let p = &mut self.procs[i];
                if let Some(g) = p.granted.get_mut(&pool).filter(|g| **g > 0) {
                    *g -= 1;
                    p.pools
                        .entry(pool)
                        .or_default()
                        .entry(index)
                        .or_insert(serial);
                }
                let fd = self.fd(0, 0, CHUNK);
                self.say(
                    i,
                    Request::ShowChunk {
                        req,
                        pool,
                        index,
                        serial,
                    },
                    vec![fd],
                );
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
                // Sometimes a pool that it reads: forwarding.
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
                    return self.say(i, Request::VetoPool { channel, pool }, vec![]);
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
            20 if self.rng.one_in(8) => self.say(i, Request::Stat { req }, vec![]),
            _ => self.rare(i, pool, channel, req),
        }
    }

    fn rare(&mut self, i: usize, pool: Option<PoolId>, channel: Option<ChannelId>, req: Req) {
        match (self.rng.below(8), pool, channel) {
            (0, Some(pool), _) => {
                self.procs[i].pools.remove(&pool);
                self.say(i, Request::DestroyPool { pool }, vec![]);
            }
            (1, Some(pool), _) => {
                let domains: Vec<DomainId> = self.procs.iter().filter_map(|p| p.domain).collect();
                let domain = self.rng.pick(&domains).unwrap_or(DomainId(1));
                self.say(i, Request::AllowForward { req, pool, domain }, vec![]);
            }
            (2, _, Some(channel)) => {
                let fd = self.counters(3);
                self.say(i, Request::WakeFd { channel }, vec![fd]);
            }
            (3, Some(pool), _) => self.say(i, Request::Ungrant { pool, chunks: 2 }, vec![]),
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

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += Duration::from_millis(self.rng.below(8) as u64);
            if self.procs.len() < 6 || (self.procs.len() < 12 && self.rng.one_in(50)) {
                self.spawn();
            }
            let i = self.rng.below(self.procs.len());
            match self.rng.below(1000) {
                0..=1 => self.die(i),
                4..=5 => self.hang_up(i),
                8 if self.rng.one_in(3) => self.restart(),
                9..=40 => self.feed(Input::Tick),
                41..=500 if !self.procs[i].deaf || self.rng.one_in(50) => {
                    for _ in 0..1 + self.rng.below(6) {
                        if i < self.procs.len() {
                            self.take(i);
                        }
                    }
                }
                _ => self.do_something(i),
            }
        }
        // Everybody dies: nothing is left.
        while !self.procs.is_empty() {
            self.die(0);
        }
        for _ in 0..200 {
            self.now += Duration::from_millis(250);
            self.feed(Input::Tick);
        }
        assert_eq!(
            self.state.population(),
            [0, 0, 0, 0],
            "something outlived everybody"
        );
        assert!(
            self.tokens.is_empty(),
            "{} descriptors outlived everybody",
            self.tokens.len()
        );
        assert_eq!(self.state.memory(), (0, 0));
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_contradicts_itself_whatever_comes_in_which_order() {
    let given = from_env("TRANSHIP_SEED");
    let clock = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let first = given.unwrap_or(clock.as_nanos() as u64);
    let steps = from_env("TRANSHIP_STEPS").unwrap_or(6000) as usize;
    let mut counts = BTreeMap::new();
    for n in 0..if given.is_some() { 1 } else { 12 } {
        let seed = first.wrapping_add(n);
        println!("TRANSHIP_SEED={seed}");
        let mut world = World::new(seed);
        world.run(steps);
        for (k, v) in world.counts {
            *counts.entry(k).or_insert(0) += v;
        }
    }
    println!("{counts:?}");
    if given.is_none() {
        for what in [
            "assigned",
            "chunk ready",
            "died",
            "hung up",
            "restarted",
            "claimed",
            "expelled",
            "orphan read",
        ] {
            assert!(
                counts.get(what).is_some_and(|n| *n > 0),
                "the simulation never reached: {what}"
            );
        }
    }
}
