//! Keeping descriptors for the state, and closing them: a few at a time, and by a worker if closing may take long.

use super::conn::Carrying;
use super::keep::{Discarded, Kept};
use super::parts::Shell;
use super::party::Task;
use super::worker::SMALL_BYTES;
use crate::state::{Facts, FdToken};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use tranship_sys::socket;

/// Descriptors closed in one task: as many as the messages of one task can bring or make.
const SWEEP: usize = 64;

/// The number of a user's fetched messages that stop further fetches, except those under way: what such messages bring
/// is not in the books yet.
const ARRIVED: usize = 8;

impl Shell {
    /// Keeps a descriptor that the manager or the kernel made.
    pub(super) fn keep_own(&mut self, uid: u32, fd: OwnedFd) -> FdToken {
        self.keep(uid, Some(fd), true, false)
    }

    /// Keeps a descriptor that a client sent. If it was not worth handing on, the token stands for nothing.
    pub(super) fn keep_sent(&mut self, uid: u32, facts: &Facts, fd: Option<OwnedFd>) -> FdToken {
        let small = facts.sealed.is_memory() && facts.size <= SMALL_BYTES;
        self.keep(uid, fd, small, false)
    }

    /// Keeps one of two sockets that clients are going to share: its contents are as untrusted as clients' messages.
    /// Until it is sent, it is empty.
    pub(super) fn keep_shared(&mut self, uid: u32, fd: OwnedFd) -> FdToken {
        self.keep(uid, Some(fd), true, true)
    }

    fn keep(&mut self, uid: u32, fd: Option<OwnedFd>, small: bool, shared: bool) -> FdToken {
        let token = FdToken(self.next_token);
        self.next_token += 1;
        if let Some(fd) = fd {
            let kept = Kept::new(fd, token, uid, small, shared, &self.close_queue);
            self.fds.insert(token, Rc::new(kept));
        }
        token
    }

    pub(super) fn throw(&mut self, uid: u32, discarded: Discarded) {
        self.close_queue.throw(uid, discarded);
    }

    /// Sorts discarded descriptors by the parties that pay for closing them.
    pub(super) fn sort_trash(&mut self) {
        let all = self.close_queue.take();
        for (uid, discarded) in all {
            match self.party(uid) {
                Ok(party) => {
                    match discarded.small {
                        true => party.small.push_back(discarded),
                        false => party.foreign.push_back(discarded),
                    }
                    if !std::mem::replace(&mut party.sweeping, true) {
                        self.enqueue(uid, Task::Sweep);
                    }
                }
                // There is no descriptor for a party: the next try may find one.
                Err(_) => self.throw(uid, discarded),
            }
        }
    }

    /// Closes some.
    pub(super) fn sweep(&mut self, uid: u32) {
        let Some(party) = self.parties.get_mut(&uid) else {
            return;
        };
        party.sweeping = party.small.len() > SWEEP;
        if party.sweeping {
            self.enqueue(uid, Task::Sweep);
        }
        self.close_small(uid);
        self.use_workers(uid);
    }

    /// Closes some piled-up descriptors. No task adds more than this closes, so that they do not pile up, however many
    /// tasks there are.
    pub(super) fn close_piled(&mut self, uid: u32) {
        let piled = self.parties.get(&uid).map_or(0, |p| p.small.len());
        if piled >= SWEEP {
            self.close_small(uid);
        }
    }

    fn close_small(&mut self, uid: u32) {
        let Some(party) = self.parties.get_mut(&uid) else {
            return;
        };
        let some = party.small.len().min(SWEEP);
        let some: Vec<Discarded> = party.small.drain(..some).collect();
        self.swept(some);
    }

    /// Closes the rest of these descriptors, and reports it.
    fn swept(&mut self, some: Vec<Discarded>) {
        for Discarded { fd, what, .. } in some {
            drop(fd);
            if let Some(what) = what {
                self.feed(what);
            }
        }
    }

    /// Gives waiting work to workers.
    pub(super) fn use_workers(&mut self, uid: u32) {
        let Some(party) = self.parties.get_mut(&uid) else {
            return;
        };
        let mut gone = Vec::new();
        let mut closers = Vec::new();
        // Closing comes first: a user that sends more meanwhile waits.
        while !party.foreign.is_empty() {
            let n = party.foreign.len().min(socket::MAX_FDS);
            let fds: Vec<_> = party.foreign.range(..n).map(AsFd::as_fd).collect();
            let Some(worker) = self.workers.close(&self.epoll, uid, &fds) else {
                break;
            };
            closers.push(worker);
            gone.extend(party.foreign.drain(..n));
        }
        while let Some(client) = party.carry.front().copied() {
            let Some(conn) = self.conns.get_mut(&client) else {
                party.carry.pop_front();
                continue;
            };
            let full = party.foreign.len() >= socket::MAX_FDS || party.arrived >= ARRIVED;
            if full || !self.workers.carry(&self.epoll, uid, client.0, &conn.fd) {
                break;
            }
            party.carry.pop_front();
            conn.carried = Carrying::Away;
        }
        if !party.carry.is_empty() || !party.foreign.is_empty() {
            self.waits_for_worker.insert(uid);
        }
        self.swept(gone);
        for worker in closers {
            self.workers.let_go(&self.epoll, worker);
        }
        self.let_the_dying_go(uid);
    }
}
