//! A place between a manager and one of its domains, which keeps the manager's news back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tempfile::TempDir;
use tranship_proto::{Event, MAX_MESSAGE_BYTES, decode};
use tranship_sys::socket;

/// Bytes that are kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Nothing.
    Nothing,
    /// The news that a pool is open, which never come.
    Opens,
    /// These news, and all that follow them.
    AllFromOpen,
}

/// Messages of the manager that were kept back, with their descriptors.
type Kept = Vec<(Vec<u8>, Vec<OwnedFd>)>;

/// Between a manager and a domain, which joins at [`socket`](Between::socket). The control page passes it by: the
/// domain sees that there are news before it can take them.
#[derive(Debug)]
pub struct Between {
    socket: PathBuf,
    _folder: TempDir,
    line: Arc<Mutex<Line>>,
}

#[derive(Debug)]
struct Line {
    keeps: Keeps,
    kept: Kept,
    client: Option<Arc<OwnedFd>>,
    passed: u64,
}

impl Between {
    /// Waits at a socket for the one domain that joins there.
    ///
    /// # Errors
    /// Those of the folder and the socket.
    pub fn new(manager: &Path, keeps: Keeps) -> io::Result<Between> {
        let folder = crate::folder()?;
        let socket = folder.path().join("between.sock");
        let listener = socket::listen(&socket, 0o600)?;
        let line = Arc::new(Mutex::new(Line {
            keeps,
            kept: Kept::new(),
            client: None,
            passed: 0,
        }));
        let (manager, passed) = (manager.to_owned(), line.clone());
        thread::spawn(move || pass_on(&listener, &manager, &passed));
        Ok(Between {
            socket,
            _folder: folder,
            line,
        })
    }

    /// Returns where the domain joins.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sets what is kept back from now on.
    pub fn keep(&self, keeps: Keeps) {
        locked(&self.line).keeps = keeps;
    }

    /// Says whether something was kept back.
    pub fn has_kept(&self) -> bool {
        !locked(&self.line).kept.is_empty()
    }

    /// Returns the number of the manager's messages that were passed on.
    pub fn passed(&self) -> u64 {
        locked(&self.line).passed
    }

    /// Passes on what was kept back, and keeps nothing from now on.
    ///
    /// # Panics
    /// If the domain does not listen.
    pub fn release(&self) {
        let mut line = locked(&self.line);
        line.keeps = Keeps::Nothing;
        let client = line.client.clone().expect("a domain");
        for (bytes, fds) in line.kept.drain(..) {
            send(&client, &bytes, &fds).expect("a domain that listens");
        }
    }
}

/// Passes messages on until one side ends.
fn pass_on(listener: &OwnedFd, manager: &Path, line: &Mutex<Line>) {
    let (Ok(client), Ok(manager)) = (socket::accept(listener), socket::connect(manager)) else {
        return;
    };
    let client = Arc::new(client);
    locked(line).client = Some(client.clone());
    thread::scope(|scope| {
        scope.spawn(|| while passes(&client, &manager) {});
        while let Ok((bytes, fds)) = receive(&manager) {
            let mut line = locked(line);
            line.passed += 1;
            let is_open = matches!(decode(&bytes), Ok(Event::PoolOpen { .. }));
            let keeps = match line.keeps {
                Keeps::Nothing => false,
                Keeps::Opens => is_open,
                Keeps::AllFromOpen => is_open || !line.kept.is_empty(),
            };
            if keeps {
                line.kept.push((bytes, fds));
            } else if bytes.is_empty() || send(&client, &bytes, &fds).is_err() {
                break;
            }
        }
    });
}

/// Passes one message on. Returns false at the end.
fn passes(from: &OwnedFd, to: &OwnedFd) -> bool {
    receive(from).is_ok_and(|(bytes, fds)| !bytes.is_empty() && send(to, &bytes, &fds).is_ok())
}

fn receive(from: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let got = socket::recvmsg(from, &mut bytes, false)?;
    bytes.truncate(got.bytes);
    Ok((bytes, got.fds))
}

fn send(to: &OwnedFd, bytes: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    socket::sendmsg(to, bytes, &fds, false).map(drop)
}

fn locked(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
