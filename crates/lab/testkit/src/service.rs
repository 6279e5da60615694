//! Plays the service manager: it is told things, keeps descriptors, and starts a program with them.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tranship_sys::{process, socket};

/// A service manager of one service.
#[derive(Debug)]
pub struct ServiceManager {
    heard: OwnedFd,
    /// Descriptors that are kept.
    pub store: BTreeMap<String, OwnedFd>,
    folder: tempfile::TempDir,
}

impl Default for ServiceManager {
    fn default() -> ServiceManager {
        ServiceManager::new()
    }
}

impl ServiceManager {
    /// # Panics
    /// If there is no folder for its socket.
    #[must_use]
    pub fn new() -> ServiceManager {
        let folder = crate::folder().expect("a folder");
        let heard = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        ServiceManager {
            heard: heard.into(),
            store: BTreeMap::new(),
            folder,
        }
    }

    /// Returns the service's own folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a program with everything that is kept, and with a socket if there is one; it serves when this returns.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(
        &mut self,
        program: &Path,
        set: impl FnOnce(&mut Command),
        socket: Option<OwnedFd>,
    ) -> Child {
        let names: Vec<&str> = socket
            .iter()
            .map(|_| "tranship.socket")
            .chain(self.store.keys().map(String::as_str))
            .collect();
        let fds = socket.iter().chain(self.store.values());
        // Above those that they are to become.
        let from: Vec<OwnedFd> = fds
            .map(|fd| process::dup_above(fd.try_clone().expect("a copy"), 200))
            .collect();
        let numbers: Vec<i32> = from.iter().map(AsRawFd::as_raw_fd).collect();
        let mut command = Command::new("sh");
        command
            .args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""])
            .arg(program)
            .env("NOTIFY_SOCKET", self.folder().join("notify"))
            .env("RUNTIME_DIRECTORY", self.folder())
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .stdin(Stdio::null());
        set(&mut command);
        // SAFETY: only system calls on numbers, which are open until the child has been started.
        unsafe {
            command.pre_exec(move || {
                for (number, to) in numbers.iter().zip(3..) {
                    if libc::dup2(*number, to) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let started = command.spawn().expect("starting");
        drop(from);
        while self.hear() != "READY=1" {}
        started
    }

    /// Returns the first line of the next notice, and handles it.
    ///
    /// # Panics
    /// If it is none that a service of ours gives.
    pub fn hear(&mut self) -> String {
        self.take(false).expect("a notice")
    }

    /// Takes the messages that have been sent already.
    pub fn catch_up(&mut self) {
        while self.take(true).is_some() {}
    }

    fn take(&mut self, what_is_there: bool) -> Option<String> {
        let mut buf = [0; 4096];
        let mut got = socket::recvmsg(&self.heard, &mut buf, what_is_there).ok()?;
        let text = std::str::from_utf8(&buf[..got.bytes]).expect("text");
        let mut lines = text.lines();
        let what = lines.next().unwrap_or_default().to_owned();
        let name = lines
            .find_map(|l| l.strip_prefix("FDNAME="))
            .unwrap_or_default();
        match what.as_str() {
            "FDSTORE=1" => {
                assert!(text.contains("\nFDPOLL=0") && got.fds.len() == 1, "{text}");
                let fd = got.fds.pop().expect("a descriptor");
                self.store.insert(name.to_owned(), fd);
            }
            // A service manager takes no notice of a descriptor that it does not have.
            "FDSTOREREMOVE=1" => drop(self.store.remove(name)),
            _ => assert!(got.fds.is_empty(), "{text}"),
        }
        Some(what)
    }
}
