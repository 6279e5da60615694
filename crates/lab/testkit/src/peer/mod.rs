//! Child processes: started by re-executing the test binary, spoken to over a socket, always reaped.

mod control;
mod entry;
mod error;
mod launch;
mod privilege;
mod setup;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

pub use control::Control;
pub use entry::{Ended, enter};
pub use error::{Exit, PeerError};
pub use launch::Launch;
pub use privilege::{Privilege, own_user};
use serde::{Serialize, de::DeserializeOwned};

/// Living children, with the descriptor that takes their stderr, if it is captured.
static LIVING: Mutex<BTreeMap<u32, Option<RawFd>>> = Mutex::new(BTreeMap::new());

/// Returns the children that this process started and has not reaped, and their stderr if that is captured (for the
/// watchdog).
pub(crate) fn living() -> Vec<(u32, String)> {
    LIVING
        .try_lock()
        .map(|l| l.iter().map(|(pid, fd)| (*pid, written(*fd))).collect())
        .unwrap_or_default()
}

fn written(fd: Option<RawFd>) -> String {
    let path = fd.map(|fd| format!("/proc/self/fd/{fd}"));
    let bytes = path.and_then(|path| std::fs::read(path).ok());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// A running child. Dropping kills and reaps it.
#[derive(Debug)]
pub struct Peer {
    pid: u32,
    pidfd: OwnedFd,
    control: Control,
    stderr: Option<OwnedFd>,
    ended: Mutex<Option<Exit>>,
}

impl Peer {
    fn new(pid: u32, pidfd: OwnedFd, control: Control, stderr: Option<OwnedFd>) -> Self {
        LIVING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(pid, stderr.as_ref().map(AsRawFd::as_raw_fd));
        Self {
            pid,
            pidfd,
            control,
            stderr,
            ended: Mutex::new(None),
        }
    }

    /// Returns its process id, as this process sees it (in a container it is 1 inside).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the control socket, to be polled or used from another thread.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Sends a command.
    ///
    /// # Errors
    /// When the child is gone.
    pub fn send<T: Serialize + ?Sized>(&self, message: &T) -> Result<(), PeerError> {
        self.control.send(message)
    }

    /// Sends a command with descriptors.
    ///
    /// # Errors
    /// When the child is gone.
    pub fn send_fds<T: Serialize + ?Sized>(
        &self,
        message: &T,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), PeerError> {
        self.control.send_fds(message, fds)
    }

    /// Waits for the next event of the child.
    ///
    /// # Errors
    /// [`PeerError::Ended`] when it died, or closed its socket, before it said anything.
    pub fn recv<T: DeserializeOwned>(&self) -> Result<T, PeerError> {
        Ok(self.recv_fds()?.0)
    }

    /// Receives like [`Peer::recv`], with the descriptors that came along.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_fds<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), PeerError> {
        match self.control.recv_fds() {
            Ok(Some(got)) => Ok(got),
            Ok(None) => Err(PeerError::Ended(self.wait())),
            Err(e) => Err(e),
        }
    }

    /// Receives like [`Peer::recv`], for tests, which end when it fails.
    ///
    /// # Panics
    /// When the child ended, with its stderr if that was captured.
    #[track_caller]
    pub fn expect<T: DeserializeOwned>(&self) -> T {
        self.recv()
            .unwrap_or_else(|e| panic!("process {}: {e}\n{}", self.pid, self.stderr()))
    }

    /// Sends and waits for one answer.
    ///
    /// # Panics
    /// As [`Peer::expect`].
    #[track_caller]
    pub fn ask<T: DeserializeOwned>(&self, message: &(impl Serialize + ?Sized)) -> T {
        self.send(message)
            .unwrap_or_else(|e| panic!("process {}: {e}\n{}", self.pid, self.stderr()));
        self.expect()
    }

    /// Sends a signal; nothing happens when it has ended.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the pidfd is ours, so the target is this child and no other.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_raw_fd(),
                signal,
                0,
                0,
            );
        }
    }

    /// Kills it by SIGKILL, and waits until it is gone.
    pub fn kill(&self) -> Exit {
        self.signal(libc::SIGKILL);
        self.wait()
    }

    /// Stops it by SIGSTOP, and waits until all its threads stand. A thread that is about to end may wait in the kernel for a worker of
    /// io_uring that stands: `waitid` would never tell of the stop, and the thread does nothing any more.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        while !self.has_ended() && !stands(self.pid) {
            std::thread::yield_now();
        }
    }

    /// Continues it by SIGCONT; it runs again from now on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Returns whether it has ended (it is a zombie or reaped).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut poll = [rustix::event::PollFd::new(
            &self.pidfd,
            rustix::event::PollFlags::IN,
        )];
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(rustix::event::poll(&mut poll, Some(&now)), Ok(1))
    }

    /// Waits until it has ended, and reaps it.
    pub fn wait(&self) -> Exit {
        let mut ended = self
            .ended
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *ended.get_or_insert_with(|| {
            let exit = self.waitid(libc::WEXITED).unwrap_or(Exit::Code(-1));
            LIVING
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .remove(&self.pid);
            exit
        })
    }

    fn waitid(&self, what: i32) -> Option<Exit> {
        // SAFETY: zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let fd = libc::id_t::try_from(self.pidfd.as_raw_fd()).ok()?;
        loop {
            // SAFETY: `info` outlives the call.
            let r = unsafe { libc::waitid(libc::P_PIDFD, fd, &raw mut info, what) };
            if r == 0 {
                break;
            }
            if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return None;
            }
        }
        // SAFETY: waitid filled the fields of a child event.
        let status = unsafe { info.si_status() };
        Some(if info.si_code == libc::CLD_EXITED {
            Exit::Code(status)
        } else {
            Exit::Signal(status)
        })
    }

    /// Returns the child's stderr so far, if that was captured.
    #[must_use]
    pub fn stderr(&self) -> String {
        written(self.stderr.as_ref().map(AsRawFd::as_raw_fd))
    }
}

/// Whether each thread of a process is stopped, has ended, or sleeps in the kernel until something is done there.
fn stands(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        state.is_none_or(|state| "TtZXD".contains(state))
    })
}

impl Drop for Peer {
    fn drop(&mut self) {
        let done = self
            .ended
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .is_some();
        if !done {
            self.kill();
        }
    }
}
