//! The parties' shares of the loop.

use super::conn::Carrying;
use super::keep::Discarded;
use super::parts::{CLIENT, KIND, Shell};
use super::party::Task;
use super::turns::SHARE;
use super::watchdog::Phase;
use super::worker::{self, News};
use crate::state::{ClientId, FdToken};
use std::time::{Duration, Instant};
use tranship_sys::epoll::Ready;
use tranship_sys::process;

/// The processor time of one turn, several times over. A party takes more if the kernel works in the manager's name,
/// for example for hundreds of thousands of waiters on the party's sockets.
const LONG: Duration = Duration::from_millis(20);
/// The factor by which a party's rest is longer than its turn was.
const REST: u32 = 16;

impl Shell {
    /// Does some of a party's tasks, for its share of the time.
    pub(super) fn serve_party(&mut self, uid: u32) {
        let (begin, used) = (Instant::now(), process::thread_time());
        self.beat.at(Phase::Events, uid, 0);
        let mut ready: Vec<Ready> = Vec::new();
        match self.parties.get_mut(&uid) {
            Some(party) => {
                party.queued = false;
                let _ = party.epoll.wait(&mut ready, Some(Duration::ZERO));
            }
            None => return,
        }
        for r in ready {
            match r.token & KIND {
                CLIENT => self.client_ready(ClientId(r.token & !KIND), r),
                _ => self.process_ended(FdToken(r.token & !KIND)),
            }
        }
        while let Some(task) = self.parties.get_mut(&uid).and_then(|p| p.tasks.pop_front()) {
            self.close_piled(uid);
            let (place, client) = task.place();
            self.beat.at(place, uid, client);
            match task {
                Task::Read(client) => self.read(client),
                Task::Arrived(client) => {
                    if let Some(party) = self.parties.get_mut(&uid) {
                        party.arrived -= 1;
                    }
                    self.arrived(client);
                    self.use_workers(uid);
                }
                Task::Write(client) => self.write(client),
                Task::Ended(pidfd) => self.last_words(pidfd),
                Task::Answer(input) => self.feed(*input),
                Task::Sweep => self.sweep(uid),
                Task::Look => self.look_at_flights(uid),
            }
            self.sort_trash();
            if begin.elapsed() >= SHARE {
                break;
            }
        }
        // The manager's own user can stop it anyway.
        if begin.elapsed() >= LONG && uid != process::geteuid() {
            let used = process::thread_time().saturating_sub(used);
            if used >= LONG {
                tracing::warn!(
                    uid,
                    ms = used.as_millis(),
                    "a turn of this user took long: it has none for a while"
                );
                self.rest(uid, used.saturating_mul(REST));
            }
        }
        let over = match self.parties.get(&uid) {
            Some(party) if party.rests => false,
            Some(party) if !party.tasks.is_empty() => {
                self.wake(uid);
                false
            }
            Some(party) => party.is_over() && !party.queued,
            None => false,
        };
        if over && let Some(party) = self.parties.remove(&uid) {
            let _ = self.epoll.remove(&party.epoll);
        }
    }

    /// Handles the end of a watched process: its earlier messages are read first.
    fn process_ended(&mut self, pidfd: FdToken) {
        let Some(kept) = self.fds.get(&pidfd).cloned() else {
            return;
        };
        self.unwatch(pidfd);
        self.enqueue(kept.uid, Task::Ended(pidfd));
    }

    pub(super) fn worker_speaks(&mut self, worker: u64) {
        match self.workers.hear(&self.epoll, worker) {
            News::Nothing => return,
            News::Free => {}
            News::Lost { client, before } => self.lost(ClientId(client), before),
            News::Carried(client, carried) => {
                let client = ClientId(client);
                match self.conns.get_mut(&client) {
                    Some(conn) => {
                        conn.carried = Carrying::Arrived(carried);
                        let uid = conn.uid;
                        if let Some(party) = self.parties.get_mut(&uid) {
                            party.arrived += 1;
                            self.enqueue(uid, Task::Arrived(client));
                        }
                    }
                    // The client is gone.
                    None => self.throw_carried(*carried),
                }
            }
        }
        for uid in std::mem::take(&mut self.waits_for_worker) {
            self.use_workers(uid);
        }
        self.sort_trash();
    }

    fn throw_carried(&mut self, carried: worker::Carried) {
        // Their owner no longer matters: the manager's own user pays.
        let uid = tranship_sys::process::geteuid();
        for (facts, fd) in carried.fds {
            if let Some(fd) = fd {
                let small = facts.sealed.is_memory() && facts.size <= worker::SMALL_BYTES;
                let what = None;
                self.throw(uid, Discarded { fd, what, small });
            }
        }
    }
}
