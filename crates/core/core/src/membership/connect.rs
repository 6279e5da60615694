//! Joining a manager: find one, start one if there is none, say hello.

use super::shell::Domain;
use crate::domain::discover::{self, Begin, Found, Start};
use crate::domain::places::Places;
use crate::domain::{DomainCore, Join, Leaks, MANAGER_TIMEOUT};
use crate::error::{self, Error, ErrorKind};
use crate::setters;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::time::Duration;
#[cfg(feature = "embedded")]
use tranship_manager::{Config, Embedded};
use tranship_sys::process;

/// Number of managers that may close the connection without an answer before `connect` gives up.
const ATTEMPTS: u32 = 5;

/// Shortest time-out that the system calls accept, and the longest one.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(1 << 31);

/// Options for joining a manager.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::Domain;
/// use tranship::admin::Leaks;
///
/// let camera = Domain::builder().name("camera").leaks(Leaks::Off).embedded()?;
/// let socket = camera.socket_path().unwrap();
/// let viewer = Domain::builder().name("viewer").socket(socket).connect()?;
/// assert_ne!(camera.id(), viewer.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DomainBuilder {
    name: Option<String>,
    socket: Option<PathBuf>,
    helper_thread: bool,
    dumpable: Option<bool>,
    autostart: bool,
    program: Option<PathBuf>,
    #[cfg(feature = "embedded")]
    config: Option<Config>,
    leaks: Option<Leaks>,
    manager_timeout: Duration,
}

impl Default for DomainBuilder {
    fn default() -> Self {
        DomainBuilder {
            name: None,
            socket: None,
            helper_thread: false,
            dumpable: None,
            autostart: true,
            program: None,
            #[cfg(feature = "embedded")]
            config: None,
            leaks: None,
            manager_timeout: MANAGER_TIMEOUT,
        }
    }
}

impl Domain {
    /// Joins a manager; see [`DomainBuilder::connect`].
    ///
    /// # Errors
    /// As [`DomainBuilder::connect`].
    pub fn connect() -> Result<Domain, Error> {
        DomainBuilder::default().connect()
    }

    /// Starts a manager inside this process and joins it; see [`DomainBuilder::embedded`].
    ///
    /// # Errors
    /// As [`DomainBuilder::embedded`].
    #[cfg(feature = "embedded")]
    pub fn embedded() -> Result<Domain, Error> {
        DomainBuilder::default().embedded()
    }

    /// Returns the options for joining a manager.
    pub fn builder() -> DomainBuilder {
        DomainBuilder::default()
    }
}

impl DomainBuilder {
    setters! {
        /// Sets the name that `tranship ls` shows; default: the program's name.
        name(name: &str) => name = Some(name.into());

        /// Joins the manager at this socket and no other.
        socket(path: impl Into<PathBuf>) => socket = Some(path.into());

        /// Starts a thread that calls [`Domain::turn`] whenever the manager has news, for programs that may not call
        /// the library for long. Without it, a program that waits for something else restarts no manager that it had
        /// started, and shows the next one no memory of sent messages. Start the thread after any sandbox is in place;
        /// all its signals are blocked.
        helper_thread(yes: bool) => helper_thread = yes;
    }
    /// Makes the process non-dumpable, so that other processes of the same user cannot reach into it.
    pub fn non_dumpable(mut self) -> Self {
        self.dumpable = Some(false);
        self
    }
    setters! {
        /// Sets whether a manager may be started when none is found (default: yes).
        autostart(yes: bool) => autostart = yes;

        /// Sets the program `tranship` that is started as the manager, now and if it is gone later. Default: the one in
        /// `TRANSHIP_BIN`, else beside this program, else in the `PATH`.
        manager_program(path: impl Into<PathBuf>) => program = Some(path.into());

        /// Sets the configuration of an embedded manager.
        #[cfg(feature = "embedded")]
        config(config: Config) => config = Some(config);

        /// Sets the time to wait for a manager that does not answer (default: 10 s): for its welcome, and in each call
        /// that only asks it something (a pool, a heap, a name, a descriptor, `stat`, quotas). Such a call is
        /// `TimedOut` then, and a late answer is undone. Settings (quotas, traces, the right to forward) may have taken
        /// effect: set them again.
        ///
        /// Calls that wait for more than the manager have times of their own, such as opening a channel
        /// ([`ChannelOptions::timeout`](crate::ChannelOptions::timeout)) and waiting for memory. The limit is 1 ms at
        /// least. A manager that is gone is waited for 5 s, and the error is `ManagerAway`.
        manager_timeout(limit: Duration) => manager_timeout = limit.clamp(MIN_TIMEOUT, MAX_TIMEOUT);

        /// Notes buffers when they are allocated or received, and prints those that are left when the last handle of
        /// the domain goes. Default: as the variable `TRANSHIP_LEAKS` of the environment says, `1` or `backtrace`.
        /// Buffers are slower then; otherwise it costs nothing.
        leaks(leaks: Leaks) => leaks = Some(leaks);
    }

