//! Workers: processes that take messages with descriptors from clients' sockets, and that close descriptors of others.
//!
//! Closing a descriptor, and even looking at it, may take as long as its maker likes: a socket that lingers, a file on
//! FUSE whose server does not answer, a terabyte of memory. No such descriptor is therefore ever made in the manager's
//! own process. A message with descriptors stays in its socket, and a worker takes it. The worker looks at the
//! descriptors (`look`), hands on memory that it has proved to be a proper memfd, and closes the rest. A worker that
//! waits is lost for that time. There are others, and more are started, up to a number for each user.

mod look;
mod spawn;
mod wire;
mod work;

pub(super) use look::{SMALL_BYTES, look};
pub(super) use wire::Carried;

use spawn::Spawner;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tranship_sys::epoll::{Epoll, Interest};
use tranship_sys::socket;
use wire::Job;

/// Workers that are busy for one user at a time. A user with all of them busy waits.
const EACH: u32 = 4;
/// Workers in all.
const MOST: usize = 128;
/// Workers that wait for work, from the start; further idle ones end.
const SPARE_PROCESSES: usize = 2;
const SPARE_THREADS: usize = 1;

#[derive(Debug)]
struct Worker {
    end: OwnedFd,
    /// The user for whom the worker is busy, and the client whose message it fetches.
    job: Option<(u32, Option<u64>)>,
}

/// A message from a worker.
#[derive(Debug)]
pub(super) enum News {
    /// The worker brought a message of this client.
    Carried(u64, Box<Carried>),
    /// The worker is gone that was sent for this client's message: before it took the message, or perhaps with it.
    Lost { client: u64, before: bool },
    /// The worker has nothing to do, or is gone: other work may continue.
    Free,
    /// No news yet.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Workers {
    spawner: Spawner,
    all: HashMap<u64, Worker>,
    idle: Vec<u64>,
    busy: BTreeMap<u32, u32>,
    next: u64,
    /// The number of workers that may be idle.
    spare: usize,
    /// Added to a worker's number in epoll.
    kind: u64,
}

impl Workers {
    /// Makes the set of workers: processes, or threads if this process may not be forked.
    pub fn new(processes: bool, kind: u64) -> io::Result<Workers> {
        Ok(Workers {
            spawner: Spawner::new(processes)?,
            all: HashMap::new(),
            idle: Vec::new(),
            busy: BTreeMap::new(),
            next: 0,
            spare: if processes {
                SPARE_PROCESSES
            } else {
                SPARE_THREADS
            },
            kind,
        })
    }

    /// Starts the workers that wait for work.
    pub fn prepare(&mut self, epoll: &Epoll) {
        while self.idle.len() < self.spare
            && let Some(id) = self.start(epoll)
        {
            self.idle.push(id);
        }
    }

    /// Sends a worker for a message of a client's connection, for this user. Returns `false` if none is free now.
    pub fn carry(&mut self, epoll: &Epoll, uid: u32, client: u64, conn: impl AsFd) -> bool {
        let fds = [conn.as_fd()];
        let job = wire::encode(&Job::Carry { client });
        self.submit(epoll, uid, Some(client), &job, &fds).is_some()
    }

