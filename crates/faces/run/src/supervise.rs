//! Starts, watches and ends the processes of a program, as the machine orders.

use crate::family;
use crate::filter::code;
use crate::keys;
use crate::listen::{self, Address};
use crate::machine::{Machine, Order, State};
use crate::place;
use crate::plan::Plan;
use crate::program::Program;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tranship::component::VARIABLE;
use tranship_session::places::{KEY_ENV, SOCKET_ENV, key_file};

/// Variables of this process's environment that each component gets.
const USUAL: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR"];

/// The visible state of a process of the program.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Name of the process: its component, and the number of the replica.
    pub name: String,
    /// State of the process.
    pub state: State,
    /// Process id, while it runs.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
}

/// The visible state of the whole program, for another thread.
pub type View = Arc<Mutex<Vec<Seen>>>;

/// A process that runs.
struct Running {
    child: Child,
    pidfd: OwnedFd,
    ready: UnixDatagram,
}

/// The supervisor of a program. The thread that makes it must start its processes, and lives as long as they do: the
/// kernel ends them with it.
pub struct Supervisor<'a> {
    program: &'a Program,
    exe: PathBuf,
    dir: PathBuf,
    machine: Machine,
    processes: Vec<(usize, u32)>,
    running: Vec<Option<Running>>,
    signals: UnixStream,
    keeper: Option<u32>,
    /// The sockets and devices of each component.
    sockets: Vec<Vec<OwnedFd>>,
    /// The key of each process.
    keys: Vec<String>,
    view: View,
}

