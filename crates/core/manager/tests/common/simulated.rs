//! The manager's shell in a simulated world: descriptors without a kernel, the state's actions carried out, and the
//! rules that hold after every input. A world says what its processes hear and what their counters say. The worlds are
//! `simulation` (anybody, in any order), `restarts` (honest domains while the manager dies) and `lab/fuzz/manager`.
#![allow(dead_code)] // each world uses a part of it

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;
use tranship_manager::Config;
use tranship_manager::state::{
    Action, ClientId, Facts, Fd, FdToken, Figures, Header, HeldSlot, HogNotice, IdStart, Input,
    Look, Sealed, State,
};
use tranship_proto::{DomainId, Event, PoolId, PoolShape, Refusal, Request, Trust};

/// The size of every chunk, bytes.
pub const CHUNK: u64 = 64 << 10;
/// The slots of every pool.
pub const SLOTS: u32 = 16;

/// The shape of every pool of this level.
pub fn shape(trust: Trust) -> PoolShape {
    PoolShape {
        max_bytes: 16 * CHUNK,
        slots: SLOTS,
        chunk_bytes: CHUNK,
        trust,
    }
}

/// Numbers that a seed decides.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).expect("below n")
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())].clone())
    }
}

pub fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns the first seed: a given one, or the clock.
pub fn first_seed(given: Option<u64>) -> u64 {
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed();
    let clock = clock.expect("a clock after 1970").as_nanos();
    given.unwrap_or(u64::try_from(clock).expect("a clock before 2500"))
}

/// Says whether every input and action is to be printed.
pub fn traced() -> bool {
    std::env::var_os("TRANSHIP_TRACE").is_some()
}

pub struct Shell {
    pub state: State,
    pub now: Duration,
    pub total_bytes: u64,
    /// Descriptors that the state owns or is about to be sent, and the inode behind each.
    pub tokens: BTreeMap<FdToken, u64>,
    pub ids: IdStart,
    pub instance: u64,
    /// The process of each watched domain.
    pub watched: Vec<(u64, DomainId)>,
    /// The process that says hello.
    pub greeting: u64,
    /// Ends of descriptors and connections that the state was not told of yet.
    pub later: VecDeque<Input>,
    pub next: u64,
}

impl Shell {
    pub fn new(config: Config, total_bytes: u64) -> Shell {
        let ids = IdStart {
            next: 1,
            next_pool: 1,
        };
        Shell {
            state: State::new(config, total_bytes, 1, 1, ids),
            now: Duration::ZERO,
            total_bytes,
            tokens: BTreeMap::new(),
            ids,
            instance: 1,
            watched: Vec::new(),
            greeting: 0,
            later: VecDeque::new(),
            next: 1,
        }
    }

    /// Kills the manager; the next one begins at the id file's numbers.
    pub fn restart(&mut self, config: Config) {
        self.instance += 1;
        self.state = State::new(config, self.total_bytes, self.instance, 1, self.ids);
        self.tokens.clear();
        self.later.clear();
        self.watched.clear();
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn token(&mut self, inode: u64) -> FdToken {
        let token = FdToken(self.number());
        self.tokens.insert(token, inode);
        token
    }

    pub fn owns(&self, token: FdToken) -> bool {
        self.tokens.contains_key(&token)
    }

    /// Makes a shared object.
    pub fn object(
        &mut self,
        (kind, count, size): (u32, u32, u64),
        sealed: Sealed,
        inode: u64,
    ) -> Fd {
        let header = Some(Header {
            kind,
            count,
            max_bytes: 16 * CHUNK,
            chunk_bytes: CHUNK,
        });
        let facts = Facts {
            sealed,
            size,
            header,
            made_here: false,
            inode,
        };
        let token = self.token(inode);
        Fd { token, facts }
    }

    /// Makes the two sockets of a `WakeFd`.
    pub fn ends(&mut self) -> [Fd; 2] {
        let facts = Facts {
            made_here: true,
            ..Facts::default()
        };
        [0; 2].map(|inode| Fd {
            token: self.token(inode),
            facts,
        })
    }

    /// Takes the domains that are watched by a process which ends.
    pub fn take_watched(&mut self, process: u64) -> Vec<DomainId> {
        let its = self.watched.extract_if(.., |(p, _)| *p == process);
        its.map(|(_, domain)| domain).collect()
    }

    fn memory(&self) -> u64 {
        let (granted, stranded) = self.state.memory();
        granted + stranded
    }

    /// Checks that nothing is left of anybody.
    pub fn is_empty(&self) {
        assert_eq!(self.state.users(), 0, "somebody still has something");
        assert_eq!(
            self.state.population(),
            [0; 4],
            "something outlived everybody"
        );
        assert_eq!(self.state.memory(), (0, 0));
        assert!(self.tokens.is_empty(), "{} descriptors", self.tokens.len());
    }
}

/// The counters that the shell is asked to read of a dead writer's pool.
pub struct Orphan {
    pub pool: PoolId,
    pub table: Option<FdToken>,
    pub refs: Vec<FdToken>,
    pub queues: Vec<(FdToken, FdToken)>,
}

/// A world around a state.
pub trait Simulated {
    fn shell(&mut self) -> &mut Shell;

