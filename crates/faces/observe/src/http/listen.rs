//! Address to listen at: a Unix socket, or an address that other machines do not reach unless the operator allows it.

use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::fmt;
use std::io;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Most connections that wait to be taken.
const BACKLOG: i32 = 64;

/// A socket that is listening.
#[derive(Debug)]
pub enum Door {
    /// At a path: the file's mode decides who may connect.
    Unix(UnixListener),
    /// At an address.
    Tcp(TcpListener),
}

impl Door {
    /// Returns a door over a descriptor that another program opened.
    ///
    /// # Errors
    /// When it is neither.
    pub fn of(fd: OwnedFd) -> io::Result<Door> {
        let family = rustix::net::getsockname(&fd)?.address_family();
        match family {
            AddressFamily::UNIX => Ok(Door::Unix(fd.into())),
            AddressFamily::INET | AddressFamily::INET6 => Ok(Door::Tcp(fd.into())),
            _ => Err(io::Error::other("neither a Unix socket nor one of TCP")),
        }
    }

    /// Returns the address where it is, if it has one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Door::Unix(_) => None,
            Door::Tcp(tcp) => tcp.local_addr().ok(),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Unix(unix) => unix.as_fd(),
            Door::Tcp(tcp) => tcp.as_fd(),
        }
    }
}

/// Reason for which it does not listen.
#[derive(Debug)]
pub struct ListenError {
    place: String,
    why: String,
    source: Option<io::Error>,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_ref()
            .map(|e| e as &(dyn std::error::Error + 'static))
    }
}

fn error(
    place: impl fmt::Display,
    why: impl Into<String>,
    source: Option<io::Error>,
) -> ListenError {
    ListenError {
        place: place.to_string(),
        why: why.into(),
        source,
    }
}

/// Listens at a path. A socket that no process serves any more is replaced; a served one is not, and no other file is.
///
/// # Errors
/// The error names the file that is there.
pub fn unix(path: &Path, mode: u32) -> Result<Door, ListenError> {
    let shown = path.display();
    tranship_sys::socket::check_path(path)
        .map_err(|e| error(path.display(), e.to_string(), None))?;
    match std::fs::symlink_metadata(path) {
        Ok(m) if !m.file_type().is_socket() => {
            return Err(error(
                shown,
                "there is something else than a socket: move it away, or name another path",
                None,
            ));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(error(shown, "a process listens there already", None));
        }
        Ok(_) => {
            let removed = std::fs::remove_file(path);
            removed
                .map_err(|e| error(shown, "a dead server's socket cannot be removed", Some(e)))?;
        }
        Err(_) => {}
    }
    let open = || -> io::Result<OwnedFd> {
        let address = SocketAddrUnix::new(path)?;
        let fd = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // Before the socket has a name: no client gets in between.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        bind(&fd, &address)?;
        listen(&fd, BACKLOG)?;
        Ok(fd)
    };
    let fd = open().map_err(|e| error(path.display(), "cannot listen there", Some(e)))?;
    Ok(Door::Unix(fd.into()))
}

/// Listens at an address: `127.0.0.1:8464`, `[::1]:8464`, `localhost:8464`, or a port alone, which is one of the
/// loopback.
///
/// # Errors
/// Also where others could reach it, and `anywhere` does not say that they may.
pub fn tcp(place: &str, anywhere: bool) -> Result<Door, ListenError> {
    let given = place.replace("localhost:", "127.0.0.1:");
    let port = given.strip_prefix(':').unwrap_or(&given).parse::<u16>();
    let address = match port {
        Ok(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        Err(_) => given.parse().map_err(|_: AddrParseError| {
            error(
                place,
                "not an address: 127.0.0.1:8464, [::1]:8464, or a port alone",
                None,
            )
        })?,
    };
    if !anywhere && !is_loopback(address.ip()) {
        let why = format!(
            "can be reached from other machines, and whoever reaches it sees the names and figures of all programs: --anywhere if that \
             is wanted, else 127.0.0.1:{port} (ssh -L {port}:127.0.0.1:{port} reaches it from elsewhere)",
            port = address.port()
        );
        return Err(error(place, why, None));
    }
    let listener = TcpListener::bind(address).map_err(|e| {
        let unit = e.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
        let why = match unit {
            true => "no TCP here: the manager's unit has Unix sockets only; dist/tranship-web.service is a unit for this",
            false => "cannot listen there",
        };
        error(place, why, Some(e))
    })?;
    Ok(Door::Tcp(listener))
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_this_machine_unless_it_is_said() {
        for far in [
            "0.0.0.0:0",
            "[::]:0",
            "10.255.255.1:0",
            "[::ffff:10.0.0.1]:0",
        ] {
            let error = tcp(far, false).expect_err(far).to_string();
            assert!(error.contains("--anywhere"), "{error}");
        }
        for wrong in ["", "x", "127.0.0.1", "example.org:80", "99999", "/x"] {
            let error = tcp(wrong, true).expect_err(wrong).to_string();
            assert!(error.contains("not an address"), "{wrong}: {error}");
        }
        for near in ["0", ":0", "localhost:0", "127.0.0.1:0"] {
            let door = tcp(near, false).expect(near);
            assert!(door.address().is_some_and(|a| a.ip().is_loopback()));
        }
        let door = tcp("0.0.0.0:0", true).expect("it was said");
        let taken = format!("127.0.0.1:{}", door.address().expect("an address").port());
        assert!(
            tcp(&taken, false)
                .expect_err("taken")
                .to_string()
                .contains("cannot listen")
        );
    }

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else() {
        let dir = tranship_testkit::folder().expect("a folder");
        let path = dir.path().join("m.sock");
        let door = unix(&path, 0o640).expect("free");
        let mode = || std::fs::metadata(&path).expect("it").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o640);
        assert!(
            unix(&path, 0o600)
                .expect_err("served")
                .to_string()
                .contains("already")
        );
        drop(door);
        let _door = unix(&path, 0o600).expect("dead");
        assert_eq!(mode(), 0o600);
        let long = dir.path().join("p".repeat(120));
        std::fs::create_dir(&long).expect("a folder");
        let error = unix(&long, 0o600).expect_err("too long").to_string();
        assert!(error.contains("a socket's has at most 107"), "{error}");
        let file = dir.path().join("file");
        std::fs::write(&file, "text").expect("a file");
        assert!(
            unix(&file, 0o600)
                .expect_err("a file")
                .to_string()
                .contains("something else")
        );
        assert!(std::fs::read_to_string(&file).is_ok_and(|t| t == "text"));
    }
}
