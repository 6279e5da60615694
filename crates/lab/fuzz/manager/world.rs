//! The shell around the state machine: carries out its actions, and looks after each input whether all is well.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tranship_manager::Config;
use tranship_manager::state::{
    Action, ClientId, Cursors, Facts, Fd, FdToken, Header, HeldSlot, IdStart, Input, Sealed, State,
};
use tranship_proto::{DomainId, Event, PROTOCOL_VERSION, Request};

use super::fair::{self, Books};
use super::honest::Honest;

pub const CHUNK: u64 = 4096;
pub const SLOTS: u32 = 16;
pub const TOTAL: u64 = 64 * CHUNK;
/// The manager's own, the honest domains', the untrusted ones'.
pub const OWNER: u32 = 1;
pub const HONEST: u32 = 2;
pub const UNTRUSTED: [u32; 2] = [3, 4];
/// The shell reads no more of who has more than a few dozen descriptors waiting to be closed.
const PILE: usize = 128;

/// A connection.
pub struct Client {
    pub uid: u32,
    pub process: u64,
    pub greeted: bool,
    pub domain: DomainId,
    pub queued: VecDeque<Event>,
}

/// Ids that were seen, whosever they are.
#[derive(Default)]
pub struct Seen {
    pub domains: Vec<u32>,
    pub pools: Vec<u32>,
    pub channels: Vec<u32>,
    pub exports: Vec<u32>,
}

pub struct World {
    pub state: State,
    pub now: Duration,
    tokens: BTreeSet<FdToken>,
    next: u64,
    pub clients: BTreeMap<ClientId, Client>,
    /// Whose process each domain is watched by.
    watched: Vec<(u64, DomainId)>,
    greeting: u64,
    /// Of the last chunk that an untrusted domain has shown in a scene.
    pub serial: u32,
    /// What is closed, and the state has not heard of yet.
    pub later: VecDeque<Input>,
    pub seen: Seen,
    ids: IdStart,
    /// What the honest domains hear; none until they are there.
    pub honest: Honest,
}

fn config() -> Config {
    Config {
        pools_per_domain: 4,
        default_quota: Some(fair::QUOTA),
        limits: fair::limits(),
        ..Config::default()
    }
}