    /// Takes a message to a client. Returns `true` if it goes out at once.
    fn hears(&mut self, client: ClientId, event: Event, fds: Vec<FdToken>) -> bool;

    /// Handles that the manager drops a connection.
    fn is_dropped(&mut self, client: ClientId, refusal: Option<Refusal>);

    /// Returns the window indices in which something is alive; `None` if counters cannot be read.
    fn alive(&mut self, orphan: &Orphan) -> Option<Vec<(u32, u32)>>;

    /// Returns the slots that a reader holds.
    fn held(&mut self, _reader: DomainId, _slots: Range<u32>) -> Vec<HeldSlot> {
        Vec::new()
    }

    /// Returns a writer's figures.
    fn figures(&mut self) -> Option<Figures> {
        None
    }

    /// Handles that an entry of a control page changes.
    fn entry_is_set(&mut self, _at: (FdToken, u32), _pool: Option<PoolId>, _epoch: u64) {}

    /// Handles that a descriptor is closed. Returns `true` if the state hears of it at once.
    fn is_closed(&mut self, _token: FdToken) -> bool {
        false
    }

    fn is_hog(&mut self, _notice: &HogNotice) {}

    /// Looks at an input that the state is about to take, and has taken.
    fn before(&mut self, _input: &Input) {}
    fn after(&mut self, _input: &Input) {}

    /// Says whether the state owns every descriptor between two inputs.
    fn owns_all(&self) -> bool {
        true
    }

    /// Gives the state one input, and everything that follows at once.
    fn feed(&mut self, input: Input) {
        let claims = matches!(
            &input,
            Input::Request {
                request: Request::ClaimChunk { .. },
                ..
            }
        );
        let before = self.shell().memory();
        if let Input::HungUp { client } = input {
            self.shell().later.push_back(Input::Parted { client });
        }
        self.take_all(VecDeque::from([input]));
        let (owns_all, shell) = (self.owns_all(), self.shell());
        // Only memory that exists already goes beyond the total.
        let now = shell.memory();
        assert!(now <= shell.total_bytes.max(before) || claims, "{now}");
        let held = shell.state.held_tokens();
        let there: BTreeSet<FdToken> = shell.tokens.keys().copied().collect();
        match owns_all {
            true => assert_eq!(held, there, "descriptors leaked or were closed early"),
            false => assert!(held.is_subset(&there), "descriptors were closed early"),
        }
    }

    /// Gives the state several inputs, and everything that follows at once.
    fn take_all(&mut self, mut inputs: VecDeque<Input>) {
        while let Some(input) = inputs.pop_front() {
            if traced() {
                println!("{input:?}");
            }
            self.before(&input);
            let shell = self.shell();
            let actions = shell.state.step(shell.now, input.clone());
            self.carry_out(actions, &mut inputs);
            self.after(&input);
        }
    }

