//! Descriptors of processes: only they make a death certain.

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Opens a process by its id. Ids are reused: prefer descriptors that came with a message.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Says whether the process has exited. A zombie has.
pub fn is_dead(pidfd: impl AsFd) -> io::Result<bool> {
    wait_dead(pidfd, Some(Duration::ZERO))
}

/// Waits at most `timeout` until the process has exited; returns whether it has.
pub fn wait_dead(pidfd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|timeout| rustix::time::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let fd = pidfd.as_fd();
    loop {
        let mut polls = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match rustix::event::poll(&mut polls, timeout.as_ref()) {
            // NVAL or ERR would mean that the descriptor is no pidfd.
            Ok(_) => return Ok(polls[0].revents().contains(PollFlags::IN)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills the process, and never another one that has its id by now.
pub fn kill(pidfd: impl AsFd) -> io::Result<()> {
    Ok(rustix::process::pidfd_send_signal(pidfd, Signal::KILL)?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    #[test]
    fn a_death_shows() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("spawn");
        let pidfd = super::open(child.id()).expect("pidfd");
        assert!(!super::is_dead(&pidfd).expect("poll"));
        super::kill(&pidfd).expect("kill");
        assert!(super::wait_dead(&pidfd, None).expect("poll"));
        assert!(super::is_dead(&pidfd).expect("poll"));
        child.wait().expect("wait");
        assert!(super::is_dead(&pidfd).expect("poll"));
        assert!(super::open(0).is_err() && super::open(u32::MAX).is_err());
    }
}
