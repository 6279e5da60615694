//! The clients of the state machine, and the rules that hold after each input.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tranship_manager::Config;
use tranship_manager::state::{ClientId, Fd, FdToken, HeldSlot, Input, Sealed};
use tranship_proto::{
    ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, Refusal, Request, StatRecord,
};

use super::fair::{self, Books, OWNER};
use super::simulated::{Orphan, Shell, Simulated};

pub use super::fair::{HONEST, TOTAL, UNTRUSTED};
pub use super::simulated::{CHUNK, SLOTS, shape};
/// The shell does not read a client with more than this many descriptors waiting to be closed.
const PILE: usize = 128;

/// A connection.
pub struct Client {
    pub uid: u32,
    pub process: u64,
    pub greeted: bool,
    pub domain: DomainId,
    pub queued: VecDeque<Event>,
}

/// Ids that were seen, of any owner.
#[derive(Default)]
pub struct Seen {
    pub domains: Vec<u32>,
    pub pools: Vec<u32>,
    pub channels: Vec<u32>,
    pub exports: Vec<u32>,
}

/// The objects of the honest domains.
#[derive(Default)]
pub struct Honest {
    pub clients: [Option<ClientId>; 2],
    pub heard: VecDeque<(ClientId, Event)>,
    pub domains: Vec<DomainId>,
    pub pool: Option<PoolId>,
    pub channel: Option<ChannelId>,
    pub has: Vec<StatRecord>,
    pub req: u32,
    pub serial: u32,
}

impl Honest {
    /// Lets the honest domains change what they have.
    pub fn leave(&mut self) {
        (self.channel, self.pool) = (None, None);
    }

    /// Takes an event. No other domain changes anything of the honest domains.
    pub fn is_there(&self) -> bool {
        self.pool.is_some()
    }

    pub fn hear(&mut self, client: ClientId, event: Event) {
        let over = match event {
            Event::PeerGone { channel, .. } => self.channel == Some(channel),
            Event::PoolGone { pool } => self.pool == Some(pool),
            // No other domain sends over their channel.
            Event::PoolOffer { pool, .. } => self.pool != Some(pool),
            Event::Expelled { .. } => true,
            _ => false,
        };
        assert!(!over, "{event:?} to {client:?}, which did nothing");
        self.heard.push_back((client, event));
    }
}

