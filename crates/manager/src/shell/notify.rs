//! Telling systemd that the socket is served, and that the loop turns.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Where the service manager listens.
#[derive(Debug)]
pub(super) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
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
                Ok((socket, address?))
            };
            open().map_err(warn).ok()
        });
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        // Twice as often as it has to be (sd_watchdog_enabled(3)).
        let usec = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && ours && to.is_some());
        let beat = usec.map(|usec| (Duration::from_micros(usec / 2), Instant::now()));
        Notify { to, beat }
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
        if let Some((socket, to)) = &self.to
            && let Err(error) = socket.send_to_addr(what, to)
        {
            warn(error);
        }
    }
}

fn warn(error: io::Error) -> io::Error {
    tracing::warn!(%error, "cannot notify the service manager");
    error
}
