//! Telling systemd that the socket is served, that the loop turns, and what to store.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tranship_sys::socket;

/// Notices that wait for room. Who takes none of them is told nothing more about what to store.
const BACKLOG: usize = 1 << 14;
/// When it is tried again.
const AGAIN: Duration = Duration::from_millis(10);

/// A descriptor that stays open until it was sent.
pub(super) trait Lasting: AsFd + std::fmt::Debug {}
impl<T: AsFd + std::fmt::Debug> Lasting for T {}

/// Where the service manager listens.
#[derive(Debug)]
pub(super) struct Notify {
    to: Option<UnixDatagram>,
    /// What it has not taken yet; more than this it never has to.
    backlog: VecDeque<(String, Option<Rc<dyn Lasting>>)>,
    /// How often it wants to hear from us, and when it has to next.
    beat: Option<(Duration, Instant)>,
}

impl Notify {
    /// As the environment says.
    pub fn new() -> Notify {
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&name),
            };
            let open = || -> io::Result<_> {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.connect_addr(&address?)?;
                Ok(socket)
            };
            open().map_err(warn).ok()
        });
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        // Twice as often as it has to be (sd_watchdog_enabled(3)).
        let usec = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && ours && to.is_some());
        let beat = usec.map(|usec| (Duration::from_micros(usec / 2), Instant::now()));
        let backlog = VecDeque::new();
        Notify { to, backlog, beat }
    }

    /// Whether anybody is told.
    pub fn is_heard(&self) -> bool {
        self.to.is_some()
    }

    /// Has a descriptor stored. It is not looked at there, so that only we say when it goes.
    pub fn store(&mut self, name: &str, what: Rc<dyn Lasting>) {
        self.later(format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(what));
    }

    /// Has it closed there.
    pub fn unstore(&mut self, name: &str) {
        self.later(format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
    }

    fn later(&mut self, text: String, what: Option<Rc<dyn Lasting>>) {
        if self.backlog.len() >= BACKLOG {
            tracing::warn!("the service manager takes no notices: nothing more is stored there");
            self.backlog.clear();
            self.to = None;
            return;
        }
        self.backlog.push_back((text, what));
    }

    /// Sends what there is room for.
    pub fn flush(&mut self) {
        let Some(to) = &self.to else { return };
        while let Some((text, what)) = self.backlog.front() {
            let fds: Vec<_> = what.iter().map(|kept| kept.as_fd()).collect();
            match socket::sendmsg(to, text.as_bytes(), &fds, true) {
                Err(e) if is_full(&e) => return,
                Err(error) => drop(warn(error)),
                Ok(()) => {}
            }
            self.backlog.pop_front();
        }
    }

    /// When it is tried again, if there is something left.
    pub fn backlog(&self) -> Option<Duration> {
        (!self.backlog.is_empty() && self.to.is_some()).then_some(AGAIN)
    }

    /// The socket is served.
    pub fn ready(&self) {
        self.say(b"READY=1");
    }

    /// The loop has come by.
    pub fn turn(&mut self) {
        let now = Instant::now();
        if let Some((every, next)) = &mut self.beat
            && *next <= now
        {
            *next = now + *every;
            self.say(b"WATCHDOG=1");
        }
    }

    /// How long the loop may wait.
    pub fn wait(&self) -> Option<Duration> {
        let (_, next) = self.beat?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn say(&self, what: &[u8]) {
        if let Some(to) = &self.to
            && let Err(error) = to.send(what)
        {
            warn(error);
        }
    }
}

/// It has not read what it was told; too many descriptors are on their way to it.
fn is_full(error: &io::Error) -> bool {
    let full = [libc::EAGAIN, libc::ENOBUFS, libc::ETOOMANYREFS];
    error.raw_os_error().is_some_and(|e| full.contains(&e))
}

fn warn(error: io::Error) -> io::Error {
    tracing::warn!(%error, "cannot notify the service manager");
    error
}
