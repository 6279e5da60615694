//! `tranship metrics`: figures for tools and browsers, in a process that is a client of the manager like any other.
//!
//! A manager that is to serve them starts this program with the sockets open, before it locks itself down; it has
//! nothing to do with it from then on.

use super::connect;
use crate::args::ConnectArgs;
use crate::args::metrics::{MetricsArgs, ObserveArgs, TextFormat};
use crate::exit::{self, Answer};
use crate::output;
use anyhow::{Context, Result};
use rustix::io::FdFlags;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tranship::Error;
use tranship::sandbox::Sandbox;
use tranship_manager::{Config, Listener, paths};
use tranship_observe::{Door, Format, Server, Snapshot, Tally, render, tcp, unix};

pub(crate) fn run(args: &MetricsArgs) -> Result<Answer> {
    let mut doors = Vec::new();
    if let Some(path) = &args.unix {
        doors.push((unix(path, 0o600)?, false));
    }
    let anywhere = args.reach.anywhere;
    for (place, page) in [(&args.tcp, false), (&args.web, true)] {
        if let Some(place) = place {
            doors.push((tcp(place, anywhere)?, page));
        }
    }
    let figures = args.passed.iter().map(|n| (*n, false));
    for (number, page) in figures.chain(args.passed_web.map(|n| (n, true))) {
        let fd = tranship_sys::inherit::passed(number);
        let fd = fd.with_context(|| format!("descriptor {number} was not passed on"))?;
        doors.push((Door::of(fd)?, page));
    }
    match doors.is_empty() {
        true => print(args),
        false => serve(args, doors),
    }
}

/// Asks the manager once.
fn look(args: &ConnectArgs) -> Result<Snapshot, Error> {
    let begun = Instant::now();
    let domain = connect::look(args)?;
    let records = domain.stat()?;
    Ok(Snapshot::new(begun, records, std::process::id()))
}

fn print(args: &MetricsArgs) -> Result<Answer> {
    let format = match args.format {
        TextFormat::Openmetrics => Format::OpenMetrics,
        TextFormat::Prometheus => Format::Prometheus,
    };
    let snapshot = look(&args.connect)?;
    let mut out = output::stdout();
    out.write_all(render(Ok(&snapshot), &mut Tally::default(), format).as_bytes())?;
    out.flush()?;
    Ok(Answer::Yes)
}

/// Serves until it is interrupted, or the manager that started it ends.
fn serve(args: &MetricsArgs, doors: Vec<(Door, bool)>) -> Result<Answer> {
    match args.lifeline {
        true => lock_down()?,
        false => say(doors.iter().map(|(door, page)| (door, *page)))?,
    }
    let socket = args.connect.socket.clone();
    let manager = ConnectArgs { socket };
    let source = move || look(&manager).map_err(|e| exit::text(&e.into()));
    let server = Server::new(Box::new(source), args.reach.host.clone());
    for (door, page) in doors {
        server.serve(door, page).context("starting a thread")?;
    }
    if !args.lifeline {
        loop {
            std::thread::park();
        }
    }
    // The program that started this one writes nothing, and has the other end for as long as it lives.
    let mut end = [0];
    while std::io::stdin().read(&mut end).is_ok_and(|n| n > 0) {}
    Ok(Answer::Yes)
}

/// Prints the addresses for people, and for scripts that wait for them: the port may have been 0.
fn say<'a>(doors: impl Iterator<Item = (&'a Door, bool)>) -> Result<()> {
    for (door, page) in doors {
        let at = place(door, if page { "/" } else { "/metrics" });
        let at = at.context("asking a socket for its address")?;
        output::say(&match page {
            true => format!("page at {at}"),
            false => format!("figures at {at}"),
        })?;
    }
    Ok(())
}

/// Returns the address at which a client asks for `target`: at a Unix socket the path is all that there is to say.
fn place(door: &Door, target: &str) -> std::io::Result<String> {
    Ok(match door {
        Door::Tcp(tcp) => format!("http://{}{target}", tcp.local_addr()?),
        Door::Unix(unix) => match unix.local_addr()?.as_pathname() {
            Some(path) => format!("unix:{}", path.display()),
            None => "a Unix socket without a path".to_owned(),
        },
    })
}