    /// Joins the manager named in `TRANSHIP_SOCKET`, else the system's, else the user's, else starts one that leaves 60
    /// s after its last client. If the system's socket exists, none is started. A privileged process (set-uid, file
    /// capabilities) starts none either, and heeds no environment.
    ///
    /// Waits for the manager's welcome as long as [`manager_timeout`](DomainBuilder::manager_timeout) says, and as long for one that it starts.
    ///
    /// # Errors
    /// `NoManager` if no manager answers and none could be started; `Unreachable` if another file is in its place;
    /// `Access`, `Limit` by the manager's rules; `Version` if the manager speaks another version; `TimedOut`; `System`.
    pub fn connect(self) -> Result<Domain, Error> {
        self.prepare()?;
        let run = |path: &Path| discover::run_manager(self.program.as_deref(), path);
        let mut attempts = 0;
        loop {
            let found = match &self.socket {
                Some(path) => discover::named(path, self.manager_timeout)?,
                None => discover::find(&Places::find(), self.start(&run), self.manager_timeout)?,
            };
            let path = found.path.clone();
            attempts += 1;
            match self.join(found, None) {
                // The manager ended just then, or left for want of clients: look again for one.
                Err(error) if error == ErrorKind::ManagerAway && attempts < ATTEMPTS => {}
                Err(error) if error == ErrorKind::ManagerAway => {
                    let text = format!(
                        "no manager answers at {}: it hung up {attempts} times before it answered; its log may say why",
                        path.display()
                    );
                    return Err(Error::new(ErrorKind::NoManager, text));
                }
                joined => return joined,
            }
        }
    }

    /// Starts a manager as a thread of this process and joins it. Other processes join by its socket (the given one, or
    /// a private one: [`Domain::socket_path`]). It isolates no domain from this process.
    ///
    /// Waits until it listens.
    ///
    /// # Errors
    /// `ManagerRunning`, `Unreachable` at the socket that was given; `BadArgument` for a configuration that is not consistent; `System`.
    #[cfg(feature = "embedded")]
    pub fn embedded(self) -> Result<Domain, Error> {
        self.prepare()?;
        let manager = Embedded::start(
            self.config.clone().unwrap_or_default(),
            self.socket.as_deref(),
        )?;
        let path = manager.path().to_owned();
        let found = discover::named(&path, self.manager_timeout)?;
        DomainBuilder {
            socket: Some(path),
            ..self
        }
        .join(found, Some(Box::new(manager)))
    }

    fn prepare(&self) -> Result<(), Error> {
        crate::domain::look_at_left();
        crate::base::retired::reclaim();
        if let Some(dumpable) = self.dumpable {
            process::set_dumpable(dumpable).map_err(error::system("prctl(PR_SET_DUMPABLE)"))?;
        }
        let _ = process::raise_nofile_soft_to_hard();
        Ok(())
    }

    fn start<'a>(&self, run: Begin<'a>) -> Start<'a> {
        if !self.autostart {
            Err("`tranship manager` runs one")
        } else if process::is_privileged() {
            // The starter of this process chose its environment, and would choose the program that runs with its
            // privileges.
            Err(
                "a privileged process (set-uid or the like) starts none and heeds no environment; run `tranship manager`",
            )
        } else {
            Ok(run)
        }
    }

    fn join(&self, found: Found, embedded: Option<Box<dyn Any + Send>>) -> Result<Domain, Error> {
        let core = DomainCore::join(Join {
            found,
            embedded,
            name: self.name.clone().unwrap_or_else(program_name),
            socket: self.socket.clone(),
            program: self.program.clone(),
            leaks: self.leaks.unwrap_or_else(Leaks::of_environment),
            helper_thread: self.helper_thread,
            manager_timeout: self.manager_timeout,
        })?;
        Ok(Domain::new(core))
    }
}

fn program_name() -> String {
    let path = std::env::args_os()
        .next()
        .map(PathBuf::from)
        .unwrap_or_default();
    path.file_name()
        .map_or_else(|| "domain".into(), |n| n.to_string_lossy().into_owned())
}
