//! The I/O around the state machine: one thread, one epoll loop, nothing that waits for a client.
//!
//! Each user (uid) with a connection is a party with its own epoll and its own list of tasks. A turn of the loop gives
//! every party with tasks the same time at most, whatever the others have sent. A task is short: long work consists of
//! many tasks. Workers handle the descriptors that clients send, and close them.

mod accept;
mod act;
mod confine;
mod conn;
mod conns;
mod counters;
mod discard;
mod flight;
mod hog;
mod idfile;
mod in_flight;
mod keep;
mod listener;
pub(crate) mod lock;
mod look;
mod machine;
mod notify;
mod out;
mod page;
mod parts;
mod party;
mod pressure;
mod read;
mod restore;
mod serve;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod turns;
mod watchdog;
mod worker;
mod write;

pub use listener::Listener;

use crate::Config;
use crate::state::{FdToken, Input, State};
use accept::AGAIN;
use in_flight::LOOK_AGAIN;
use notify::Notify;
use parts::{KIND, LISTENER, PAGE, STOP, Shell, WORKER};
use pressure::PRESSURE;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_error::Error;
use tranship_sys::epoll::{Epoll, Interest, Ready};
use tranship_sys::{eventfd, process, schedule};
use watchdog::Phase;
use worker::Workers;

/// Stops a running manager from outside.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<OwnedFd>);

impl Shutdown {
    /// Makes a shutdown handle.
    ///
    /// # Errors
    /// The kernel's error if a process can have no more descriptors.
    pub fn new() -> io::Result<Shutdown> {
        Ok(Shutdown(Arc::new(eventfd::create()?)))
    }

    /// Makes `run` return; callable from any thread.
    ///
    /// # Errors
    /// The kernel's error; it does not block.
    pub fn stop(&self) -> io::Result<()> {
        eventfd::signal(&*self.0)
    }
}

/// The processor time that the daemon and its helpers ask for at a time, as short as the kernel allows. A thread that
/// wakes them waits for an answer, and should not wait for another thread's computation.
const SLICE: Duration = Duration::from_micros(100);
/// Descriptors that are kept free for the shell's own files.
const RESERVE: usize = 256;
/// Runs a manager until it is stopped, or has been idle for as long as the configuration says. `daemon` is for a
/// process that only serves:
///
/// - Other processes of its user cannot reach its descriptors.
/// - Helper processes of its own handle what untrusted peers send.
/// - A loop that stands still ends the process.
/// - The process, the caller included, gives up every right that the manager does not need.
///
/// # Errors
/// `System` if it lacks something that it needs: descriptors, threads, its confinement. Clients' actions are no errors.
pub fn run(config: Config, listener: Listener, stop: &Shutdown, daemon: bool) -> Result<(), Error> {
    if daemon {
        process::set_dumpable(false).map_err(tranship_error::system("becoming non-dumpable"))?;
    }
    let notify = Notify::new();
    if daemon {
        // Helpers and the watchdog's thread inherit it.
        if let Err(error) = schedule::ask_for_slices(SLICE) {
            tracing::warn!(%error, "no short slices of the processor");
        }
        confine::confine(config.kills())?;
    }
    let workers =
        Workers::new(daemon, WORKER).map_err(tranship_error::system("starting a helper"))?;
    let limit = config.watchdog;
    let mut shell = Shell::new(config, listener, stop, workers, notify)?;
    shell.trims = daemon;
    // After the first fork, and before the loop can get stuck.
    if daemon {
        shell.beat =
            watchdog::start(limit).map_err(tranship_error::system("starting a watchdog"))?;
    }
    if daemon {
        shell.restore(tranship_sys::inherit::stored());
    }
    shell.notify.ready();
    shell.serve()
}

impl Shell {
    fn new(
        config: Config,
        mut listener: Listener,
        stop: &Shutdown,
        mut workers: Workers,
        notify: Notify,
    ) -> Result<Shell, Error> {
        let files = process::raise_nofile_soft_to_hard().unwrap_or_else(|_| process::nofile_soft());
        let max_files = usize::try_from(files)
            .unwrap_or(usize::MAX)
            .saturating_sub(RESERVE)
            .max(16);
        let epoll = Epoll::new().map_err(tranship_error::system("epoll"))?;
        epoll
            .add(&listener, LISTENER, Interest::Read)
            .map_err(tranship_error::system("epoll"))?;
        epoll
            .add(&*stop.0, STOP, Interest::Read)
            .map_err(tranship_error::system("epoll"))?;
        workers.prepare(&epoll);
        let gauge = pressure::Gauge::new(&config.pressure, config.grace, &epoll);
        let total = config.total.unwrap_or_else(machine::half_of_memory);
        let instance = machine::random();
        let ids = listener.id_file();
        let pages = listener.page(!config.connect.is_empty());
        let start = idfile::load(ids.as_deref());
        let control_page_entries = config.pools_per_domain;
        let scheduled = config.is_scheduled();
        let mut state = State::new(config, total, instance, process::getpid(), start);
        state.limit_descriptors(max_files.saturating_sub(max_files / 8));
        state.set_owner(process::geteuid());
        let mut shell = Shell {
            state,
            epoll,
            pages,
            listener,
            listener_rests: None,
            started: Instant::now(),
            instance,
            control_page_entries,
            scheduled,
            max_files,
            fds: HashMap::new(),
            close_queue: Rc::default(),
            next_token: 1,
            conns: HashMap::new(),
            next_client: 1,
            control_pages: HashMap::new(),
            watches: HashMap::new(),
            connected: HashMap::new(),
            parties: HashMap::new(),
            runnable: VecDeque::new(),
            resting: Vec::new(),
            workers,
            waits_for_worker: BTreeSet::new(),
            flights: flight::Flights::new(max_files, process::geteuid()),
            lingering: BTreeSet::new(),
            look: Duration::ZERO,
            answers: VecDeque::new(),
            throttled: BTreeSet::new(),
            buf: vec![0; tranship_proto::MAX_MESSAGE_BYTES + 1].into(),
            ids,
            notify,
            store: store::StoredNames::new(),
            beat: Arc::default(),
            used: process::thread_time(),
            exit: false,
            gauge,
            trims: false,
            trim: None,
        };
        shell.pages.watch(&shell.epoll, PAGE);
        Ok(shell)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut ready: Vec<Ready> = Vec::new();
        while self.turn(&mut ready)? {}
        Ok(())
    }

