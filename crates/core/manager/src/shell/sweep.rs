//! Closing descriptors: a few at a time, and by a worker if closing may take long; and giving workers their work.

use super::conn::Carrying;
use super::keep::Discarded;
use super::parts::Shell;
use super::party::Task;
use crate::state::Input;
use std::os::fd::AsFd;
use tranship_sys::socket;

/// Descriptors closed in one task: as many as the messages of one task can bring or make.
const SWEEP: usize = 64;

/// A user with this number of fetched messages has no further ones fetched, except those under way: the descriptors in
/// them are not in the books yet.
const ARRIVED: usize = 8;

impl Shell {
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

    /// Stops reading from ended processes if all workers of their user are kept busy: others wait for the news of their
    /// end.
    pub(super) fn let_the_dying_go(&mut self, uid: u32) {
        if !self.workers.all_busy(uid) {
            return;
        }
        let waiting = self.parties.get(&uid).map(|p| p.carry.clone());
        for client in waiting.into_iter().flatten() {
            let dying = self.conns.get_mut(&client).and_then(|c| c.dying.take());
            if let Some((domain, _)) = dying {
                self.feed(Input::ProcessDied { domain });
            }
        }
    }
}
