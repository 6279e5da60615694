//! Many clients, honest and not, against the state machine alone: random order, deaths, hang-ups, restarts.
//! The seed is printed; `TRANSHIP_SEED` sets it, `TRANSHIP_STEPS` the length, `TRANSHIP_WORLDS` the
//! number of worlds; with `TRANSHIP_TRACE` everything that happens is printed.

#![allow(clippy::cast_possible_truncation)] // small random numbers

mod choose;
mod hear;
mod life;
mod shell;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tranship_manager::Config;
use tranship_manager::state::{
    Action, ClientId, Cursors, Facts, Fd, FdToken, Figures, Header, HeldSlot, IdStart, Input,
    Sealed, State, Stored,
};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, Levels, LocalChannel, PROTOCOL_VERSION, PoolId,
    Refusal, RefusalCode, Req, Request, Role, Trust,
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
    /// The manager's instance, and whether everything was claimed since the last `Welcome`.
    instance: u64,
    claimed: bool,
    /// Whether it ignores its events.
    deaf: bool,
    queue: VecDeque<(Event, Vec<FdToken>)>,
    pools: BTreeMap<PoolId, BTreeMap<u32, u32>>,
    entries: BTreeMap<PoolId, u32>,
    epochs: BTreeMap<PoolId, u64>,
    /// Queues on the reader sets of its pools, and the manager under which each pool was made.
    reader_sets: BTreeMap<PoolId, BTreeSet<ChannelId>>,
    made: BTreeMap<PoolId, u64>,
    serial: u32,
    /// Chunks that it has shown, until the answer.
    shown: BTreeMap<Req, (PoolId, Vec<(u32, u32)>)>,
    channels: BTreeMap<ChannelId, (Role, DomainId)>,
    incoming: Vec<(ChannelId, DomainId)>,
    offers: Vec<(ChannelId, PoolId, bool)>,
    reads: BTreeMap<PoolId, BTreeSet<(u32, u32)>>,
    assigned: BTreeSet<(ChannelId, PoolId)>,
    gone: BTreeSet<(PoolId, u32, u32)>,
    /// Chunks of which a copy has reached it (a resync sends more).
    seen: BTreeSet<(PoolId, u32, u32)>,
    /// It was away once: it was marked then, and no request waited for it.
    returned: bool,
    left: BTreeSet<ChannelId>,
    /// Its heaps, and its bytes in others when their connection ended.
    heaps: BTreeMap<PoolId, u64>,
    held: Vec<u64>,
}

struct World {
    rng: Rng,
    state: State,
    now: Duration,
    procs: Vec<Proc>,
    tokens: BTreeSet<FdToken>,
    /// The sealing of sent objects, and the levels of pools.
    sealed: BTreeMap<FdToken, Sealed>,
    trusts: BTreeMap<PoolId, Trust>,
    next_token: u64,
    next_client: u64,
    next_proc: u64,
    req: u32,
    control_pages: BTreeMap<(FdToken, u32), (u64, Option<PoolId>)>,
    control_page_of: BTreeMap<ClientId, FdToken>,
    instance: u64,
    /// The watching process of each domain.
    watched: Vec<(u64, DomainId)>,
    /// Closed descriptors that the state was not told of yet.
    later: Vec<Input>,
    greeting: u64,
    ids: IdStart,
    domains_seen: BTreeSet<DomainId>,
    pools_seen: BTreeSet<PoolId>,
    channels_seen: BTreeSet<ChannelId>,
    /// Copies of new chunks for which their writers wait; no request waits for a feed's copies.
    waited: BTreeSet<(ClientId, PoolId, u32, u32)>,
    showing: bool,
    /// Set while counters say that everything is held.
    all_lives: bool,
    /// A client's queue stands still at this moment.
    blocking: bool,
    /// The `rcvd` counters of each queue for which a `QueueJoined` was queued to a writer, and whether that went out.
    joined: BTreeMap<(PoolId, ChannelId), (FdToken, bool)>,
    policy: &'static str,
    /// The bytes admitted to each heap, and its connection; the requested bytes: at least, at most.
    heap_books: BTreeMap<PoolId, (ClientId, u64)>,
    asked: BTreeMap<Req, (u64, u64)>,
    /// How often each case happened, to see that the simulation reaches everything.
    counts: BTreeMap<&'static str, u64>,
}

/// Makes a configuration with one policy or another, whatever the pools' figures are.
fn config(policy: &str) -> Config {
    let hogs = match policy {
        "static" | "qos" => "[[hog]]\nover = \"5%\"\naction = \"throttle\"",
        _ => "[[hog]]\nover = \"20%\"\nfor = \"100ms\"",
    };
    let hog = Config::parse(hogs).expect("rules").hog;
    Config {
        linger: Duration::from_millis(300),
        hog,
        policy: policy.to_owned(),
        pools_per_domain: 6,
        forward: tranship_manager::Forward::Readers,
        ..Config::default()
    }
}