impl std::fmt::Debug for Supervisor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl<'a> Supervisor<'a> {
    /// Prepares the start. `dir` is an empty folder for sockets; `keeper` is the process that ends everything should
    /// this one die.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn new(program: &'a Program, dir: &Path, keeper: Option<u32>) -> Result<Supervisor<'a>> {
        family::adopt_orphans().context("prctl(PR_SET_CHILD_SUBREAPER)")?;
        if keeper.is_some() {
            let set = set_parent_process_death_signal(Some(Signal::TERM));
            set.context("prctl(PR_SET_PDEATHSIG)")?;
        }
        let (signals, raised) = UnixStream::pair().context("a pair of sockets")?;
        signals
            .set_nonblocking(true)
            .context("a socket that does not wait")?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let raised = raised.try_clone().context("another descriptor")?;
            signal_hook::low_level::pipe::register(signal, raised).context("taking signals")?;
        }
        let (keys, operator) = keys::make(program)?;
        let config = keys::config(program, &keys, &operator)?;
        place::write_keys(&place::manager_config(dir), &config)?;
        place::write_keys(&key_file(&place::manager_socket(dir)), &operator)?;
        let mut sockets = Vec::new();
        for component in &program.components {
            let listen = || component.listen.iter().map(Address::listen).collect();
            let listening: Result<Vec<OwnedFd>> = listen();
            let of = || format!("component `{}`, line {}", component.name, component.line);
            sockets.push(listening.with_context(of)?);
        }
        let rules = program.rules();
        let count = rules.len();
        let mut supervisor = Supervisor {
            program,
            exe: std::env::current_exe().context("finding this program")?,
            dir: dir.to_owned(),
            machine: Machine::new(rules),
            processes: program.processes(),
            running: (0..count).map(|_| None).collect(),
            signals,
            keeper,
            sockets,
            keys,
            view: View::default(),
        };
        supervisor.show();
        Ok(supervisor)
    }

    /// Returns what another thread can look at.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Returns the manager's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        place::manager_socket(&self.dir)
    }

    /// Runs the program until it is over, and returns its exit code. Nothing of it is left afterwards.
    ///
    /// # Errors
    /// Refusals of the system to the supervisor itself.
    pub fn run(mut self) -> Result<i32> {
        let ran = self.turns();
        let ended = family::end_all().context("ending all processes");
        // The keeper does, too, unless it is gone.
        let _ = std::fs::remove_dir_all(&self.dir);
        let listened = self.program.components.iter().flat_map(|c| &c.listen);
        listened.for_each(Address::forget);
        let code = ran?;
        ended?;
        Ok(code)
    }

    fn turns(&mut self) -> Result<i32> {
        loop {
            let now = Instant::now();
            for order in self.machine.orders(now) {
                self.obey(order)?;
            }
            self.show();
            if let Some(code) = self.machine.finished() {
                return Ok(code);
            }
            self.wait()?;
            self.take_signals();
            let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
            if self.keeper.is_some_and(|keeper| keeper != parent) {
                // Killed: nobody waits for an orderly end.
                return Ok(128 + SIGTERM);
            }
            for at in 0..self.running.len() {
                self.look_at(at)?;
            }
        }
    }

    /// Waits until something happens, or the machine's next time.
    fn wait(&self) -> Result<()> {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.signals.as_fd()];
        for running in self.running.iter().flatten() {
            fds.extend([running.pidfd.as_fd(), running.ready.as_fd()]);
        }
        let mut polls: Vec<_> = fds
            .iter()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let until = self.machine.next();
        // The kernel's clock may be a little behind.
        let left = until.map(|until| {
            until.saturating_duration_since(Instant::now()) + Duration::from_millis(1)
        });
        let left = left.map(|left| rustix::time::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut polls, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(std::io::Error::from(error)).context("poll"),
        }
    }

    fn take_signals(&mut self) {
        let mut bytes = [0; 64];
        while self.signals.read(&mut bytes).is_ok_and(|read| read > 0) {
            self.machine.stop();
        }
    }

    /// Notes readiness and the end of a process.
    fn look_at(&mut self, at: usize) -> Result<()> {
        let Some(running) = &mut self.running[at] else {
            return Ok(());
        };
        let mut text = [0; 4096];
        while let Ok(len) = running.ready.recv(&mut text) {
            if text[..len]
                .split(|byte| *byte == b'\n')
                .any(|line| line == b"READY=1")
            {
                self.machine.ready(at);
            }
        }
        if !tranship_sys::pidfd::is_dead(&running.pidfd).context("looking at a process")? {
            return Ok(());
        }
        // Its number stands for its group until it was waited for.
        kill_group(running.child.id());
        let status = running.child.wait().context("waiting for a process")?;
        let name = self.name(at);
        self.running[at] = None;
        self.end_orphans()?;
        let code = code(status);
        self.machine.ended(at, code, Instant::now());
        let (state, restarts) = self.machine.state(at);
        match state {
            State::Resting(_) => {
                tracing::warn!(
                    "{name} ended with {code}; it is started again (number {})",
                    restarts + 1
                );
            }
            State::Ended(0) => tracing::info!("{name} has ended"),
            _ => tracing::error!(
                "{name} ended with {code}, and is not started again: the program ends"
            ),
        }
        Ok(())
    }

    /// Kills processes that lost their parent and left their group: the component that started them has ended.
    fn end_orphans(&self) -> Result<()> {
        let groups: Vec<u32> = self
            .running
            .iter()
            .flatten()
            .map(|running| running.child.id())
            .collect();
        let is_ours = |pid: Pid| groups.contains(&pid.as_raw_pid().unsigned_abs());
        for child in family::children().context("looking at /proc")? {
            if !is_ours(child.pid) && !is_ours(child.group) {
                let _ = rustix::process::kill_process(child.pid, Signal::KILL);
                let _ = rustix::process::waitpid(
                    Some(child.pid),
                    rustix::process::WaitOptions::empty(),
                );
            }
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Start(at) => self.start(at),
            Order::Stop(at) => {
                if let Some(running) = &self.running[at] {
                    if tranship_sys::pidfd::is_dead(&running.pidfd)
                        .context("looking at a process")?
                    {
                        self.machine.ended_before(at);
                        return Ok(());
                    }
                    let pid = Pid::from_raw(running.child.id().cast_signed());
                    let _ = pid.map(|pid| kill_process_group(pid, Signal::TERM));
                }
                Ok(())
            }
            Order::Kill(at) => {
                if let Some(running) = &self.running[at] {
                    kill_group(running.child.id());
                }
                Ok(())
            }
        }
    }

    fn start(&mut self, at: usize) -> Result<()> {
        let uid = at.checked_sub(1).and_then(|at| {
            let (component, _) = self.processes[at];
            self.program.components[component].rights.uid
        });
        let (ready, path) = place::readiness(&self.dir, at, uid)?;
        let mut command = self.command(at)?;
        command
            .env("NOTIFY_SOCKET", path)
            .stdin(self.stdin(at)?)
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", self.name(at)))?;
        let pidfd = tranship_sys::pidfd::open(child.id()).context("pidfd_open")?;
        self.running[at] = Some(Running {
            child,
            pidfd,
            ready,
        });
        Ok(())
    }

    /// Returns the standard input of a launcher: nothing, or listening sockets.
    fn stdin(&self, at: usize) -> Result<Stdio> {
        let component = at.checked_sub(1).map(|at| self.processes[at].0);
        let sockets = component.map_or(&[][..], |component| &self.sockets[component]);
        Ok(match sockets.is_empty() {
            true => Stdio::null(),
            false => listen::carrier(sockets)?.into(),
        })
    }

    /// Returns the launcher of a process.
    fn command(&self, at: usize) -> Result<Command> {
        let socket = self.socket();
        let mut command = Command::new(&self.exe);
        command.arg("component");
        let Some(at) = at.checked_sub(1) else {
            let text = |path: &Path| path.to_string_lossy().into_owned();
            let config = place::manager_config(&self.dir);
            let run = [
                text(&self.exe),
                "manager".to_owned(),
                "--socket".to_owned(),
                text(&socket),
            ];
            let run = run
                .into_iter()
                .chain(["--config".to_owned(), text(&config)]);
            command.arg(self.plan(run.collect()).argument()?);
            return Ok(command);
        };
        let (component, replica) = self.processes[at];
        let component = &self.program.components[component];
        let plan = Plan {
            rights: Some(component.rights.clone()),
            filter: component.filter.clone(),
            listens: component.listen.len(),
            ..self.plan(component.run.clone())
        };
        let brief = self.program.brief(component, replica);
        let brief = serde_json::to_string(&brief).context("a brief as JSON")?;
        command
            .arg(plan.argument()?)
            .env_clear()
            .current_dir(&self.program.folder);
        for name in USUAL
            .into_iter()
            .chain(component.inherit.iter().map(String::as_str))
        {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .envs(&component.env)
            .env(SOCKET_ENV, socket)
            .env(KEY_ENV, &self.keys[at])
            .env(VARIABLE, brief);
        Ok(command)
    }

    fn plan(&self, run: Vec<String>) -> Plan {
        Plan {
            parent: std::process::id(),
            run,
            rights: None,
            separated: false,
            filter: None,
            listens: 0,
        }
    }

    fn name(&self, at: usize) -> String {
        match at.checked_sub(1).map(|at| self.processes[at]) {
            None => "the manager".to_owned(),
            Some((component, replica)) => {
                let component = &self.program.components[component];
                match component.replicas {
                    1 => component.name.clone(),
                    _ => format!("{}.{replica}", component.name),
                }
            }
        }
    }

    fn show(&mut self) {
        let seen = (0..self.running.len()).map(|at| {
            let (state, restarts) = self.machine.state(at);
            Seen {
                name: self.name(at),
                state,
                pid: self.running[at].as_ref().map(|running| running.child.id()),
                restarts,
            }
        });
        let seen = seen.collect();
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }
}

fn kill_group(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed());
    // The group may be empty.
    let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
}
