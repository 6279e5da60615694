//! The start of workers: a process forked at the beginning, when there was little to copy and nothing to inherit, only
//! forks them.

use super::work::work;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tranship_sys::helper::{self, Forked};
use tranship_sys::socket;

#[derive(Debug)]
pub(super) enum Spawner {
    Processes { to: OwnedFd, zygote: Forked },
    Threads,
}

impl Spawner {
    pub fn new(processes: bool) -> io::Result<Spawner> {
        if !processes {
            return Ok(Spawner::Threads);
        }
        let (to, theirs) = socket::pair()?;
        let zygote = helper::fork(c"tranship-zygote", theirs, zygote)?;
        Ok(Spawner::Processes { to, zygote })
    }

    /// Starts one more worker; returns the manager's end of its socket.
    pub fn start(&mut self) -> io::Result<OwnedFd> {
        let (ours, theirs) = socket::pair()?;
        match self {
            Spawner::Threads => helper::thread("tranship-worker", theirs, work)?,
            Spawner::Processes { to, zygote } => {
                let sent = socket::sendmsg(to, b"p", &[theirs.as_fd()], true);
                if sent.is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
                    zygote.reap();
                    tracing::warn!("the process that starts workers is gone, another one is made");
                    *self = Spawner::new(true)?;
                    let Spawner::Processes { to, .. } = self else {
                        return Ok(ours);
                    };
                    socket::sendmsg(to, b"p", &[theirs.as_fd()], true)?;
                }
            }
        }
        Ok(ours)
    }
}

/// Forks a worker for each socket that it receives.
fn zygote(from: OwnedFd) {
    while let Ok(mut order) = socket::recvmsg(&from, &mut [0; 1], false) {
        match order.fds.pop() {
            Some(end) => drop(helper::fork(c"tranship-worker", end, work)),
            None => return,
        }
    }
}
