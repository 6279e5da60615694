//! The I/O around the state machine: one thread, one epoll loop, nothing that blocks on a client.

mod act;
mod conn;
mod counters;
mod facts;
mod idfile;
mod listener;
pub(crate) mod lock;
mod machine;
mod notify;

pub use listener::Listener;

use crate::Config;
use crate::state::{ClientId, FdToken, Input, State};
use conn::Conn;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_proto::DomainId;
use tranship_region::layout::BoardRw;
use tranship_sys::epoll::{Epoll, Interest, Ready};
use tranship_sys::{crash, eventfd, process};

/// The manager cannot run.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Another manager serves this socket.
    #[error("another manager is running at {path}")]
    Running {
        /// The socket.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl ManagerError {
    pub(crate) fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> ManagerError {
        let what = what.into();
        move |source| ManagerError::Io { what, source }
    }
}

/// Stops a running manager from outside.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<OwnedFd>);

impl Shutdown {
    /// A new one.
    pub fn new() -> io::Result<Shutdown> {
        Ok(Shutdown(Arc::new(eventfd::create()?)))
    }

    /// Makes `run` return; callable from any thread.
    pub fn stop(&self) -> io::Result<()> {
        eventfd::signal(&*self.0)
    }
}

/// Descriptors that are kept free for what the shell itself opens.
const RESERVE: usize = 256;
/// Messages taken from one client before the next one has its turn.
const TURN: usize = 16;
/// What epoll says about a ready descriptor: the kind is in the upper byte.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const CLIENT: u64 = 1 << 56;
const WATCH: u64 = 2 << 56;
const KIND: u64 = 0xff << 56;

/// Runs a manager until it is stopped or has been idle for as long as the configuration says.
/// A daemon says `daemon`: its descriptors are then out of reach for other processes of its user.
pub fn run(
    config: Config,
    listener: Listener,
    stop: &Shutdown,
    daemon: bool,
) -> Result<(), ManagerError> {
    if daemon {
        process::set_dumpable(false).map_err(ManagerError::at("becoming non-dumpable"))?;
    }
    let mut shell = Shell::new(config, listener, stop)?;
    notify::ready();
    shell.serve()
}

struct Shell {
    state: State,
    epoll: Epoll,
    listener: Listener,
    started: Instant,
    instance: u64,
    board_entries: u32,
    max_files: usize,
    fds: HashMap<FdToken, Arc<File>>,
    next_token: u64,
    conns: HashMap<ClientId, Conn>,
    next_client: u64,
    boards: HashMap<FdToken, BoardRw>,
    watches: HashMap<FdToken, DomainId>,
    connected: HashMap<DomainId, ClientId>,
    /// Answers to what the state asked to be read.
    answers: VecDeque<Input>,
    /// Connections with something new to send.
    dirty: BTreeSet<ClientId>,
    /// Connections to which the kernel lets no more descriptors go for the moment.
    throttled: BTreeSet<ClientId>,
    ids: Option<PathBuf>,
    exit: bool,
}

impl Shell {
    fn new(config: Config, listener: Listener, stop: &Shutdown) -> Result<Shell, ManagerError> {
        let files = process::raise_nofile_soft_to_hard().unwrap_or_else(|_| process::nofile_soft());
        let max_files = usize::try_from(files)
            .unwrap_or(usize::MAX)
            .saturating_sub(RESERVE)
            .max(16);
        let epoll = Epoll::new().map_err(ManagerError::at("epoll"))?;
        epoll
            .add(&listener, LISTENER, Interest::Read)
            .map_err(ManagerError::at("epoll"))?;
        epoll
            .add(&*stop.0, STOP, Interest::Read)
            .map_err(ManagerError::at("epoll"))?;
        let total = config.total.unwrap_or_else(machine::half_of_memory);
        let instance = machine::random();
        let ids = listener.id_file();
        let start = idfile::load(ids.as_deref());
        let board_entries = config.pools_per_domain;
        let mut state = State::new(config, total, instance, process::getpid(), start);
        state.limit_descriptors(max_files.saturating_sub(max_files / 8));
        Ok(Shell {
            state,
            epoll,
            listener,
            started: Instant::now(),
            instance,
            board_entries,
            max_files,
            fds: HashMap::new(),
            next_token: 1,
            conns: HashMap::new(),
            next_client: 1,
            boards: HashMap::new(),
            watches: HashMap::new(),
            connected: HashMap::new(),
            answers: VecDeque::new(),
            dirty: BTreeSet::new(),
            throttled: BTreeSet::new(),
            ids,
            exit: false,
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn serve(&mut self) -> Result<(), ManagerError> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.exit {
            let mut wait = self.state.deadline().map(|d| d.saturating_sub(self.now()));
            if !self.throttled.is_empty() {
                let soon = Duration::from_millis(10);
                wait = Some(wait.map_or(soon, |w| w.min(soon)));
            }
            // Rounded up: a deadline is not to be waited for in a busy loop.
            let wait = wait.map(|w| w + Duration::from_millis(1));
            self.epoll
                .wait(&mut ready, wait)
                .map_err(ManagerError::at("epoll"))?;
            // Clients first: what a process said before it ended counts.
            ready.sort_by_key(|r| r.token & KIND == WATCH);
            for r in &ready {
                match r.token & KIND {
                    0 if r.token == STOP => return Ok(()),
                    0 => self.accept(),
                    CLIENT => self.client_ready(ClientId(r.token & !KIND), *r),
                    _ => self.process_ended(FdToken(r.token & !KIND)),
                }
            }
            self.dirty.append(&mut self.throttled);
            self.flush_all();
            if self.state.deadline().is_some_and(|d| d <= self.now()) {
                self.feed(Input::Tick);
            }
        }
        Ok(())
    }

    /// Gives the state one input, does what it says, and what follows from that.
    fn feed(&mut self, input: Input) {
        self.answers.push_back(input);
        while let Some(input) = self.answers.pop_front() {
            let actions = self.state.step(self.started.elapsed(), input);
            // Crash: whatever was not done yet, a restarted manager does not know of: it is rebuilt from what
            // its clients show, and a client that hears nothing asks again.
            for action in actions {
                crash::point("manager.before_action");
                self.act(action);
            }
        }
        self.flush_all();
    }

    fn process_ended(&mut self, pidfd: FdToken) {
        let Some(domain) = self.watches.get(&pidfd).copied() else {
            return;
        };
        // What it had said before it ended.
        if let Some(client) = self.connected.get(&domain).copied() {
            while self.conns.contains_key(&client) && self.read_one(client) {}
        }
        self.feed(Input::ProcessDied { domain });
    }

    fn keep(&mut self, fd: OwnedFd) -> FdToken {
        let token = FdToken(self.next_token);
        self.next_token += 1;
        self.fds.insert(token, Arc::new(File::from(fd)));
        token
    }
}
