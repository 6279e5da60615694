//! Sockets at which the supervisor listens for a component, and network devices that it opens, so that connections and
//! frames wait while the component is started again.
//!
//! The descriptors travel to the launcher over its standard input, a Unix socket. So they are its descriptors from 3 on, as
//! sd_listen_fds(3) describes, and no other process has them.

use anyhow::{Context, Result, bail};
use rustix::io::{Errno, FdFlags};
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
            if !(1..=tun::MAX_NAME).contains(&name.len()) {
                return Err(format!(
                    "the name of a device has 1 to {} bytes, not {}",
                    tun::MAX_NAME,
                    name.len()
                ));
            }
            // The kernel replaces `%d` by a number and ends the name at NUL. It refuses the other names.
            let wrong = |c: char| "%/:\0".contains(c) || c.is_whitespace();
            if name.contains(wrong) || [".", ".."].contains(&name) {
                return Err(
                    "the name of a device has no `%`, `/`, `:`, NUL or blank, and is not `.` or `..`"
                        .to_owned(),
                );
            }
            return Ok(Address::Tap(name.to_owned()));
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
                return tun::tap(name, true).map_err(|why| {
                    let remedy = tap_remedy(name, &why);
                    anyhow::Error::new(why).context(format!("the TAP device {name}{remedy}"))
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

/// Returns the cause and the remedy of a failure to open a TAP device, to follow its name.
fn tap_remedy(name: &str, why: &std::io::Error) -> String {
    let text = match Errno::from_io_error(why) {
        Some(Errno::BUSY) => ": another process has it open, a device has one supervisor",
        Some(Errno::PERM) => {
            return format!(
                ": without CAP_NET_ADMIN it must exist and be this user's (`ip tuntap add dev {name} mode tap user USER`)"
            );
        }
        Some(Errno::ACCESS) => ": this user may not read and write /dev/net/tun",
        Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => {
            ": there is no /dev/net/tun, which the kernel module `tun` makes"
        }
        Some(Errno::INVAL) => {
            ": the name is that of another kind of device; it must be a TAP device without `multi_queue`"
        }
        _ => "",
    };
    text.to_owned()
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
