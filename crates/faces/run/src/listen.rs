//! Sockets at which the supervisor listens for a component, and network devices that it opens, so that connections and
//! frames wait while the component is started again.
//!
//! The descriptors travel to the launcher over its standard input, a Unix socket. So they are its descriptors from 3 on, as
//! sd_listen_fds(3) describes, and no other process has them.

use anyhow::{Context, Result, bail};
use rustix::io::FdFlags;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use tranship_sys::{socket, tun};

/// First descriptor of sd_listen_fds(3).
const FIRST: i32 = 3;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// The address at which a supervisor listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// At an IP address and a TCP port.
    Tcp(SocketAddr),
    /// At a Unix socket.
    Unix(PathBuf),
    /// At a TAP device of this name.
    Tap(String),
}

impl Address {
    /// Reads `127.0.0.1:8080`, `[::1]:8080`, `tap:web0`, or a path with a slash, which begins in `folder`.
    pub(crate) fn parse(text: &str, folder: &Path) -> Result<Address, String> {
        if let Some(name) = text.strip_prefix("tap:") {
            return match (1..=tun::MAX_NAME).contains(&name.len()) {
                true => Ok(Address::Tap(name.to_owned())),
                false => Err(format!(
                    "the name of a device has 1 to {} bytes, not {}",
                    tun::MAX_NAME,
                    name.len()
                )),
            };
        }
        if text.contains('/') {
            return Ok(Address::Unix(folder.join(text)));
        }
        text.parse().map(Address::Tcp).map_err(|why| {
            format!(
                "{why}: it must be an IP address and a port (127.0.0.1:8080), a path of a Unix socket with a slash, or a TAP device (tap:web0)"
            )
        })
    }

    /// Listens, or opens the device. A Unix socket that a dead supervisor left is replaced.
    pub(crate) fn listen(&self) -> Result<OwnedFd> {
        let listening: OwnedFd = match self {
            Address::Tap(name) => {
                return tun::tap(name, true).with_context(|| {
                    format!("the device {name} (`ip tuntap add dev {name} mode tap` makes one)")
                });
            }
            Address::Tcp(address) => TcpListener::bind(address)
                .with_context(|| format!("listening at {address}"))?
                .into(),
            Address::Unix(path) => {
                let left = std::os::unix::net::UnixStream::connect(path);
                if left.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused) {
                    let _ = std::fs::remove_file(path);
                }
                UnixListener::bind(path)
                    .with_context(|| format!("listening at {}", path.display()))?
                    .into()
            }
        };
        rustix::net::listen(&listening, BACKLOG).context("listen(2)")?;
        Ok(listening)
    }

    /// Removes what is left of it in the file system.
    pub(crate) fn forget(&self) {
        if let Address::Unix(path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the standard input of a launcher: it carries these sockets.
pub(crate) fn carrier(sockets: &[OwnedFd]) -> Result<OwnedFd> {
    let (ours, theirs) = socket::pair().context("a pair of sockets")?;
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    socket::sendmsg(&ours, b"sockets", &fds, true).context("passing listening sockets")?;
    Ok(theirs)
}

/// Takes this launcher's sockets from its standard input, which is empty afterwards, and tells the program that it becomes.
pub(crate) fn take(count: usize, program: &mut Command) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let received = socket::recvmsg(std::io::stdin(), &mut [0; 16], false);
    let fds = received.context("taking listening sockets")?.fds;
    let numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    if !numbers.iter().copied().eq((FIRST..).take(count)) {
        bail!(
            "listening sockets came as descriptors {numbers:?}, they must be {count} from {FIRST} on"
        );
    }
    let empty = std::fs::File::open("/dev/null").context("opening /dev/null")?;
    rustix::stdio::dup2_stdin(&empty).context("dup2")?;
    for fd in fds {
        rustix::io::fcntl_setfd(&fd, FdFlags::empty()).context("fcntl")?;
        // The program's.
        let _ = fd.into_raw_fd();
    }
    program
        .env("LISTEN_FDS", count.to_string())
        .env("LISTEN_PID", std::process::id().to_string());
    Ok(())
}
