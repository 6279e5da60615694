//! Waiting on many descriptors.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Waits until one descriptor can be read or hangs up; returns false when the time is over. A signal ends it early.
pub fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    wait(fd, PollFlags::IN, timeout)
}

/// Waits until one descriptor can be written or hangs up; returns false when the time is over. A signal ends it early.
pub fn wait_writable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    wait(fd, PollFlags::OUT, timeout)
}

fn wait(fd: impl AsFd, what: PollFlags, timeout: Option<Duration>) -> io::Result<bool> {
    poll(&mut [PollFd::new(&fd, what)], timeout)
}

/// Waits until one of these has an event; returns false when the time is over. A signal ends it early.
pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one of these can be read or hangs up; returns false when the time is over. A signal ends it early.
pub fn wait_any_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let polled = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
    poll(&mut polled.collect::<Vec<_>>(), timeout)
}

/// Waits until one of these has a wanted event or hangs up; returns which have. A signal ends it early.
pub fn wait_each(
    fds: &[(BorrowedFd<'_>, Interest)],
    timeout: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let polled = fds.iter().map(|(fd, interest)| {
        let flags = match interest {
            Interest::Read | Interest::News | Interest::ReadOnce => PollFlags::IN,
            Interest::Write => PollFlags::OUT,
            Interest::ReadWrite | Interest::ReadWriteOnce => PollFlags::IN | PollFlags::OUT,
            Interest::HangUp => PollFlags::empty(),
            Interest::Urgent => PollFlags::PRI,
        };
        PollFd::from_borrowed_fd(*fd, flags)
    });
    let mut polled: Vec<_> = polled.collect();
    poll(&mut polled, timeout)?;
    Ok(polled.iter().map(|p| !p.revents().is_empty()).collect())
}

/// The events to wait for, level-triggered unless a variant says otherwise. Hang-ups and errors are always reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// When the descriptor can be read.
    Read,
    /// When the descriptor can be read or written.
    ReadWrite,
    /// When the descriptor can be written.
    Write,
    /// Hang-ups and errors only.
    HangUp,
    /// When urgent data comes (`POLLPRI`): a trigger of the kernel's fired.
    Urgent,
    /// Each time that new data can be read, once: also if earlier data is still there.
    News,
    /// When it can be read, once. After that the descriptor is not watched until the caller asks again. Of the threads
    /// that wait, one is told.
    ReadOnce,
    /// When the descriptor can be read or written, once.
    ReadWriteOnce,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Read => EventFlags::IN,
            Interest::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Interest::Write => EventFlags::OUT,
            Interest::HangUp => EventFlags::empty(),
            Interest::Urgent => EventFlags::PRI,
            Interest::News => EventFlags::IN | EventFlags::ET,
            Interest::ReadOnce => EventFlags::IN | EventFlags::ONESHOT,
            Interest::ReadWriteOnce => EventFlags::IN | EventFlags::OUT | EventFlags::ONESHOT,
        }
    }
}

/// The events of one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The number given to [`Epoll::add`].
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
    pub hung_up: bool,
}

/// An epoll instance; itself pollable.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll {
            fd: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Starts watching. The events carry `token`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(
            &self.fd,
            fd,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Changes the events to wait for.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(
            &self.fd,
            fd,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Stops watching.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, fd)?)
    }

    /// Waits at most `timeout` for events. `ready` is cleared first; it stays empty after the time, and when a signal
    /// handler ran. At most 64 events at once.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let timeout = timeout.map(|timeout| rustix::time::Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = [const { MaybeUninit::<Event>::uninit() }; 64];
        let events = match epoll::wait(&self.fd, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            // The kernel's structure is packed: take copies.
            let (flags, data) = (event.flags, event.data);
            ready.push(Ready {
                token: data.u64(),
                readable: flags.contains(EventFlags::IN),
                writable: flags.contains(EventFlags::OUT),
                hung_up: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            });
        }
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd;

    #[test]
    fn tokens_come_back() {
        let epoll = Epoll::new().expect("epoll");
        let fd = eventfd::create().expect("eventfd");
        epoll.add(&fd, u64::MAX - 1, Interest::Read).expect("add");
        let mut ready = Vec::new();
        epoll.wait(&mut ready, Some(Duration::ZERO)).expect("wait");
        assert!(ready.is_empty());
        eventfd::signal(&fd).expect("signal");
        epoll.wait(&mut ready, None).expect("wait");
        let expected = Ready {
            token: u64::MAX - 1,
            readable: true,
            writable: false,
            hung_up: false,
        };
        assert_eq!(ready, [expected]);
        epoll.modify(&fd, 3, Interest::ReadWrite).expect("modify");
        epoll.wait(&mut ready, None).expect("wait");
        assert!(ready[0].token == 3 && ready[0].writable);
        epoll.remove(&fd).expect("remove");
        epoll.wait(&mut ready, Some(Duration::ZERO)).expect("wait");
        assert!(ready.is_empty());
    }

    /// New data is also reported through a second epoll instance, while the first event is still to be taken there.
    #[test]
    fn news_are_told_once() {
        let (inner, outer) = (Epoll::new().expect("epoll"), Epoll::new().expect("epoll"));
        let fd = eventfd::create().expect("eventfd");
        inner.add(&fd, 1, Interest::Read).expect("add");
        outer.add(&inner, 2, Interest::News).expect("add");
        let mut ready = Vec::new();
        for told in [true, false, true, false] {
            if told {
                eventfd::signal(&fd).expect("signal");
            }
            outer.wait(&mut ready, Some(Duration::ZERO)).expect("wait");
            assert_eq!(ready.len(), usize::from(told));
        }
    }

    #[test]
    fn each_is_told_apart() {
        let fds = [(); 3].map(|()| eventfd::create().expect("eventfd"));
        eventfd::signal(&fds[2]).expect("signal");
        let [a, b, c] = fds.each_ref().map(AsFd::as_fd);
        let asked = [
            (a, Interest::Read),
            (b, Interest::Write),
            (c, Interest::Read),
        ];
        let got = wait_each(&asked, None).expect("poll");
        assert_eq!(got, [false, true, true]);
        let got = wait_each(&asked[..1], Some(Duration::ZERO)).expect("poll");
        assert_eq!(got, [false]);
    }
}