/// Confines the process that reads untrusted requests: no file, no program, no socket except those that lead to the
/// manager.
fn lock_down() -> Result<()> {
    let also = [
        libc::SYS_accept4,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_setsockopt,
    ];
    let sandbox = Sandbox::new().reconnects().also(&also);
    sandbox
        .lock_down()
        .context("locking down the process that serves figures")?;
    Ok(())
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Sockets of the services beside the manager, listening already: an error in an address is reported before the manager
/// serves.
#[derive(Debug)]
pub(super) struct Doors {
    figures: Vec<Door>,
    page: Option<Door>,
    hosts: Vec<String>,
    manager: PathBuf,
    remove: Option<PathBuf>,
}

/// Opens the sockets, if there are to be any.
pub(super) fn doors(
    config: &Config,
    args: &ObserveArgs,
    listener: &Listener,
    mode: u32,
) -> Result<Option<Doors>> {
    let wanted = args.over(&config.observe);
    if !wanted.any() {
        return Ok(None);
    }
    let manager = socket_path(listener)?;
    let mut doors = Doors {
        figures: Vec::new(),
        page: None,
        hosts: wanted.hosts,
        remove: None,
        manager,
    };
    if wanted.metrics {
        let path = doors.manager.with_added_extension("metrics");
        // A user whom the rules keep from the manager must not read its figures there.
        let mode = if config.connect.is_empty() {
            mode
        } else {
            0o600
        };
        doors.figures.push(unix(&path, mode)?);
        doors.remove = Some(path);
    }
    if let Some(place) = &wanted.metrics_tcp {
        doors.figures.push(tcp(place, wanted.anywhere)?);
    }
    if let Some(place) = &wanted.web {
        doors.page = Some(tcp(place, wanted.anywhere)?);
    }
    Ok(Some(doors))
}

/// Returns the path where the manager listens: also where systemd made the socket.
fn socket_path(listener: &Listener) -> Result<PathBuf> {
    if let Some(path) = listener.path() {
        return Ok(path.to_owned());
    }
    let address =
        rustix::net::getsockname(listener.as_fd()).context("asking for the socket's name")?;
    let address = rustix::net::SocketAddrUnix::try_from(address)?;
    let path = address
        .path()
        .context("the inherited socket has no path, which figures need")?;
    let path = path.to_str().context("the socket's path is no text")?;
    Ok(path.into())
}

impl Doors {
    /// Reports the addresses. A failure to report them is no reason to end.
    pub(super) fn say(&self) {
        let figures = self.figures.iter().map(|door| (door, false));
        let _ = say(figures.chain(self.page.iter().map(|door| (door, true))));
    }

    /// Starts this program again to serve them. It ends when the returned value is dropped, or with this process,
    /// however that ends.
    pub(super) fn start(self) -> Result<Beside> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command
            .arg("metrics")
            .arg("--lifeline")
            .arg("--socket")
            .arg(&self.manager);
        for door in &self.figures {
            command.args(["--passed".to_owned(), pass(door)?]);
        }
        if let Some(door) = &self.page {
            command.args(["--passed-web".to_owned(), pass(door)?]);
        }
        for host in &self.hosts {
            command.args(["--host", host]);
        }
        for name in [
            "NOTIFY_SOCKET",
            "WATCHDOG_USEC",
            "WATCHDOG_PID",
            "LISTEN_FDS",
            "LISTEN_PID",
            "LISTEN_FDNAMES",
            paths::SOCKET_ENV,
        ] {
            command.env_remove(name);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let child = child.context("starting the process that serves figures")?;
        let remove = self.remove.and_then(|path| Some((inode(&path)?, path)));
        Ok(Beside {
            _child: child,
            remove,
        })
    }
}

/// The process beside a manager.
#[derive(Debug)]
pub(super) struct Beside {
    /// Process that hears of our end by its standard input.
    _child: Child,
    remove: Option<((u64, u64), PathBuf)>,
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Another manager may have made its own socket there by now.
        if let Some((ours, path)) = &self.remove
            && inode(path) == Some(*ours)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Lets a descriptor go through exec. The other descriptors of this process do not.
fn pass(door: &Door) -> Result<String> {
    rustix::io::fcntl_setfd(door, FdFlags::empty()).context("passing on a socket")?;
    Ok(door.as_fd().as_raw_fd().to_string())
}