impl World {
    pub fn new() -> World {
        let ids = IdStart {
            next: 1,
            next_pool: 1,
        };
        let mut state = State::new(config(), TOTAL, 1, 1, ids);
        state.limit_descriptors(fair::descriptors());
        state.set_owner(OWNER);
        let mut world = World {
            state,
            now: Duration::ZERO,
            tokens: BTreeSet::new(),
            next: 1,
            clients: BTreeMap::new(),
            watched: Vec::new(),
            greeting: 0,
            serial: 1,
            later: VecDeque::new(),
            seen: Seen::default(),
            ids,
            honest: Honest::default(),
        };
        world.settle();
        world
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn token(&mut self) -> FdToken {
        let token = FdToken(self.number());
        self.tokens.insert(token);
        token
    }

    /// A shared object as it should be.
    pub fn object(&mut self, kind: u32, count: u32, size: u64) -> Fd {
        let header = Some(Header {
            kind,
            count,
            max_bytes: 16 * CHUNK,
            chunk_bytes: CHUNK,
        });
        let facts = Facts {
            sealed: Sealed::OneWriter,
            size,
            header,
            made_here: false,
            inode: self.next,
        };
        let token = self.token();
        Fd { token, facts }
    }

    /// A connection of a user.
    pub fn connect(&mut self, uid: u32, process: u64) -> ClientId {
        let client = ClientId(self.number());
        let new = Client {
            uid,
            process,
            greeted: false,
            domain: DomainId(0),
            queued: VecDeque::new(),
        };
        self.clients.insert(client, new);
        self.feed(Input::Connected {
            client,
            uid,
            gid: uid,
            pid: 1,
        });
        client
    }

    /// A connection of a process of its own.
    pub fn arrive(&mut self, which: usize) -> ClientId {
        let process = self.number();
        self.connect(UNTRUSTED[which % 2], process)
    }

    pub fn greet(&mut self, client: ClientId, resume: Option<DomainId>) {
        let request = Request::Hello {
            version: PROTOCOL_VERSION,
            name: "fuzz".to_owned(),
            resume,
            dumpable: false,
        };
        self.hello(client, request);
    }

    /// As the shell does: with a pidfd, and a control page if it is the first.
    pub fn hello(&mut self, client: ClientId, request: Request) {
        let Some(from) = self.clients.get_mut(&client) else {
            return;
        };
        let (process, first) = (from.process, !std::mem::replace(&mut from.greeted, true));
        let pidfd = Some(self.token());
        let control_page = first.then(|| self.token());
        self.greeting = process;
        self.feed(Input::Hello {
            client,
            request,
            pidfd,
            process,
            control_page,
        });
    }

    pub fn say(&mut self, client: ClientId, request: Request, mut fds: Vec<Fd>) {
        // What two are going to share, the shell makes.
        if matches!(request, Request::WakeFd { .. }) {
            for _ in 0..2 {
                let facts = Facts {
                    made_here: true,
                    ..Facts::default()
                };
                let token = self.token();
                fds.push(Fd { token, facts });
            }
        }
        self.feed(Input::Request {
            client,
            request,
            fds,
        });
        self.closed(self.later.len().saturating_sub(PILE));
    }

    /// Of what was made for a request, the rest goes.
    pub fn forget_but(&mut self, kept: &[FdToken]) {
        let held = self.state.held_tokens();
        self.tokens.retain(|t| held.contains(t) || kept.contains(t));
    }

    /// The oldest message to a client goes out.
    pub fn sent(&mut self, client: ClientId) {
        let queue = self.clients.get_mut(&client).map(|c| &mut c.queued);
        if queue.is_some_and(|q| q.pop_front().is_some()) {
            self.feed(Input::Sent { client });
        }
    }

    /// All messages to a client go out.
    pub fn drain(&mut self, client: ClientId) {
        while self
            .clients
            .get(&client)
            .is_some_and(|c| !c.queued.is_empty())
        {
            self.sent(client);
        }
    }

    pub fn hang_up(&mut self, client: ClientId) {
        if self.clients.remove(&client).is_some() {
            self.later.push_back(Input::Parted { client });
            self.feed(Input::HungUp { client });
        }
    }

    /// The end of a process; its connections are closed before, or after.
    pub fn die(&mut self, process: u64, first: bool) {
        let of = |c: &Client| c.process == process;
        let mut mine = self
            .clients
            .iter()
            .filter(|(_, c)| of(c))
            .map(|(id, _)| *id);
        let clients: Vec<ClientId> = mine.by_ref().collect();
        if first {
            clients.iter().for_each(|c| self.hang_up(*c));
        }
        let (dead, rest) = std::mem::take(&mut self.watched)
            .into_iter()
            .partition(|(p, _)| *p == process);
        self.watched = rest;
        let dead: Vec<(u64, DomainId)> = dead;
        for (_, domain) in dead {
            self.feed(Input::ProcessDied { domain });
        }
        clients.iter().for_each(|c| self.hang_up(*c));
    }

    /// The state hears that something is closed.
    pub fn closed(&mut self, n: usize) {
        for _ in 0..n {
            match self.later.pop_front() {
                Some(input) => self.feed(input),
                None => return,
            }
        }
    }

    /// One input, and what follows at once.
    pub fn feed(&mut self, input: Input) {
        let claims = matches!(
            &input,
            Input::Request {
                request: Request::ClaimChunk { .. },
                ..
            }
        );
        let sum = |(granted, stranded): (u64, u64)| granted + stranded;
        let before = sum(self.state.memory());
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let uid = fair::speaker(&input).and_then(|c| self.clients.get(&c));
            let uid = uid.map(|c| c.uid);
            let (books, honest) = (Books::of(&self.state), self.honest.is_there());
            let mut gone = BTreeSet::new();
            for action in self.state.step(self.now, input.clone()) {
                self.act(action, &mut inputs, &mut gone);
            }
            if let Err(wrong) = self.state.audit() {
                panic!("{wrong} after {input:?}");
            }
            books.check(&Books::of(&self.state), &input, uid, honest);
        }
        let now = sum(self.state.memory());
        assert!(now <= TOTAL.max(before) || claims, "{now} bytes of {TOTAL}");
        assert_eq!(self.state.held_tokens(), self.tokens, "descriptors");
    }