    /// Waits for work, and does some of it. Returns `false` at the end of the manager.
    fn turn(&mut self, ready: &mut Vec<Ready>) -> Result<bool, Error> {
        let wait = self.wait();
        let used = process::thread_time();
        self.state.turned(used.saturating_sub(self.used));
        self.used = used;
        self.beat.at(Phase::Waiting, 0, 0);
        self.epoll
            .wait(ready, wait)
            .map_err(tranship_error::system("epoll"))?;
        self.beat.turn();
        self.notify.turn();
        for r in ready.iter() {
            match r.token & KIND {
                0 if r.token == STOP => return Ok(false),
                0 if r.token == PRESSURE => self.gauge.fire(&self.epoll, r.hung_up),
                0 => {
                    self.beat.at(Phase::Accepting, 0, 0);
                    self.accept();
                }
                WORKER => {
                    self.beat.at(Phase::Worker, 0, 0);
                    self.worker_speaks(r.token & !KIND);
                }
                PAGE => self.pages.opened(),
                _ => self.wake(party::of(r.token & !KIND)),
            }
        }
        self.again();
        self.end_rests(Instant::now());
        for _ in 0..self.runnable.len() {
            if let Some(uid) = self.runnable.pop_front() {
                self.serve_party(uid);
            }
        }
        if self.state.deadline().is_some_and(|d| d <= self.now()) {
            self.beat.at(Phase::Tick, 0, 0);
            self.feed(Input::Tick);
            self.sort_trash();
        }
        if self.state.has_memory()
            && let Some(pressure) = self.gauge.look()
        {
            self.feed(Input::Pressure(pressure));
        }
        self.page();
        self.sync_store();
        self.trim();
        Ok(!self.exit)
    }

    /// Continues the statistics page, if it is time.
    fn page(&mut self) {
        let now = self.now();
        if self.pages.wait(now) != Some(Duration::ZERO) {
            return;
        }
        self.beat.at(Phase::Page, 0, 0);
        let (state, fds) = (&self.state, &self.fds);
        let file = |token: FdToken| fds.get(&token).map(|f| &***f);
        let file = &file;
        self.pages
            .go_on(&page::Sight { state, file, now }, self.instance);
    }

    /// Gives back memory that ended clients needed, when there is nothing else to do.
    fn trim(&mut self) {
        let due = self.trim.is_some_and(|t| t <= Instant::now());
        if due && self.runnable.is_empty() {
            self.trim = None;
            self.fds.shrink_to_fit();
            self.conns.shrink_to_fit();
            self.control_pages.shrink_to_fit();
            process::trim_heap();
        }
    }

    /// Returns the time until the next work.
    fn wait(&self) -> Option<Duration> {
        if !self.runnable.is_empty() {
            return Some(Duration::ZERO);
        }
        let (now, clock) = (self.now(), Instant::now());
        let after = |at: Instant| at.saturating_duration_since(clock);
        let page = self.pages.wait(now);
        if page.is_some_and(|page| page.is_zero()) {
            return page;
        }
        let again = !self.throttled.is_empty()
            || !self.waits_for_worker.is_empty()
            || self.listener_rests.is_some();
        let waits = [
            page,
            self.state.deadline().map(|at| at.saturating_sub(now)),
            again.then_some(AGAIN),
            self.resting.iter().min().map(|(until, _)| after(*until)),
            self.trim.map(after),
            (!self.lingering.is_empty()).then(|| self.look.saturating_sub(now)),
            self.gauge.wait().filter(|_| self.state.has_memory()),
            self.store_wait(),
            self.notify.wait(),
        ];
        // Rounded up: a deadline is not to be waited for in a busy loop.
        let wait = waits.into_iter().flatten().min();
        wait.map(|wait| wait + Duration::from_millis(1))
    }

    /// Tries again the operations for which the kernel had no room.
    fn again(&mut self) {
        if self.listener_rests.is_some_and(|t| t <= Instant::now()) {
            self.listener_rests = None;
            let _ = self.epoll.add(&self.listener, LISTENER, Interest::Read);
        }
        if !self.lingering.is_empty() && self.look <= self.now() {
            self.look = self.now() + LOOK_AGAIN;
            self.look_at_lingering();
        }
        for client in std::mem::take(&mut self.throttled) {
            self.plan_write(client);
        }
        for uid in std::mem::take(&mut self.waits_for_worker) {
            self.use_workers(uid);
        }
    }
}
