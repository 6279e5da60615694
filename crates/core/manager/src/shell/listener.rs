//! The listening socket: made at a path, safely over a stale one, or inherited from systemd.

use super::lock::Lock;
use super::page::{PagePath, Pages};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use tranship_error::{Error, ErrorKind};
use tranship_sys::notice::Notice;
use tranship_sys::{errno, socket};

/// Whether the kernel lets no descriptors into connections that are not accepted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bare {
    Yes,
    No,
    /// The kernel does so, but a client may have connected before this was set, with any descriptors.
    OnceEmpty,
}

/// A socket to serve. Dropping it removes its file.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: Option<PathBuf>,
    /// The file of ids. Each socket has its own, because others may be in the same directory.
    ids: Option<PathBuf>,
    /// The socket's file, whichever process made it.
    at: Option<PathBuf>,
    /// Made here, because the daemon can no longer make it when it serves.
    notice: Option<Notice>,
    bare: Bare,
    /// Held as long as the socket is served; the last to go.
    _lock: Option<Lock>,
}

impl Listener {
    /// Listens at a path. A dead manager's socket file is replaced; a living manager's is not, nor is any other file.
    /// Waits up to 2 s for a manager that is just ending.
    ///
    /// # Errors
    /// `ManagerRunning` if a manager is alive; `System` if another file is there, or the kernel refuses.
    pub fn bind(path: &Path, mode: u32) -> Result<Listener, Error> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let at = |what: &str| tranship_error::system(format!("{what} {}", path.display()));
        socket::check_path(path).map_err(at("listening at"))?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(at("making the directory of"))?;
        let lock = Lock::take_in_time(path)?;
        // The lock is ours, so the socket's manager is dead or just dying.
        match std::fs::symlink_metadata(path) {
            Ok(m) if m.file_type().is_socket() => {
                if is_of_another_kind(path) {
                    return Err(at("another program listens at")(
                        io::ErrorKind::AddrInUse.into(),
                    ));
                }
                std::fs::remove_file(path).map_err(at("removing the stale socket"))?;
            }
            Ok(_) => {
                let text = format!("{} is no socket: name another path", path.display());
                return Err(Error::new(ErrorKind::System, text));
            }
            Err(_) => {}
        }
        let (fd, bare) = socket::listen_with(path, mode, prepare).map_err(at("listening at"))?;
        Ok(Listener {
            fd,
            path: Some(path.to_owned()),
            ids: Some(path.with_added_extension("ids")),
            at: Some(path.to_owned()),
            notice: notice(),
            bare: if bare { Bare::Yes } else { Bare::No },
            _lock: Some(lock),
        })
    }

    /// Serves a socket that is listening already (`Type=seqpacket`). Ids are kept in `dir`, if given.
    ///
    /// # Errors
    /// `System` if the kernel refuses to set it up.
    pub fn inherited(fd: OwnedFd, dir: Option<PathBuf>) -> Result<Listener, Error> {
        let can =
            prepare(&fd).map_err(tranship_error::system("setting up the inherited socket"))?;
        let at = socket::local_path(&fd);
        Ok(Listener {
            fd,
            path: None,
            ids: dir.map(|dir| dir.join("ids")),
            at,
            notice: notice(),
            bare: if can { Bare::OnceEmpty } else { Bare::No },
            _lock: None,
        })
    }

    /// Takes the socket that systemd opened for this process, if it did. Ids are kept in its runtime directory.
    ///
    /// # Errors
    /// Those of [`inherited`](Listener::inherited).
    pub fn from_systemd() -> Option<Result<Listener, Error>> {
        let fd = tranship_sys::inherit::listen_socket()?;
        let dir = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
        Some(Listener::inherited(fd, dir))
    }

    /// Says whether a connection that was never opened for descriptors has none.
    pub(super) fn is_bare(&self) -> bool {
        self.bare == Bare::Yes
    }

    /// Says that no connection waits to be accepted: a later one found the listener in its present state.
    pub(super) fn emptied(&mut self) {
        if self.bare == Bare::OnceEmpty {
            self.bare = Bare::Yes;
        }
    }

    /// Returns the socket's path, if the listener made the socket itself.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the place of the statistics page. `rules`: some users that may write to the socket may not connect.
    pub(super) fn page(&mut self, rules: bool) -> Pages {
        let at = self.at.as_deref();
        let place = at.and_then(|at| PagePath::beside(at, rules).ok());
        Pages::new(place, self.notice.take())
    }

    pub(super) fn id_file(&self) -> Option<PathBuf> {
        self.ids.clone()
    }
}

/// Makes a notice of opens of the statistics page. The kernel limits their number for each user.
fn notice() -> Option<Notice> {
    let made = Notice::new();
    let made = made.inspect_err(
        |error| tracing::warn!(%error, "cannot watch for opens of the statistics page"),
    );
    made.ok()
}

/// Says whether a live process other than a manager listens there. The kernel compares a socket's kind only while a
/// process has it.
fn is_of_another_kind(path: &Path) -> bool {
    let connected = socket::connect_now(path);
    connected.is_err_and(|e| e.raw_os_error() == Some(errno::WRONG_SOCKET_TYPE))
}

/// Sets options that connections inherit, on kernels that support it: the kernel names the sender of a `Hello` that is
/// sent before its connection is accepted, and lets no descriptors in. It runs before any client can connect. Returns
/// whether descriptors are kept out.
fn prepare(fd: &OwnedFd) -> io::Result<bool> {
    socket::set_nonblocking(fd, true)?;
    socket::pass_pidfd(fd, true)?;
    socket::pass_rights(fd, false)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The lock is still held, so the file is this manager's.
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}
