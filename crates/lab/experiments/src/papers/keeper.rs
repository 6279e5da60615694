//! A figure's program with all processes that it starts. None of them outlives the figure, nor this program if a signal
//! ends it.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use tranship_run::family;

/// How a program ended.
pub(super) enum End {
    /// By itself.
    Ended(ExitStatus),
    /// By this program, for this reason.
    Killed(String),
}

/// Runs one program after the other.
pub(super) struct Keeper {
    limit: Duration,
    /// Gets a byte for each signal that is to end this program.
    signals: UnixStream,
}

impl Keeper {
    /// Makes a keeper that kills programs after `limit`. From here on SIGINT, SIGTERM and SIGHUP do not end this process
    /// by themselves.
    pub(super) fn new(limit: Duration) -> Result<Keeper> {
        // A program's daemons and servers may leave its process group. They become children of this process.
        family::adopt_orphans().context("prctl(PR_SET_CHILD_SUBREAPER)")?;
        let (signals, raised) = UnixStream::pair().context("a pair of sockets")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let raised = raised.try_clone().context("another descriptor")?;
            signal_hook::low_level::pipe::register(signal, raised).context("taking signals")?;
        }
        Ok(Keeper { limit, signals })
    }

    /// Says whether a signal came that ends this program.
    pub(super) fn is_stopped(&self) -> Result<bool> {
        Ok(self.await_one(None, Duration::ZERO)?.1)
    }

    /// Runs a program until it ends, the limit is over, or a signal comes. No process that it started is left.
    pub(super) fn run(&self, command: &mut Command) -> Result<End> {
        // In a group of its own a signal of the terminal comes to this process alone.
        let mut child = command.process_group(0).spawn()?;
        let ended = tranship_sys::pidfd::open(child.id())
            .map_err(Into::into)
            .and_then(|pidfd| self.await_end(&pidfd));
        if !matches!(ended, Ok(None))
            && let Some(group) = Pid::from_raw(child.id().cast_signed())
        {
            // The group has no process if the program has just ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = child.wait();
        family::end_all().context("ending all that it started")?;
        match ended? {
            None => Ok(End::Ended(status?)),
            Some(why) => Ok(End::Killed(why)),
        }
    }

    /// Waits for the end. Returns the reason if the program is to be killed.
    fn await_end(&self, pidfd: &OwnedFd) -> Result<Option<String>> {
        let begun = Instant::now();
        loop {
            let left = self.limit.saturating_sub(begun.elapsed());
            match self.await_one(Some(pidfd), left)? {
                (true, _) => return Ok(None),
                (_, true) => return Ok(Some("a signal came".to_owned())),
                _ if begun.elapsed() < self.limit => {}
                _ => {
                    let limit = self.limit.as_secs();
                    return Ok(Some(format!("it did not end within {limit} s")));
                }
            }
        }
    }

    /// Waits at most so long. Returns whether the process has ended, and whether a signal came.
    fn await_one(&self, pidfd: Option<&OwnedFd>, longest: Duration) -> Result<(bool, bool)> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(pidfd.map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        let longest = Timespec::try_from(longest).context("a time for poll(2)")?;
        match poll(&mut fds, Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("poll(2)"),
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ok((is_ready(1), is_ready(0)))
    }
}
