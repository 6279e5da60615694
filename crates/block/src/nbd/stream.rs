//! A connection, over a Unix or a TCP socket.

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tranship_sys::socket;

/// Address where clients connect: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A socket at a path.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(path.into())),
            Some(("tcp", place))
                if place.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && port.parse::<u16>().is_ok()
                }) =>
            {
                Ok(Address::Tcp(place.to_owned()))
            }
            _ => Err(format!("`{text}` is neither unix:PATH nor tcp:HOST:PORT")),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

/// Listener that waits for clients.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener, Name),
    Tcp(TcpListener),
}

/// The file of a Unix socket. Dropping it takes the file away, if it is still that socket's.
#[derive(Debug)]
pub(super) struct Name {
    path: PathBuf,
    /// Device and inode. Not given to another file while the socket is open.
    file: (u64, u64),
}

impl Name {
    fn of(path: &Path) -> io::Result<Name> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(Name {
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
        })
    }
}

impl Listener {
    /// Listens. A Unix socket that nobody listens on any more is replaced; nothing else is.
    pub(super) fn new(at: &Address) -> io::Result<Listener> {
        Ok(match at {
            Address::Tcp(place) => {
                let listener = TcpListener::bind(place)?;
                listener.set_nonblocking(true)?;
                Listener::Tcp(listener)
            }
            Address::Unix(path) => {
                socket::check_path(path)?;
                make_way(path)?;
                let listener = UnixListener::bind(path)?;
                // No code takes any. A descriptor that lies in a stream is closed by the reader of the stream, and that
                // may take as long as its sender likes. Connections inherit the setting. An older kernel does not know
                // how to refuse them.
                let _ = socket::pass_rights(&listener, false);
                listener.set_nonblocking(true)?;
                Listener::Unix(listener, Name::of(path)?)
            }
        })
    }

    /// Returns the address where it is: a port that was left to the kernel has a number now.
    pub(super) fn address(&self, asked: &Address) -> Address {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(place) => Address::Tcp(place.to_string()),
                Err(_) => asked.clone(),
            },
            Listener::Unix(..) => asked.clone(),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Stream::Unix(stream))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Before the socket is closed: see `Name`.
        if let Listener::Unix(_, name) = self
            && Name::of(&name.path).is_ok_and(|now| now.file == name.file)
        {
            let _ = std::fs::remove_file(&name.path);
        }
    }
}

/// Removes a socket that nobody listens on any more. Any other file stays, and is an error.
fn make_way(path: &Path) -> io::Result<()> {
    let in_the_way = |why: &str| io::Error::new(ErrorKind::AddrInUse, why);
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Ok(there) if there.file_type().is_socket() => {}
        Ok(_) => {
            return Err(in_the_way(
                "something that is no socket is there already: name another path",
            ));
        }
        Err(error) => return Err(error),
    }
    // Without waiting: a server whose queue is full is alive, too.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            Err(in_the_way("a process listens there already"))
        }
        Err(error) => Err(error.into()),
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// One client.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    /// Returns the client in words, for a log.
    pub(super) fn peer(&self) -> String {
        match self {
            Stream::Unix(stream) => match socket_peercred(stream) {
                Ok(who) => format!(
                    "process {} of user {}",
                    who.pid.as_raw_nonzero(),
                    who.uid.as_raw()
                ),
                Err(_) => "a process".to_owned(),
            },
            Stream::Tcp(stream) => match stream.peer_addr() {
                Ok(place) => place.to_string(),
                Err(_) => "a client that is gone".to_owned(),
            },
        }
    }

    /// Ends both directions: a thread that waits in it comes back.
    pub(super) fn shutdown(&self) {
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(to),
            Stream::Tcp(stream) => stream.read(to),
        }
    }

    fn read_vectored(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read_vectored(to),
            Stream::Tcp(stream) => stream.read_vectored(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(from),
            Stream::Tcp(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!("unix:/a:b".parse(), Ok(Address::Unix("/a:b".into())));
        assert_eq!("tcp:[::1]:0".parse(), Ok(Address::Tcp("[::1]:0".into())));
        for wrong in ["", "unix:", "tcp:host", "tcp::1", "tcp:h:99999", "/a"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    /// A descriptor that comes with the data would be closed here.
    #[test]
    fn descriptors_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("nbd");
        let listener = Listener::new(&Address::Unix(path.clone())).expect("a free path");
        let (other, _) = UnixStream::pair().expect("a pair");
        if !socket::pass_rights(&other, false).expect("a socket") {
            return tranship_testkit::skipped("the kernel cannot refuse descriptors");
        }
        let client = UnixStream::connect(&path).expect("it listens");
        let send = || socket::sendmsg(&client, b"x", &[client.as_fd()], true);
        let before = send().map_err(|e| e.raw_os_error());
        let accepted = listener.accept().expect("a client");
        let after = send().map_err(|e| e.raw_os_error());
        assert_eq!([before, after], [Err(Some(libc::EPERM)); 2]);
        drop(accepted);
    }
}