    /// Carries out actions, and checks the state.
    fn carry_out(&mut self, actions: Vec<Action>, inputs: &mut VecDeque<Input>) {
        let mut gone = BTreeSet::new();
        for action in actions {
            if traced() {
                println!("    {action:?}");
            }
            inputs.extend(self.act(action, &mut gone));
        }
        if let Err(wrong) = self.shell().state.audit() {
            panic!("{wrong}");
        }
    }

    /// Carries out one action; returns the answer.
    fn act(&mut self, action: Action, gone: &mut BTreeSet<ClientId>) -> Option<Input> {
        match action {
            Action::Send { client, event, fds } => {
                assert!(!gone.contains(&client), "{event:?} to nobody");
                assert_eq!(fds.len(), event.fds(), "{event:?}");
                let closed = fds.iter().find(|fd| !self.shell().owns(**fd));
                assert_eq!(closed, None, "{event:?} carries a closed descriptor");
                let at_once = self.hears(client, event, fds);
                at_once.then_some(Input::Sent { client })
            }
            Action::Close(token) => {
                let was = self.shell().tokens.remove(&token);
                assert!(was.is_some(), "{token:?} closed twice");
                let closed = Input::Closed { token };
                if self.is_closed(token) {
                    return Some(closed);
                }
                self.shell().later.push_back(closed);
                None
            }
            Action::Disconnect { client, refusal } => {
                gone.insert(client);
                self.shell().later.push_back(Input::Parted { client });
                self.is_dropped(client, refusal);
                None
            }
            Action::Watch { pidfd, domain } => {
                let shell = self.shell();
                assert!(shell.owns(pidfd));
                shell.watched.push((shell.greeting, domain));
                None
            }
            Action::SetEntry {
                control_page,
                entry,
                pool,
                epoch,
                ..
            } => {
                assert!(self.shell().owns(control_page), "a closed control page");
                self.entry_is_set((control_page, entry), pool, epoch);
                None
            }
            Action::ReadOrphan {
                pool,
                slots,
                table,
                refs,
                queues,
                ..
            } => {
                let counters = queues.iter().flat_map(|(sent, rcvd)| [sent, rcvd]);
                for token in counters.chain(&refs).chain(&table) {
                    assert!(self.shell().owns(*token));
                }
                let orphan = Orphan {
                    pool,
                    table,
                    refs,
                    queues,
                };
                let live = self.alive(&orphan);
                Some(Input::OrphanRead { pool, slots, live })
            }
            Action::Complete { client, records } => {
                for look in records.iter().filter_map(|(_, look)| *look) {
                    let files = match look {
                        Look::Figures { table } => [Some(table), None],
                        Look::Rings { source, sink } => [source, sink],
                    };
                    assert!(files.into_iter().flatten().all(|f| self.shell().owns(f)));
                }
                let records = records.into_iter().map(|(record, _)| record).collect();
                Some(Input::Completed { client, records })
            }
            Action::ReadFigures { asker, pools } => {
                assert!(pools.iter().all(|(_, table)| self.shell().owns(*table)));
                let said = pools.into_iter().map(|(pool, _)| (pool, self.figures()));
                let figures = said.collect();
                Some(Input::FiguresRead { asker, figures })
            }
            Action::ReadHeld {
                pool,
                reader,
                table,
                refs,
                slots,
            } => {
                assert!(self.shell().owns(table) && self.shell().owns(refs));
                let held = self.held(reader, slots.clone());
                Some(Input::HeldRead {
                    pool,
                    reader,
                    slots,
                    held,
                })
            }
            Action::SayHog(notice) => {
                self.is_hog(&notice);
                None
            }
            Action::Kill { domain, pidfd } => {
                assert!(self.shell().owns(pidfd));
                Some(Input::NotKilled { domain })
            }
            Action::ReserveIds { next, next_pool } => {
                self.shell().ids = IdStart { next, next_pool };
                None
            }
            Action::Scheduled | Action::Exit => None,
        }
    }
}