    /// Gives descriptors to a worker to close, at most [`socket::MAX_FDS`]. Returns `None` if none is free now.
    /// Otherwise the caller closes its own copies. They are not the last, until the caller says so with
    /// [`let_go`](Workers::let_go).
    pub fn close(&mut self, epoll: &Epoll, uid: u32, fds: &[BorrowedFd<'_>]) -> Option<u64> {
        self.submit(epoll, uid, None, &wire::encode(&Job::Close), fds)
    }

    /// Says that a worker's descriptors are now the last.
    pub fn let_go(&mut self, epoll: &Epoll, id: u64) {
        let Some(worker) = self.all.get(&id) else {
            return;
        };
        if socket::sendmsg(&worker.end, &wire::encode(&Job::LetGo), &[], true).is_err() {
            self.lose(epoll, id);
        }
    }

    /// Says whether a user's work waits for workers that are busy with other work of that user.
    pub fn all_busy(&self, uid: u32) -> bool {
        self.busy.get(&uid).is_some_and(|n| *n >= EACH)
    }

    fn submit(
        &mut self,
        epoll: &Epoll,
        uid: u32,
        client: Option<u64>,
        job: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Option<u64> {
        if self.all_busy(uid) {
            return None;
        }
        while let Some(id) = self.idle.pop().or_else(|| self.start(epoll)) {
            let Some(worker) = self.all.get_mut(&id) else {
                continue;
            };
            match socket::sendmsg(&worker.end, job, fds, true) {
                Ok(()) => {
                    worker.job = Some((uid, client));
                    *self.busy.entry(uid).or_default() += 1;
                    return Some(id);
                }
                // Too many descriptors are in transit.
                Err(error) if socket::is_shortage(&error) => {
                    self.idle.push(id);
                    return None;
                }
                Err(_) => drop(self.lose(epoll, id)),
            }
        }
        None
    }

    fn start(&mut self, epoll: &Epoll) -> Option<u64> {
        if self.all.len() >= MOST {
            return None;
        }
        let id = self.next;
        let started = self.spawner.start().and_then(|end| {
            epoll.add(&end, self.kind | id, Interest::Read)?;
            Ok(end)
        });
        match started {
            Ok(end) => {
                self.next += 1;
                self.all.insert(id, Worker { end, job: None });
                Some(id)
            }
            Err(error) => {
                tracing::warn!(%error, "no worker");
                None
            }
        }
    }

    /// Takes a worker's message.
    pub fn hear(&mut self, epoll: &Epoll, id: u64) -> News {
        let Some(worker) = self.all.get(&id) else {
            return News::Nothing;
        };
        let before = socket::was_reset(&worker.end);
        let mut buf = [0u8; wire::MAX_BYTES];
        let received = match socket::recvmsg(&worker.end, &mut buf, true) {
            Ok(r) if r.bytes > 0 => r,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return News::Nothing,
            _ => {
                let client = self.lose(epoll, id);
                return client.map_or(News::Free, |client| News::Lost { client, before });
            }
        };
        let Some((client, carried, idle)) = wire::read(&buf[..received.bytes], received) else {
            self.rest(epoll, id);
            return News::Free;
        };
        if idle {
            self.rest(epoll, id);
        } else if let Some((_, client)) = self.all.get_mut(&id).and_then(|p| p.job.as_mut()) {
            // The descriptors that it still closes concern no client.
            *client = None;
        }
        News::Carried(client, Box::new(carried))
    }

    fn rest(&mut self, epoll: &Epoll, id: u64) {
        self.free(id);
        if self.idle.len() < self.spare {
            self.idle.push(id);
        } else {
            self.lose(epoll, id);
        }
    }

    /// Says that a worker is no longer busy; returns the client whose message it had been sent for.
    fn free(&mut self, id: u64) -> Option<u64> {
        let (uid, client) = self.all.get_mut(&id)?.job.take()?;
        if let Some(n) = self.busy.get_mut(&uid) {
            *n -= 1;
            if *n == 0 {
                self.busy.remove(&uid);
            }
        }
        client
    }

    fn lose(&mut self, epoll: &Epoll, id: u64) -> Option<u64> {
        let client = self.free(id);
        self.idle.retain(|i| *i != id);
        if let Some(worker) = self.all.remove(&id) {
            let _ = epoll.remove(&worker.end);
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_testkit::Watchdog;

    const MANY: u32 = 1000;

    struct Stage {
        epoll: Epoll,
        workers: Workers,
        /// The descriptor to be closed.
        discarded: OwnedFd,
        _dog: Watchdog,
    }

    fn stage() -> Stage {
        Stage {
            epoll: Epoll::new().expect("epoll"),
            workers: Workers::new(false, 0).expect("workers"),
            discarded: socket::pair().expect("pair").0,
            _dog: Watchdog::new(),
        }
    }

    impl Stage {
        /// Takes a worker for a user, which stays busy until it is let go.
        fn close_for(&mut self, uid: u32) -> Option<u64> {
            self.workers
                .close(&self.epoll, uid, &[self.discarded.as_fd()])
        }

        /// Waits for a worker's next message.
        fn hear(&mut self, id: u64) -> News {
            loop {
                match self.workers.hear(&self.epoll, id) {
                    News::Nothing => std::thread::yield_now(),
                    news => return news,
                }
            }
        }

        /// Makes a worker that the test plays: its number, and its end.
        fn played(&mut self) -> (u64, OwnedFd) {
            let (end, theirs) = socket::pair().expect("pair");
            let id = self.workers.next;
            self.workers.next += 1;
            let token = self.workers.kind | id;
            self.epoll.add(&end, token, Interest::Read).expect("epoll");
            self.workers.all.insert(id, Worker { end, job: None });
            self.workers.idle.push(id);
            (id, theirs)
        }
    }

    #[test]
    fn a_user_keeps_four_busy_and_others_have_theirs() {
        let mut stage = stage();
        let busy = [(); 4].map(|()| stage.close_for(1).expect("a worker"));
        assert_eq!(stage.close_for(1), None);
        let (conn, _far) = socket::pair().expect("pair");
        assert!(!stage.workers.carry(&stage.epoll, 1, 7, &conn));
        assert!(stage.workers.all_busy(1) && !stage.workers.all_busy(2));
        let theirs = stage.close_for(2).expect("a worker");
        // A finished worker takes the next job.
        for id in [theirs, busy[0]] {
            stage.workers.let_go(&stage.epoll, id);
            assert!(matches!(stage.hear(id), News::Free));
        }
        assert!(stage.close_for(1).is_some());
        assert_eq!(stage.close_for(1), None);
    }

    #[test]
    fn there_are_a_hundred_and_twenty_eight_of_them() {
        let mut stage = stage();
        for n in 0..128 {
            assert!(stage.close_for(n / 4).is_some(), "{n}");
        }
        assert_eq!(stage.close_for(1000), None);
    }

    /// However many workers end, before, during and after their work, there is one for the next job.
    #[test]
    fn those_that_end_leave_their_place() {
        let mut stage = stage();
        let (conn, _far) = socket::pair().expect("pair");
        for n in 0..MANY {
            let (id, theirs) = stage.played();
            match n % 3 {
                0 => {
                    drop(theirs);
                    let other = stage.close_for(1).expect("another one");
                    stage.workers.let_go(&stage.epoll, other);
                    assert!(matches!(stage.hear(other), News::Free));
                }
                1 => {
                    assert_eq!(stage.close_for(1), Some(id));
                    drop(theirs);
                    assert!(matches!(stage.hear(id), News::Free));
                }
                _ => {
                    assert!(stage.workers.carry(&stage.epoll, 1, 7, &conn));
                    drop(theirs);
                    let news = stage.hear(id);
                    assert!(matches!(news, News::Lost { client: 7, .. }), "{news:?}");
                }
            }
            assert!(!stage.workers.all.contains_key(&id), "{n}");
            assert!(stage.workers.busy.is_empty(), "{n}");
        }
        assert!(stage.workers.all.len() <= 1, "{:?}", stage.workers);
    }
}