impl World {
    fn new(seed: u64) -> World {
        let policy = ["static", "throughput", "priority", "qos"][(seed % 4) as usize];
        let ids = IdStart {
            next: 1,
            next_pool: 0,
        };
        World {
            rng: Rng(seed),
            state: State::new(config(policy), TOTAL, 1, 1, ids),
            policy,
            now: Duration::ZERO,
            procs: Vec::new(),
            tokens: BTreeSet::new(),
            sealed: BTreeMap::new(),
            trusts: BTreeMap::new(),
            next_token: 1,
            next_client: 1,
            next_proc: 1,
            req: 0,
            control_pages: BTreeMap::new(),
            control_page_of: BTreeMap::new(),
            instance: 1,
            watched: Vec::new(),
            later: Vec::new(),
            greeting: 0,
            ids,
            domains_seen: BTreeSet::new(),
            pools_seen: BTreeSet::new(),
            channels_seen: BTreeSet::new(),
            waited: BTreeSet::new(),
            showing: false,
            all_lives: false,
            blocking: false,
            joined: BTreeMap::new(),
            heap_books: BTreeMap::new(),
            asked: BTreeMap::new(),
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
        self.sealed_fd(kind, count, size, Sealed::OneWriter)
    }

    /// Returns the level of all pools of a process.
    fn trust(&self, i: usize) -> Trust {
        Trust::ALL[(self.procs[i].id % 4) as usize]
    }

    /// Returns the levels that a sink with a veto accepts.
    fn levels(&mut self) -> Option<Levels> {
        let some = self.rng.below(5);
        let all = Trust::ALL.into_iter().take(some);
        (some < 5).then(|| all.collect())
    }

    /// Makes a chunk of a pool that this process writes.
    fn chunk(&mut self, i: usize) -> Fd {
        let sealed = match self.trust(i).all_write() {
            true => Sealed::Shared,
            false => Sealed::OneWriter,
        };
        self.sealed_fd(0, 0, CHUNK, sealed)
    }

    fn sealed_fd(&mut self, kind: u32, count: u32, size: u64, right: Sealed) -> Fd {
        // Sometimes the sealing is wrong.
        let all = [Sealed::No, Sealed::OneWriter, Sealed::Shared];
        let sealed = match self.rng.one_in(200) {
            true => self.rng.pick(&all).unwrap_or_default(),
            false => right,
        };
        let kind = if self.rng.one_in(400) { 9 } else { kind };
        let header = Some(Header {
            kind,
            count,
            max_bytes: 16 * CHUNK,
            chunk_bytes: CHUNK,
        });
        let token = self.token();
        self.sealed.insert(token, sealed);
        Fd {
            token,
            facts: Facts {
                sealed,
                size,
                header,
                made_here: false,
                inode: 0,
            },
        }
    }

    /// Makes two ends as the shell does.
    fn ends(&mut self) -> Vec<Fd> {
        let end = |fd: Fd| Fd {
            facts: Facts {
                made_here: true,
                ..Facts::default()
            },
            ..fd
        };
        vec![end(self.counters(3)), end(self.counters(3))]
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

    fn close_some(&mut self) {
        for closed in std::mem::take(&mut self.later) {
            self.feed(closed);
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
                6..=7 => self.block(i),
                8 if self.rng.one_in(3) => self.restart(),
                9..=40 => self.feed(Input::Tick),
                41..=43 => self.end_awaited(),
                _ if self.later.len() > 20 => self.close_some(),
                44..=500 if !self.procs[i].deaf || self.rng.one_in(50) => {
                    for _ in 0..1 + self.rng.below(6) {
                        if i < self.procs.len() {
                            self.take(i);
                        }
                    }
                }
                _ => self.do_something(i),
            }
        }
        // Every process dies: nothing is left.
        while !self.procs.is_empty() {
            self.die(0);
        }
        while !self.state.awaited().is_empty() {
            self.end_awaited();
        }
        for _ in 0..200 {
            self.now += Duration::from_millis(250);
            self.feed(Input::Tick);
        }
        self.close_some();
        assert_eq!(self.state.users(), 0, "somebody still has something");
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

/// Says whether every input, event and action is to be printed.
fn traced() -> bool {
    std::env::var_os("TRANSHIP_TRACE").is_some()
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
    let few = if given.is_some() { 1 } else { 12 };
    let torture = std::env::var_os("TRANSHIP_TORTURE").map(|_| 5000);
    for n in 0..from_env("TRANSHIP_WORLDS").or(torture).unwrap_or(few) {
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
            "opened later",
            "chunk ready",
            "all at once",
            "some of those shown",
            "died",
            "hung up",
            "restarted",
            "claimed",
            "expelled",
            "orphan read",
            "admitted in part",
            "heap came back",
            "ended with its heaps",
            "held read",
            "hog",
        ] {
            assert!(
                counts.get(what).is_some_and(|n| *n > 0),
                "the simulation never reached: {what}"
            );
        }
    }
}