pub struct World {
    pub shell: Shell,
    pub clients: BTreeMap<ClientId, Client>,
    /// The serial of the last chunk that an untrusted domain has shown in a scene.
    pub serial: u32,
    pub seen: Seen,
    /// The user that says the present input, what each user had before it, and whether the honest domains were there.
    before: Option<(Option<u32>, Books, bool)>,
    /// The honest domains, and their events; none until `settle`.
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
        let mut shell = Shell::new(config(), TOTAL);
        shell.state.limit_descriptors(fair::descriptors());
        shell.state.set_owner(OWNER);
        World {
            shell,
            clients: BTreeMap::new(),
            serial: 1,
            seen: Seen::default(),
            before: None,
            honest: Honest::default(),
        }
    }

    fn number(&mut self) -> u64 {
        self.shell.number()
    }

    pub fn token(&mut self) -> FdToken {
        self.shell.token(0)
    }

    /// Makes a shared object as it should be.
    pub fn object(&mut self, kind: u32, count: u32, size: u64) -> Fd {
        let inode = self.shell.next;
        let object = (kind, count, size);
        self.shell.object(object, Sealed::OneWriter, inode)
    }

    /// Opens a connection of a user.
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

    /// Opens a connection of a new process.
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

    /// Says hello as the shell does: with a pidfd, and a control page if it is the first hello.
    pub fn hello(&mut self, client: ClientId, request: Request) {
        let Some(from) = self.clients.get_mut(&client) else {
            return;
        };
        let (process, first) = (from.process, !std::mem::replace(&mut from.greeted, true));
        let pidfd = Some(self.token());
        let control_page = first.then(|| self.token());
        self.shell.greeting = process;
        self.feed(Input::Hello {
            client,
            request,
            pidfd,
            process,
            control_page,
        });
    }

    pub fn say(&mut self, client: ClientId, request: Request, mut fds: Vec<Fd>) {
        // The shell makes the two sockets that two clients will share.
        if matches!(request, Request::WakeFd { .. }) {
            fds.extend(self.shell.ends());
        }
        self.feed(Input::Request {
            client,
            request,
            fds,
        });
        self.closed(self.shell.later.len().saturating_sub(PILE));
    }

    /// Drops descriptors that were made for a request and not used.
    pub fn forget_but(&mut self, kept: &[FdToken]) {
        let held = self.shell.state.held_tokens();
        let owned = &mut self.shell.tokens;
        owned.retain(|t, _| held.contains(t) || kept.contains(t));
    }

    /// Sends the oldest message to a client.
    pub fn sent(&mut self, client: ClientId) {
        let queue = self.clients.get_mut(&client).map(|c| &mut c.queued);
        if queue.is_some_and(|q| q.pop_front().is_some()) {
            self.feed(Input::Sent { client });
        }
    }

    /// Sends all messages to a client.
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
            self.feed(Input::HungUp { client });
        }
    }

    /// Ends a process. Its connections are closed before it, or after.
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
        for domain in self.shell.take_watched(process) {
            self.feed(Input::ProcessDied { domain });
        }
        clients.iter().for_each(|c| self.hang_up(*c));
    }

    /// Tells the state that up to `n` descriptors or connections are closed.
    pub fn closed(&mut self, n: usize) {
        for _ in 0..n {
            match self.shell.later.pop_front() {
                Some(input) => self.feed(input),
                None => return,
            }
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
                let reads = to.is_some_and(|to| self.shell.state.reads(to.domain, pool));
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
}

impl Simulated for World {
    fn shell(&mut self) -> &mut Shell {
        &mut self.shell
    }

    fn before(&mut self, input: &Input) {
        let client = fair::speaker(input).and_then(|c| self.clients.get(&c));
        let uid = client.map(|c| c.uid);
        let books = Books::of(&self.shell.state);
        self.before = Some((uid, books, self.honest.is_there()));
    }

    fn after(&mut self, input: &Input) {
        if let Some((uid, books, honest)) = self.before.take() {
            books.check(&Books::of(&self.shell.state), input, uid, honest);
        }
    }

    fn hears(&mut self, client: ClientId, event: Event, _: Vec<FdToken>) -> bool {
        self.see(client, &event);
        let to = self.clients.get_mut(&client);
        let to = to.unwrap_or_else(|| panic!("{event:?} to nobody"));
        if to.uid == HONEST {
            self.honest.hear(client, event);
            return true;
        }
        to.queued.push_back(event);
        false
    }

    fn is_dropped(&mut self, client: ClientId, refusal: Option<Refusal>) {
        let dropped = self.clients.remove(&client);
        let honest = dropped.is_some_and(|c| c.uid == HONEST);
        assert!(!honest || refusal.is_none(), "{refusal:?} to the honest");
    }

    /// By the words of readers: any chunk may be in use.
    fn alive(&mut self, _: &Orphan) -> Option<Vec<(u32, u32)>> {
        match self.shell.next % 4 {
            0 => None,
            1 => Some(vec![(0, 3)]),
            _ => Some(Vec::new()),
        }
    }

    /// All of the slots, of lengths that no pool has. The honest domains hold nothing, and have no notes made of it.
    fn held(&mut self, reader: DomainId, slots: Range<u32>) -> Vec<HeldSlot> {
        if self.honest.domains.contains(&reader) {
            return Vec::new();
        }
        let held = slots.map(|slot| HeldSlot {
            slot,
            generation: 2,
            bytes: u64::MAX,
            moved: slot.is_multiple_of(2),
        });
        held.collect()
    }
}
