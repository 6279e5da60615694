//! The state alone, without the shell: a client that is not deaf takes its messages at once, its closed descriptors are
//! closed, and the test owns the clock.
#![allow(dead_code)] // each test file uses a part of it

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tranship_manager::state::{
    Action, ClientId, Facts, Fd, FdToken, Figures, Header, HeldSlot, HogNotice, IdStart, Input,
    Sealed, State,
};
use tranship_manager::{Config, Limits};
use tranship_proto::{
    DomainId, Event, PROTOCOL_VERSION, PoolId, Refusal, RefusalCode, Req, Request, StatRecord,
};
use tranship_testkit::Watchdog;

/// A descriptor's header, and its number of bytes.
pub type Object = (Header, u64);

/// The messages that each ring's reader has taken.
pub const TAKEN: u64 = 7;

pub struct House {
    pub state: State,
    /// The state's time.
    pub now: Duration,
    /// Clients whose messages stay queued.
    pub deaf: BTreeSet<ClientId>,
    /// Chunks in which something is alive, by the counters of each dead writer's pool.
    pub alive: Vec<(u32, u32)>,
    /// The writers' figures of their pools, and the quotas on control pages.
    pub figures: BTreeMap<PoolId, Figures>,
    pub quotas: BTreeMap<PoolId, u64>,
    /// The slots that readers hold, by rising slots.
    pub held: BTreeMap<(PoolId, DomainId), Vec<HeldSlot>>,
    /// The number of read pieces of counters, and their pools.
    pub looks: u64,
    pub looked: BTreeSet<(PoolId, DomainId)>,
    /// Reports of domains that hold too much, and the killed ones.
    pub notices: Vec<HogNotice>,
    pub killed: Vec<DomainId>,
    /// Whether the kernel lets the manager kill processes.
    pub may_kill: bool,
    /// Domains' processes, and the last refusal of an expelled client.
    processes: BTreeMap<DomainId, u64>,
    last_word: Option<Refusal>,
    next: u64,
    pub dog: Watchdog,
}

impl House {
    pub fn new(limits: Limits, total_bytes: u64) -> House {
        let config = Config {
            limits,
            ..Config::default()
        };
        House::with(config, total_bytes)
    }

