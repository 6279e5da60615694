//! Hello, and the manager's answer, which a manager that hangs never gives.

use super::wire::Wire;
use crate::error::{self, Awaited, Error, ErrorKind, TimedOut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tranship_proto::{DomainId, Event, PROTOCOL_VERSION, Request, as_name};
use tranship_region::layout::ControlPageRo;
use tranship_sys::{epoll, process, socket};

/// How long a domain waits for its manager's answer by default. A manager that exists and does not answer for this time
/// hangs.
pub const MANAGER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection on which hello was sent.
pub(super) struct Greeting {
    wire: Wire,
    /// The key to show once the manager has answered.
    key: Option<String>,
    begun: Instant,
    /// The longest time for the answer.
    limit: Duration,
}

/// The manager's answer to `Hello`.
pub(super) struct Welcome {
    pub(super) domain: DomainId,
    pub(super) resumed: bool,
    pub(super) instance: u64,
    pub(super) control_page: ControlPageRo,
}

impl Greeting {
    /// Sends hello on a fresh connection; the answer may take `limit`.
    pub(super) fn say(
        fd: OwnedFd,
        name: &str,
        resume: Option<DomainId>,
        key: Option<&str>,
        limit: Duration,
    ) -> Result<Greeting, Error> {
        let dumpable = process::is_dumpable().unwrap_or(true);
        let name = as_name(name, 16);
        let request = Request::Hello {
            version: PROTOCOL_VERSION,
            name,
            resume,
            dumpable,
        };
        say(fd.as_fd(), &request)?;
        Ok(Greeting {
            wire: Wire::new(fd),
            key: key.map(str::to_owned),
            begun: Instant::now(),
            limit,
        })
    }

    /// Waits for the answer.
    pub(super) fn wait(mut self) -> Result<(OwnedFd, Welcome), Error> {
        loop {
            if let Some(welcome) = self.look()? {
                return self.into_fd(welcome);
            }
            self.pause(self.limit);
        }
    }

    /// Waits at most `limit` for the answer, or anything else.
    pub(super) fn pause(&self, limit: Duration) {
        let left = self.limit.saturating_sub(self.begun.elapsed());
        if let Some(fd) = self.fd() {
            let _ = epoll::wait_readable(fd, Some(left.min(limit)));
        }
    }

    /// Returns the answer, if it has come; an error when none will come, or none came in time.
    pub(super) fn look(&mut self) -> Result<Option<Welcome>, Error> {
        match self.wire.receive()? {
            Some((
                Event::Welcome {
                    domain,
                    instance,
                    resumed,
                    control_page_entries,
                    ..
                },
                fds,
            )) => {
                let control_page = fds
                    .first()
                    .ok_or_else(|| error::protocol("a welcome without a control page"))?;
                let control_page =
                    ControlPageRo::open(control_page, control_page_entries, instance)?;
                Ok(Some(Welcome {
                    domain,
                    resumed,
                    instance,
                    control_page,
                }))
            }
            Some((Event::Expelled { refusal }, _)) => Err(error::refused(refusal)),
            Some(_) => Err(error::protocol("something else than a welcome")),
            None if self.begun.elapsed() >= self.limit => {
                Err(TimedOut::since(self.begun, Awaited::Manager("hello")).into())
            }
            None => Ok(None),
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.wire.fd()
    }

    /// Returns the connection that continues with this answer.
    pub(super) fn into_fd(self, welcome: Welcome) -> Result<(OwnedFd, Welcome), Error> {
        let fd = self.wire.into_fd().ok_or(ErrorKind::ManagerAway)?;
        if let Some(key) = self.key {
            say(fd.as_fd(), &Request::ShowKey { key })?;
        }
        Ok((fd, welcome))
    }
}

fn say(fd: BorrowedFd<'_>, request: &Request) -> Result<(), Error> {
    match socket::sendmsg(fd, &tranship_proto::encode(request), &[], true) {
        // A manager that refuses this domain says why and hangs up, perhaps before it reads this: the reason must still
        // be read.
        Err(error) if !has_hung_up(&error) => Err(error::system("sendmsg to the manager")(error)),
        _ => Ok(()),
    }
}

/// Says whether the error is one that a send to a closed end may give, unix(7).
fn has_hung_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::{Refusal, RefusalCode};

    /// Greets a manager that has hung up, after these words.
    fn greet(last: Option<&Event>) -> Error {
        let (near, far) = socket::pair().expect("a pair");
        if let Some(event) = last {
            socket::sendmsg(&far, &tranship_proto::encode(event), &[], true).expect("a word");
        }
        drop(far);
        let greeting =
            Greeting::say(near, "late", None, None, MANAGER_TIMEOUT).expect("a greeting");
        greeting.wait().map(|_| ()).expect_err("nobody is there")
    }

    #[test]
    fn who_is_refused_before_the_hello_reads_why() {
        let refusal = Refusal {
            code: RefusalCode::Access,
            asked: 7,
            available: 0,
        };
        let error = greet(Some(&Event::Expelled { refusal }));
        assert_eq!(error.find(), Some(&refusal), "{error}");
        assert_eq!(error, ErrorKind::Access);
    }

    #[test]
    fn a_manager_that_is_gone_before_the_hello_is_away() {
        let error = greet(None);
        assert_eq!(error, ErrorKind::ManagerAway);
    }
}