    fn act(&mut self, action: Action, inputs: &mut VecDeque<Input>, gone: &mut BTreeSet<ClientId>) {
        match action {
            Action::Send { client, event, fds } => {
                assert!(!gone.contains(&client), "{event:?} to nobody");
                assert_eq!(fds.len(), event.fds(), "{event:?}");
                for fd in &fds {
                    assert!(self.tokens.contains(fd), "{event:?} of what is closed");
                }
                self.see(client, &event);
                let to = self.clients.get_mut(&client);
                let to = to.unwrap_or_else(|| panic!("{event:?} to nobody"));
                if to.uid == HONEST {
                    self.honest.hear(client, event);
                    inputs.push_back(Input::Sent { client });
                } else {
                    to.queued.push_back(event);
                }
            }
            Action::Close(token) => {
                assert!(self.tokens.remove(&token), "{token:?} closed twice");
                self.later.push_back(Input::Closed { token });
            }
            Action::Disconnect { client, refusal } => {
                gone.insert(client);
                let who = self.clients.remove(&client);
                let honest = who.is_some_and(|c| c.uid == HONEST);
                assert!(!honest || refusal.is_none(), "{refusal:?} to the honest");
                self.later.push_back(Input::Parted { client });
            }
            Action::Watch { pidfd, domain } => {
                assert!(self.tokens.contains(&pidfd));
                self.watched.push((self.greeting, domain));
            }
            Action::SetBoard { control_page, .. } => assert!(self.tokens.contains(&control_page)),
            Action::ReadOrphan {
                pool,
                slots,
                table,
                refs,
                queues,
                ..
            } => {
                let queues = queues.iter().flat_map(|(a, b)| [a, b]);
                for token in refs.iter().chain(&table).chain(queues) {
                    assert!(self.tokens.contains(token));
                }
                // By what its readers wrote: any of its chunks may be used.
                let live = match self.next % 4 {
                    0 => None,
                    1 => Some(vec![(0, 3)]),
                    _ => Some(Vec::new()),
                };
                inputs.push_back(Input::OrphanRead { pool, slots, live });
            }
            Action::ReadHold {
                client,
                table,
                refs,
                ..
            } => {
                assert!(self.tokens.contains(&table) && self.tokens.contains(&refs));
                let (buffers, bytes) = (1, 1);
                inputs.push_back(Input::HoldRead {
                    client,
                    buffers,
                    bytes,
                });
            }
            Action::ReadCursors {
                client,
                source,
                sink,
                ..
            } => {
                let mut halves = [source, sink].into_iter().flatten();
                assert!(halves.all(|half| self.tokens.contains(&half)));
                let cursors = Cursors {
                    taken: 1,
                    ..Cursors::default()
                };
                inputs.push_back(Input::CursorsRead { client, cursors });
            }
            Action::ReadFigures { asker, pools } => {
                assert!(pools.iter().all(|(_, table)| self.tokens.contains(table)));
                let figures = pools.into_iter().map(|(pool, _)| (pool, None)).collect();
                inputs.push_back(Input::FiguresRead { asker, figures });
            }
            Action::ReadHeld {
                pool,
                reader,
                table,
                refs,
                slots,
            } => {
                assert!(self.tokens.contains(&table) && self.tokens.contains(&refs));
                // All of it, of lengths that no pool has; the honest hold nothing, and have no notes made of it.
                let some = match self.honest.domains.contains(&reader) {
                    true => 0..0,
                    false => slots.clone(),
                };
                let held = some.map(|slot| HeldSlot {
                    slot,
                    generation: 2,
                    bytes: u64::MAX,
                    moved: slot.is_multiple_of(2),
                });
                let held = held.collect();
                inputs.push_back(Input::HeldRead {
                    pool,
                    reader,
                    slots,
                    held,
                });
            }
            Action::ReadPool { client, table } => {
                assert!(self.tokens.contains(&table));
                let figures = None;
                inputs.push_back(Input::PoolRead { client, figures });
            }
            Action::SayHog(_) => {}
            Action::Kill { domain, pidfd } => {
                assert!(self.tokens.contains(&pidfd));
                inputs.push_back(Input::NotKilled { domain });
            }
            Action::ReserveIds { next, next_pool } => {
                assert!(next >= self.ids.next && next_pool >= self.ids.next_pool);
                self.ids = IdStart { next, next_pool };
            }
            Action::Scheduled | Action::Exit => {}
        }
    }

    fn see(&mut self, client: ClientId, event: &Event) {
        let seen = &mut self.seen;
        let to = self.clients.get_mut(&client);
        match *event {
            Event::Welcome { domain, .. } => {
                seen.domains.push(domain.0);
                if let Some(to) = to {
                    to.domain = domain;
                }
            }
            Event::ChunkAdded { pool, .. } => {
                let reads = to.is_some_and(|to| self.state.reads(to.domain, pool));
                assert!(reads, "{event:?} to {client:?}, which does not read it");
            }
            Event::PoolCreated { pool, .. } | Event::PoolOffer { pool, .. } => {
                seen.pools.push(pool.0);
            }
            Event::HeapCreated { heap, .. } => seen.pools.push(heap.0),
            Event::Exported { export, .. } => seen.exports.push(export.0),
            Event::Incoming { channel, .. } | Event::Opened { channel, .. } => {
                seen.channels.push(channel.0);
            }
            _ => {}
        }
    }

    /// The untrusted domains go, the honest have what they had, and then they go: nothing is left.
    pub fn end(mut self) {
        self.still_honest();
        let untrusted = |world: &World| {
            let all = world.clients.values().filter(|c| c.uid != HONEST);
            all.map(|c| c.process).next()
        };
        while let Some(process) = untrusted(&self) {
            self.die(process, process % 2 == 0);
        }
        let rest: BTreeSet<u64> = self.watched.iter().map(|(p, _)| *p).collect();
        let honest: BTreeSet<u64> = self.clients.values().map(|c| c.process).collect();
        for process in rest.difference(&honest) {
            self.die(*process, true);
        }
        self.wait();
        self.still_honest();
        self.honest.leave();
        for process in honest {
            self.die(process, true);
        }
        self.wait();
        assert_eq!(self.state.users(), 0, "somebody still has something");
        assert_eq!(self.state.population(), [0; 4], "left of all");
        assert_eq!(self.state.memory(), (0, 0));
        assert!(self.tokens.is_empty(), "{} descriptors", self.tokens.len());
    }

    /// Time enough for all that goes by itself.
    fn wait(&mut self) {
        for _ in 0..100 {
            self.now += Duration::from_millis(250);
            self.feed(Input::Tick);
            self.closed(usize::MAX);
        }
    }
}