    pub fn with(config: Config, total_bytes: u64) -> House {
        let ids = IdStart {
            next: 1_000_000,
            next_pool: 1,
        };
        House {
            state: State::new(config, total_bytes, 1, 7, ids),
            now: Duration::from_millis(1),
            deaf: BTreeSet::new(),
            alive: Vec::new(),
            figures: BTreeMap::new(),
            quotas: BTreeMap::new(),
            held: BTreeMap::new(),
            looks: 0,
            looked: BTreeSet::new(),
            notices: Vec::new(),
            killed: Vec::new(),
            may_kill: true,
            processes: BTreeMap::new(),
            last_word: None,
            next: 1,
            // Work that grows with the square of the crowd takes longer.
            dog: Watchdog::within(Duration::from_secs(300)),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Gives the state an input; returns the events for all clients.
    pub fn step(&mut self, input: Input) -> Vec<Event> {
        let (mut inputs, mut events) = (VecDeque::from([input]), Vec::new());
        while let Some(input) = inputs.pop_front() {
            for action in self.state.step(self.now, input) {
                match action {
                    Action::Send { client, event, .. } => {
                        events.push(event);
                        if !self.deaf.contains(&client) {
                            inputs.push_back(Input::Sent { client });
                        }
                    }
                    Action::ReadOrphan { pool, slots, .. } => {
                        let live = Some(self.alive.clone());
                        inputs.push_back(Input::OrphanRead { pool, slots, live });
                    }
                    Action::Complete { client, records } => {
                        let mut records: Vec<_> = records.into_iter().map(|(r, _)| r).collect();
                        for record in &mut records {
                            if let StatRecord::Channel(channel) = record {
                                channel.taken = TAKEN;
                            }
                        }
                        inputs.push_back(Input::Completed { client, records });
                    }
                    Action::ReadFigures { asker, pools } => {
                        let said = |(id, _)| (id, self.figures.get(&id).copied());
                        let figures = pools.into_iter().map(said).collect();
                        inputs.push_back(Input::FiguresRead { asker, figures });
                    }
                    Action::ReadHeld {
                        pool,
                        reader,
                        slots,
                        ..
                    } => {
                        self.looks += 1;
                        self.looked.insert((pool, reader));
                        let held = self.held.get(&(pool, reader)).into_iter().flatten();
                        let held = held.filter(|h| slots.contains(&h.slot)).copied().collect();
                        inputs.push_back(Input::HeldRead {
                            pool,
                            reader,
                            slots,
                            held,
                        });
                    }
                    Action::SayHog(notice) => self.notices.push(notice),
                    Action::Kill { domain, .. } => {
                        self.killed.push(domain);
                        let died = Input::ProcessDied { domain };
                        let not = Input::NotKilled { domain };
                        inputs.push_back(if self.may_kill { died } else { not });
                    }
                    Action::SetEntry {
                        pool: Some(pool),
                        quota_bytes,
                        ..
                    } => {
                        self.quotas.insert(pool, quota_bytes);
                    }
                    Action::Close(token) => inputs.push_back(Input::Closed { token }),
                    Action::Disconnect { client, refusal } => {
                        self.last_word = refusal.or(self.last_word);
                        inputs.push_back(Input::Parted { client });
                    }
                    _ => {}
                }
            }
            // As the shell does before it waits.
            let _ = self.state.deadline();
        }
        events
    }

    pub fn connect(&mut self, uid: u32) -> ClientId {
        let client = ClientId(self.number());
        self.step(Input::Connected {
            client,
            uid,
            gid: uid,
            pid: 1,
        });
        client
    }

    pub fn join(&mut self, uid: u32, resume: Option<DomainId>) -> (ClientId, DomainId) {
        let process = self.number();
        self.join_as(uid, resume, process)
    }

    /// Joins as a process that may have been here before.
    pub fn join_as(
        &mut self,
        uid: u32,
        resume: Option<DomainId>,
        process: u64,
    ) -> (ClientId, DomainId) {
        let client = self.connect(uid);
        let hello = self.hello(client, resume, process);
        let events = self.step(hello);
        match events.first() {
            Some(Event::Welcome { domain, .. }) => {
                self.processes.insert(*domain, process);
                (client, *domain)
            }
            other => panic!("{other:?}"),
        }
    }

    fn hello(&mut self, client: ClientId, resume: Option<DomainId>, process: u64) -> Input {
        let (pidfd, control_page) = (self.number(), self.number());
        Input::Hello {
            client,
            request: Request::Hello {
                version: PROTOCOL_VERSION,
                name: "one".into(),
                resume,
                dumpable: false,
            },
            pidfd: Some(FdToken(pidfd)),
            process,
            control_page: Some(FdToken(control_page)),
        }
    }

    /// Returns the process that a domain was.
    pub fn process_of(&self, domain: DomainId) -> u64 {
        self.processes[&domain]
    }

    /// Lets a process say hello; returns the refusal with which it is kept out.
    pub fn kept_out(&mut self, uid: u32, process: u64) -> Option<Refusal> {
        let client = self.connect(uid);
        self.last_word = None;
        let hello = self.hello(client, None, process);
        self.step(hello);
        self.last_word
    }

    /// Says whether a process is kept out because of the memory that it held.
    pub fn is_barred(&mut self, uid: u32, process: u64) -> bool {
        let refused = self.kept_out(uid, process);
        refused.is_some_and(|r| r.code == RefusalCode::Hog)
    }

    pub fn ask(
        &mut self,
        client: ClientId,
        request: Request,
        objects: impl IntoIterator<Item = Object>,
    ) -> Vec<Event> {
        let objects = objects.into_iter();
        let sealed = objects.map(|object| (object, Sealed::OneWriter));
        self.ask_with(client, request, sealed)
    }

    /// Sends a request with objects that are sealed in different ways.
    pub fn ask_with(
        &mut self,
        client: ClientId,
        request: Request,
        objects: impl IntoIterator<Item = (Object, Sealed)>,
    ) -> Vec<Event> {
        let fd = |((header, size), sealed)| Fd {
            token: FdToken(self.number()),
            facts: Facts {
                sealed,
                size,
                header: Some(header),
                made_here: false,
                inode: 1,
            },
        };
        let fds = objects.into_iter().map(fd).collect();
        self.step(Input::Request {
            client,
            request,
            fds,
        })
    }

    /// Returns the records that a client is shown, which come in pieces.
    pub fn stat(&mut self, client: ClientId) -> Vec<StatRecord> {
        let mut said = self.ask(client, Request::Stat { req: Req(77) }, []);
        while !matches!(said.last(), Some(Event::StatEnd { .. })) {
            let more = self.tick();
            said.extend(more);
        }
        let records = said.into_iter().filter_map(|event| match event {
            Event::Stat { record, .. } => Some(record),
            Event::StatEnd { .. } => None,
            other => panic!("{other:?}"),
        });
        records.collect()
    }

    /// Does the due work.
    pub fn tick(&mut self) -> Vec<Event> {
        self.step(Input::Tick)
    }

    pub fn part(&mut self, client: ClientId) {
        self.step(Input::HungUp { client });
        self.step(Input::Parted { client });
    }
}
